"""The metadata service of a simulated world, and its faults.

One in-memory service holds the truth. Clients reach it through a :class:`~simbookie.world.metadata.SimulatedMetadataStore`, whose
calls travel over the links between their host and the host :data:`METADATA_HOST`: blocking those cuts a client off. What else can
happen to a call is decided here: by chance, or on purpose by :meth:`SimulatedMetadataService.intercept`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol

from bkclient.errors import BookKeeperError
from bkclient.ledger import LedgerMetadata, Versioned
from bkclient.metadata.base import MetadataStore
from bkclient.metadata.memory import MemoryMetadataService
from simbookie.world.faults import Delay, Interception, Interceptions
from simbookie.world.loop import VirtualTimeLoop
from simbookie.world.rng import split

__all__ = [
    "METADATA_HOST",
    "MatchCall",
    "MetadataAction",
    "MetadataCall",
    "MetadataConfig",
    "MetadataFault",
    "SimulatedMetadataService",
]

METADATA_HOST: Final = "metadata"


@dataclass(frozen=True, slots=True)
class MetadataConfig:
    """How the service and its clients behave. Times in seconds, probabilities from 0 to 1."""

    #: What a call, and its answer, takes at least, and up to how much more.
    latency_s: float = 0.001
    jitter_s: float = 0.002
    #: How long a client tries before it gives a call up.
    timeout_s: float = 10.0
    #: How long the service believes in a client that says nothing: a crashed bookie stays registered for so long.
    session_timeout_s: float = 10.0
    #: How long a client waits before it repeats a call that failed.
    retry_s: float = 0.25
    #: How likely a compare-and-set finds that somebody else has just rewritten the value.
    conflict_probability: float = 0.0
    #: How likely the answer to a compare-and-set is lost; whether it was applied is a fair coin's choice.
    unknown_probability: float = 0.0
    #: How likely the service refuses a call.
    failure_probability: float = 0.0

    def __post_init__(self) -> None:
        for name in ("latency_s", "jitter_s"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"metadata: {name} must be >= 0, got {getattr(self, name)}")
        for name in ("timeout_s", "session_timeout_s", "retry_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"metadata: {name} must be > 0, got {getattr(self, name)}")
        chances = (self.conflict_probability, self.unknown_probability, self.failure_probability)
        if min(chances) < 0 or sum(chances) > 1:
            raise ValueError(f"metadata: probabilities must be >= 0 and <= 1 in total, got {chances}")


class MetadataFault(Enum):
    """What can be done to a call."""

    #: Somebody rewrites the ledger's metadata unchanged right before a compare-and-set, which therefore fails.
    CONFLICT = auto()
    #: The call is carried out, the answer lost.
    ANSWER_LOST = auto()
    #: The call is lost.
    CALL_LOST = auto()
    #: The service refuses the call.
    FAIL = auto()
    #: A read is answered with the value before the present one, where there is one.
    STALE = auto()
    #: The call waits until :meth:`~simbookie.world.faults.Interception.release`.
    HOLD = auto()
    #: The call is carried out, and its answer waits until then; whatever else was done to the call.
    HOLD_ANSWER = auto()


MetadataAction = MetadataFault | Delay
"""A delayed call may be overtaken by later ones of the same client, and is carried out even if it is given up meanwhile."""


@dataclass(frozen=True, slots=True)
class MetadataCall:
    """A call on its way, for predicates: whose, the method of the store, and the ledger or metadata it is about."""

    host: str
    operation: str
    ledger_id: int = -1
    metadata: LedgerMetadata | None = None
    expected_version: int = -1


MatchCall = Callable[[MetadataCall], bool]


class _Session(Protocol):
    def lose_session(self, outage_s: float) -> None: ...


class SimulatedMetadataService:
    """What all simulated stores of a world share.

    ``memory`` is the truth. ``intruder`` is the session by which injected conflicts are written; recorders may wrap it.
    """

    def __init__(self, loop: VirtualTimeLoop, seed: int, config: MetadataConfig | None = None) -> None:
        self.loop = loop
        #: May be replaced at any time; calls look at it when they are made.
        self.config = config if config is not None else MetadataConfig()
        self.memory = MemoryMetadataService()
        self.intruder: MetadataStore = self.memory.session(rng=split(seed, "metadata intruder"))
        self.is_down = False
        #: That of no process: what the service does is done by the world.
        self.context = Context()
        self._seed = seed
        self._sessions_opened = 0
        self._interceptions: Interceptions[MetadataAction] = Interceptions()
        self._of_answers: Interceptions[MetadataAction] = Interceptions()
        self._waiters: list[Callable[[], None]] = []
        self._clients: dict[str, list[_Session]] = {}
        #: By host, ledgers that listings leave out, and how often that was asked for.
        self._omitted: dict[str, Counter[int]] = {}
        #: By host, how much later it hears of changes, for each that asked for that.
        self._watch_delays: dict[str, list[float]] = {}
        self._present: dict[int, Versioned] = {}
        self._previous: dict[int, Versioned] = {}

    # -------------------------------------------------------------------------------------------------------- faults

    def intercept(
        self, match: MatchCall, action: MetadataAction, *, limit: int | None = None
    ) -> Interception[MetadataAction]:
        """Do ``action`` to the calls that ``match``, the first ``limit`` ones if there is a limit; the first made acts."""
        of = self._of_answers if action is MetadataFault.HOLD_ANSWER else self._interceptions
        return of.add(match, action, limit)

    def omit(self, host: str, ledger_id: int) -> Callable[[], None]:
        """Leave a ledger out of the listings that ``host`` gets; returns what ends that."""
        omitted = self._omitted.setdefault(host, Counter())
        omitted[ledger_id] += 1

        def end() -> None:
            omitted[ledger_id] -= 1

        return end

    def is_omitted(self, host: str, ledger_id: int) -> bool:
        """Whether listings that ``host`` gets leave a ledger out."""
        return host in self._omitted and self._omitted[host][ledger_id] > 0

    def delay_watches(self, host: str, by_s: float) -> Callable[[], None]:
        """Have ``host`` hear of what it watches so much later; returns what ends that."""
        delays = self._watch_delays.setdefault(host, [])
        delays.append(by_s)
        return lambda: delays.remove(by_s)

    def watch_delay_s(self, host: str) -> float:
        """How much later ``host`` hears of what it watches."""
        return sum(self._watch_delays.get(host, ()))

    def stop(self) -> None:
        """Be down: connections are lost, calls on their way too, later ones wait or fail. Sessions survive. Idempotent."""
        self.is_down = True

    def start(self) -> None:
        """Be up again, with everything that was stored. Idempotent."""
        self.is_down = False
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            self.loop.call_soon(waiter, context=self.context)

    def lose_sessions(self, host: str, outage_s: float = 1.0) -> int:
        """Let the sessions of the clients on ``host`` expire; each gets a new one after ``outage_s``. Returns how many."""
        clients = self._clients.get(host, [])
        for client in clients:
            client.lose_session(outage_s)
        return len(clients)

    # ------------------------------------------------------------------------------------------- for simulated stores

    def open_session(self) -> MetadataStore:
        """A new session with the service itself: no delay, no fault. Its calls take effect as they are made."""
        self._sessions_opened += 1
        return self.memory.session(rng=split(self._seed, f"metadata session {self._sessions_opened}"))

    def attach(self, host: str, client: _Session) -> None:
        """Note that ``client`` has a session from ``host``."""
        self._clients.setdefault(host, []).append(client)

    def detach(self, host: str, client: _Session) -> None:
        """Note that its session has ended."""
        self._clients[host].remove(client)

    def when_up(self, callback: Callable[[], None]) -> None:
        """Call back once the service, which is down, is up again."""
        self._waiters.append(callback)

    def fate_of(
        self, call: MetadataCall, luck: float
    ) -> tuple[MetadataAction | None, Interception[MetadataAction] | None]:
        """What is to be done to ``call`` and who wants it; ``luck`` from 0 to 1 decides where no fault is aimed at the call."""
        interception = self._interceptions.meant_for(call)
        if interception is not None:
            return interception.action, interception
        config = self.config
        action: MetadataFault | None = None
        if luck < config.failure_probability:
            action = MetadataFault.FAIL
        elif call.operation == "write_ledger":
            luck -= config.failure_probability
            if luck < config.conflict_probability:
                action = MetadataFault.CONFLICT
            elif luck < config.conflict_probability + config.unknown_probability / 2:
                action = MetadataFault.ANSWER_LOST
            elif luck < config.conflict_probability + config.unknown_probability:
                action = MetadataFault.CALL_LOST
        return action, None

    def holder_of_answer(self, call: MetadataCall) -> Interception[MetadataAction] | None:
        """What keeps the answer to ``call`` back."""
        return self._of_answers.meant_for(call)

    async def intrude(self, ledger_id: int) -> None:
        """Rewrite the metadata of a ledger, unchanged; nothing happens if somebody else is faster or it is gone."""
        try:
            value = await self.intruder.read_ledger(ledger_id)
            self.learn(await self.intruder.write_ledger(value.metadata, value.version))
        except BookKeeperError:
            pass

    def learn(self, value: Versioned) -> None:
        """Note a value that was stored, so that the one before can be served as a stale one."""
        ledger_id = value.metadata.ledger_id
        if ledger_id in self._present:
            self._previous[ledger_id] = self._present[ledger_id]
        self._present[ledger_id] = value

    def stale(self, ledger_id: int) -> Versioned | None:
        """The value before the present one."""
        return self._previous.get(ledger_id)
