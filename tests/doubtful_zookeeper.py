"""A proxy before a ZooKeeper, in which writes of metadata get no answer; and a policy that runs out of bookies.

Together they bring a real client into doubt: it does not know whether a change of its ensemble is stored, and there may be no
bookie for another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from random import Random

from bkclient.ledger import BookieId, Ensemble, LedgerMetadata
from bkclient.metadata.base import BookieAddress
from bkclient.metadata.codec import decode_ledger_metadata
from bkclient.placement.base import LedgerShape
from bkclient.placement.random_choice import RandomPlacement
from simbookie.zookeeper.codes import OpCode
from simbookie.zookeeper.jute import FrameSplitter, JuteReader, framed
from simbookie.zookeeper.messages import SetData, read_request
from tests.proxy import Cut, Direction, Flow, Proxy

__all__ = ["Doubt", "DoubtfulZooKeeper", "OffersWhile"]

_FRAME_SIZE_MAX = 1 << 20


class Doubt(Enum):
    """What becomes of a write that gets no answer."""

    #: It never comes to the service; the connection is reset.
    REQUEST_LOST = "request lost"
    #: It is carried out; the connection is reset in place of the answer.
    ANSWER_LOST = "answer lost"
    #: It is carried out; the connection stays, and nothing comes over it from the answer on.
    ANSWERS_STALL = "answers stall"


class DoubtfulZooKeeper(Proxy):
    """Faithful to everything but the first writes to existing nodes, each of which meets the next of ``doubts``."""

    def __init__(self, target: BookieAddress, doubts: Iterable[Doubt]) -> None:
        super().__init__(target)
        self._doubts = list(doubts)
        #: The writes that clients have sent, in order, whatever became of them.
        self.writes: list[SetData] = []
        self._splitters: dict[tuple[int, Direction], FrameSplitter] = {}
        self._greeted: set[tuple[int, Direction]] = set()
        #: What becomes of an answer, by connection and number of the request.
        self._doomed: dict[tuple[int, int], Doubt] = {}
        self._stalled: set[int] = set()

    def uri(self, uri: str, address: str) -> str:
        """``uri`` with this proxy in the place of the service's ``address``."""
        assert address in uri
        return uri.replace(address, f"{self.address.host}:{self.address.port}")

    def changes_of(self, ledger_id: int) -> list[tuple[LedgerMetadata, int]]:
        """The metadata that clients asked to be stored, all of one ledger, and the versions that they expected."""
        return [(decode_ledger_metadata(ledger_id, write.data or b""), write.version) for write in self.writes]

    async def passes(self, flow: Flow, data: bytes) -> None:
        stream = flow.connection, flow.direction
        splitter = self._splitters.setdefault(stream, FrameSplitter(_FRAME_SIZE_MAX))
        splitter.feed(data)
        for record in splitter.records():
            if stream not in self._greeted:
                self._greeted.add(stream)  # the first record of a stream opens the session, and has no header
            elif flow.direction is Direction.REQUESTS:
                self._look_at_request(flow.connection, record)
            else:
                self._look_at_answer(flow.connection, record)
            if flow.direction is Direction.REQUESTS or flow.connection not in self._stalled:
                await flow.forward(framed(record))

    def _look_at_request(self, connection: int, record: bytes) -> None:
        reader = JuteReader(record)
        xid, op = reader.int32(), reader.int32()
        if op != OpCode.SET_DATA:
            return
        request = read_request(OpCode.SET_DATA, reader)
        assert isinstance(request, SetData)
        self.writes.append(request)
        if not self._doubts:
            return
        doubt = self._doubts.pop(0)
        if doubt is Doubt.REQUEST_LOST:
            raise Cut
        self._doomed[connection, xid] = doubt

    def _look_at_answer(self, connection: int, record: bytes) -> None:
        match self._doomed.pop((connection, JuteReader(record).int32()), None):
            case Doubt.ANSWER_LOST:
                raise Cut
            case Doubt.ANSWERS_STALL:
                self._stalled.add(connection)


class OffersWhile(RandomPlacement):
    """Chooses by chance, and has bookies to replace others as long as ``is_offering`` says so."""

    def __init__(self, is_offering: Callable[[], bool]) -> None:
        super().__init__(Random(1))
        self._is_offering = is_offering

    def replace(
        self, shape: LedgerShape, ensemble: Ensemble, position: int, excluded: frozenset[BookieId]
    ) -> BookieId | None:
        return super().replace(shape, ensemble, position, excluded) if self._is_offering() else None
