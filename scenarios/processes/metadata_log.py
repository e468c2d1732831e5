"""Records what clients do to metadata where it is done: in the ZooKeeper server, in the order in which it does it.

So a write of a client that was killed before the answer came is in the history, and reads and writes of all have one order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bkclient.errors import BookKeeperError
from bkclient.ledger import LedgerMetadata, Versioned
from bkclient.metadata.codec import decode_ledger_metadata
from bkclient.metadata.paths import parse_ledger_path
from scenarios.history import Kind
from scenarios.recording.recorders import Recorder, metadata_fields
from scenarios.recording.store import record_cas
from scenarios.recording.tree import LogChanges, log_of
from simbookie.zookeeper.codes import ErrorCode, OpCode
from simbookie.zookeeper.messages import Create, Delete, PathRequest, Request, SetData
from simbookie.zookeeper.service import Client, ZooKeeperService

__all__ = ["MetadataLog"]

_REFUSED: Final = {ErrorCode.BAD_VERSION: "conflict"}


class MetadataLog:
    """Listens to the requests of a ZooKeeper server whose cluster is at ``root``.

    ``actor_of`` gives the client that a connection comes from by its address; requests of others are not recorded.
    """

    def __init__(
        self, service: ZooKeeperService, root: str, recorder: Recorder, actor_of: Callable[[str], str | None]
    ) -> None:
        self._service = service
        self._root = root
        self._recorder = recorder
        self._actor_of = actor_of
        #: What the service has, because a deletion does not say what it deletes.
        self._stored: dict[int, tuple[LedgerMetadata, int]] = {}
        service.on_request = self._on_request

    def _on_request(self, client: Client, request: Request, code: ErrorCode) -> None:
        actor = self._actor_of(client.source)
        if actor is None or not isinstance(request, Create | Delete | SetData | PathRequest):
            return
        try:
            ledger_id = parse_ledger_path(self._root, request.path)
        except ValueError:
            if code is ErrorCode.OK and isinstance(request, Create | SetData):
                self._node_stored(actor, request)
            return
        match request:
            case Create() if code is ErrorCode.OK:
                self._created(actor, ledger_id, request)
            case SetData():
                self._written(actor, ledger_id, request, code)
            case Delete() if code is ErrorCode.OK and ledger_id in self._stored:
                metadata, version = self._stored.pop(ledger_id)
                record_cas(self._recorder, actor, metadata, "delete", "ok", expected_version=-1, version=version)
            case PathRequest(op=OpCode.GET_DATA) if code is ErrorCode.OK:
                self._read(actor, ledger_id, request.path)

    def _node_stored(self, actor: str, request: Create | SetData) -> None:
        path = request.path.removeprefix(f"{self._root}/")
        znode = self._service.tree.find(request.path)
        if znode is not None and request.data:  # directories have none
            LogChanges(self._recorder, actor).stored(path, request.data, znode.version)

    def _created(self, actor: str, ledger_id: int, request: Create) -> None:
        metadata = _decoded(ledger_id, request.data)
        if metadata is None:
            return
        self._stored[ledger_id] = metadata, 0
        self._recorder.causes.created(actor, Versioned(metadata, 0))
        record_cas(self._recorder, actor, metadata, "create", "ok", expected_version=-1, version=0)
        log = log_of(metadata)
        if log is not None:
            self._recorder.record(Kind.LOG_LEDGER, actor, ledger_id, log=log)

    def _written(self, actor: str, ledger_id: int, request: SetData, code: ErrorCode) -> None:
        metadata = _decoded(ledger_id, request.data)
        if metadata is None:
            return
        cause = self._recorder.causes.cause_of(actor, metadata, request.version)
        outcome, version = _REFUSED.get(code, "error"), -1
        if code is ErrorCode.OK:
            outcome, version = "ok", request.version + 1
            self._stored[ledger_id] = metadata, version
            self._recorder.causes.learn(Versioned(metadata, version))
        expected = request.version
        record_cas(self._recorder, actor, metadata, cause, outcome, expected_version=expected, version=version)

    def _read(self, actor: str, ledger_id: int, path: str) -> None:
        znode = self._service.tree.find(path)
        metadata = None if znode is None else _decoded(ledger_id, znode.data)
        if znode is None or metadata is None:
            return
        self._recorder.causes.learn(Versioned(metadata, znode.version))
        fields = metadata_fields(metadata, znode.version)
        self._recorder.record(Kind.META_READ, actor, ledger_id, outcome="ok", **fields)


def _decoded(ledger_id: int, data: bytes | None) -> LedgerMetadata | None:
    """The metadata; None for bytes that are none, which are no business of a recorder."""
    try:
        return decode_ledger_metadata(ledger_id, data or b"")
    except BookKeeperError:
        return None
