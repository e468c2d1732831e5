"""Swarms: plans drawn from a seed, each with its own few kinds of faults.

A run with every kind of fault at once hardly gets anywhere, and one with a single kind never sees two of them meet. So a seed
draws a subset of kinds, how often each comes, the cluster, and what clients do. The drawn plan is a value like any other: it can
be printed, changed, kept and played again without this module.

* *Safety* draws from everything that may happen to a cluster, replaced disks that never come back included. Nothing has to end.
* *Logs* draws the same against logs and their owners, readers, cursors and groups, beside a ledger.
* *Liveness* keeps to what a ledger survives: what faults take of copies and of bookies (:class:`~scenarios.plan.fault.Budget`) is
  less than an ack quorum, and all else ends. Then every program has to end, within a patience that follows from the timeouts
  drawn.

Neither draws what no replication survives: a bookie that denies what it had confirmed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from bkclient import ClientConfig
from bkclient.ledger import DigestType
from scenarios.history import Kind
from scenarios.plan import faults
from scenarios.plan import operations as ops
from scenarios.plan.cluster import Cluster
from scenarios.plan.fault import Budget
from scenarios.plan.model import Expectation, Expected, Plan, Program, Step
from scenarios.plan.swarm_kinds import KINDS
from scenarios.plan.swarm_logs import log_programs
from scenarios.plan.triggers import At, Condition, Trigger, When
from scenarios.plan.words import Sizes
from simbookie.storage.forgetful import ForgetsLike
from simbookie.storage.group_commit import JournalConfig
from simbookie.storage.kinds import StoreKind
from simbookie.storage.memory import MemoryStorageConfig
from simbookie.world.links import NetworkConfig, TcpConfig
from simbookie.world.metadata_service import MetadataConfig
from simbookie.world.rng import split

__all__ = ["CAMPAIGNS", "LIVENESS", "LOGS", "SAFETY", "TOGETHER", "Swarm", "draw_swarm"]

SAFETY: Final = "swarm"
LIVENESS: Final = "swarm-live"

LOGS: Final = "swarm-logs"
#: Writers append many entries by one call each.
TOGETHER: Final = "swarm-together"

#: Campaigns in clusters of one shape: how many bookies, and the sizes to choose from. Nothing has to end in them.
CAMPAIGNS: Final = {
    "swarm-3-3-2": (5, ((3, 3, 2),)),
    "swarm-striped": (6, ((5, 3, 2), (5, 3, 3))),
    "swarm-qa1": (4, ((3, 3, 1),)),
}
_SIZES: Final = (
    *((1, 1, 1), (2, 2, 1), (2, 2, 2), (2, 2, 2), (3, 2, 2), (3, 3, 1), (3, 3, 2), (3, 3, 2), (3, 3, 3)),
    *((4, 2, 2), (4, 3, 2), (4, 4, 2), (5, 3, 2), (5, 3, 3), (5, 5, 3), (6, 3, 2), (7, 5, 3)),
)
#: How long a plan may take beside its timeouts: sessions, back-offs and pauses of programs.
_PATIENCE_S: Final = 30.0
_TIMEOUTS_OF_PATIENCE: Final = 20


def draw_swarm(seed: int, mode: str = SAFETY) -> Plan:
    """The plan of this seed in one of the modes."""
    return Swarm(split(seed, mode), mode).plan()


@dataclass(slots=True)
class Swarm:
    """A plan that is being drawn."""

    rng: Random
    mode: str
    cluster: Cluster = field(default_factory=lambda: Cluster(1, Sizes(1, 1, 1)))
    writers: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    ledgers: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    #: Bookies whose copies may be damaged or lost, fewer than an ack quorum of any ledger.
    damaged: list[str] = field(default_factory=list)

    def plan(self) -> Plan:
        """Draw it, once."""
        rng = self.rng
        self.cluster = self._cluster()
        bookies = self.cluster.bookie_names
        self.damaged = rng.sample(bookies, self.cluster.sizes.ack_quorum - 1)
        programs = self._programs()
        for kind in rng.sample(list(KINDS), rng.randint(1, 5)):
            for _ in range(rng.randint(1, 3)):
                fault = KINDS[kind](self)
                if fault is not None and self._can_afford(fault):
                    self._happens(fault)
        timeouts = self.cluster.client.timeouts
        return Plan(
            name=self.mode,
            summary=f"{len(self.steps)} steps against {len(programs)} clients, drawn",
            cluster=self.cluster,
            clients=tuple(programs),
            steps=tuple(self.steps),
            expect=Expectation(Expected.SAFE if self.mode == LIVENESS else Expected.ANYTHING),
            patience_s=_PATIENCE_S + _TIMEOUTS_OF_PATIENCE * max(timeouts.add_s, timeouts.read_s),
        )

    # The cluster -------------------------------------------------------------------------------------------------

    def _cluster(self) -> Cluster:
        rng = self.rng
        shape = CAMPAIGNS.get(self.mode)
        sizes = Sizes(*rng.choice(_SIZES if shape is None else shape[1]))
        timeout_s = rng.choice((0.2, 0.5, 1.0, 5.0))
        client = ClientConfig().with_changes(
            timeouts={"add_s": timeout_s, "read_s": rng.choice((timeout_s, 0.5, 1.0))},
            limits={"max_in_flight_entries": rng.choice((1, 4, 64, 64))},
            connections={"protocol_version": rng.choice((2, 3, 3))},
            reading={
                "read_ahead_entries": rng.choice((1, 2, 8, 64)),
                "recovery_read_ahead_entries": rng.choice((1, 2, 8, 64)),
            },
            writing={"delay_ensemble_change": rng.random() < 0.2},
        )
        store = rng.choice((*StoreKind, *[None] * 9))
        buffer_bytes = rng.choice((131_072, 131_072, 16_384, 2_048))
        return Cluster(
            bookies=sizes.ensemble + rng.choice((0, 1, 1, 2)) if shape is None else shape[0],
            sizes=sizes,
            digest=rng.choice((DigestType.CRC32C, DigestType.CRC32C, DigestType.CRC32, DigestType.HMAC)),
            forgets=None if store is not None else rng.choice((None, None, None, *ForgetsLike)),
            store=store,
            cookies=store is not None and rng.random() < 0.5,
            network=NetworkConfig(
                jitter_s=rng.choice((0.0002, 0.001, 0.004, 0.02)),
                slow_probability=rng.choice((0.0, 0.0, 0.01, 0.05)),
                loss_probability=rng.choice((0.0, 0.0, 0.0, 0.003)),
                duplicate_probability=rng.choice((0.0, 0.0, 0.02)),
                fifo=rng.random() < 0.5,
            ),
            metadata=MetadataConfig(
                conflict_probability=rng.choice((0.0, 0.05)), unknown_probability=rng.choice((0.0, 0.0, 0.1))
            ),
            storage=MemoryStorageConfig(
                journal=JournalConfig(
                    group_wait_max_s=rng.choice((0.0, 0.0005)), sync_latency_s=rng.choice((0.0007, 0.0007, 0.02))
                )
            ),
            tcp=TcpConfig(
                segment_bytes=rng.choice((1_448, 1_448, 100, 23)),
                cut_probability=rng.choice((0.0, 0.1, 0.5)),
                bandwidth=rng.choice((None, 100e6, 2e6)),
                send_buffer_bytes=buffer_bytes,
                receive_buffer_bytes=buffer_bytes,
            ),
            client=client,
        )

    # Programs ----------------------------------------------------------------------------------------------------

    def _programs(self) -> list[Program]:
        rng = self.rng
        programs = []
        for index in range(rng.choice((1, 1, 1, 2))):
            ledgers = [f"{'ab'[index]}{number}" for number in range(rng.choice((1, 1, 1, 2)))]
            self.ledgers += ledgers
            self.writers.append(f"writer-{index}")
            programs.append(Program(f"writer-{index}", tuple(self._writing(ledgers))))
        recovering = self._recovering()
        for index in range(rng.choice((0, 1, 1, 2, 2))):
            self.others.append(f"recoverer-{index}")
            programs.append(Program(f"recoverer-{index}", recovering))
            if rng.random() < 0.6:  # otherwise the next one is a rival
                recovering = self._recovering()
        for index in range(rng.choice((0, 0, 1, 2))):
            self.others.append(f"reader-{index}")
            programs.append(Program(f"reader-{index}", self._following()))
        if rng.random() < 0.1:
            self.others.append("repairer")
            programs.append(Program("repairer", self._repairing()))
        if self.mode == LOGS:
            for name, program in log_programs(rng, self._moment).items():
                self.others.append(name)
                programs.append(Program(name, program))
        return programs

    def _repairing(self) -> tuple[ops.Call, ...]:
        """What a bookie has is copied to others. Ledgers that are written are closed for that."""
        return (ops.Call(ops.Until(self._moment())), ops.Call(ops.RecoverBookie(self.bookie()), limit_s=20.0))

    def _writing(self, ledgers: list[str]) -> list[ops.Call]:
        rng = self.rng
        calls: list[ops.Call] = []
        for ledger in ledgers:
            is_deferred = rng.random() < 0.15
            is_advanced = rng.random() < 0.15
            calls.append(ops.Call(ops.CreateLedger(ledger, deferred=is_deferred, advanced=is_advanced)))
            due = 0
            for _ in range(rng.randint(1, 3)):
                append = self._given(ledger, due) if is_advanced else self._append(ledger)
                due += len(append.entries) if isinstance(append, ops.AppendAt) else append.count
                limit_s = rng.choice((None, None, None, 0.01))
                calls.append(ops.Call(append, limit_s=None if is_advanced else limit_s))
                if is_deferred:
                    calls.append(ops.Call(ops.ForceLedger(ledger)))
                if rng.random() < 0.1:
                    calls.append(ops.Call(ops.TellLac(ledger)))
                if rng.random() < 0.2:
                    calls.append(ops.Call(ops.CancelAppends(ledger, tuple(range(rng.randint(1, 30))))))
                if rng.random() < 0.3:
                    calls.append(ops.Call(ops.Sleep(round(rng.uniform(0.0, 2.0), 3))))
            if rng.random() < 0.5:
                calls.append(ops.Call(ops.Flush(ledger)))
            if rng.random() < 0.6:
                calls.append(ops.Call(ops.Close(ledger), limit_s=rng.choice((None, None, 0.005))))
        if rng.random() < 0.1:
            calls.append(ops.Call(ops.Open(ledgers[-1], recover=True)))
        if rng.random() < 0.3:
            calls.append(ops.Call(ops.Stay()))
        return calls

    def _append(self, ledger: str) -> ops.Append | ops.AppendAll:
        rng = self.rng
        if self.mode == TOGETHER:
            return ops.AppendAll(ledger, rng.randint(1, 60), rng.choice((0, 1, 100, 300)))
        pause_s = rng.choice((0.0, 0.0, 0.001, 0.01, 0.1))
        size, count = rng.choice((0, 1, 100, 300)), rng.randint(1, 20)
        return ops.Append(ledger, count, rng.randint(1, 12), size, pause_s, nowait=rng.random() < 0.3)

    def _given(self, ledger: str, first: int) -> ops.AppendAt:
        """Ids in order and without a gap, above which nothing would ever be acknowledged.

        An entry's header has the length of the ledger when it was appended; in another order that is not the one up to it.
        """
        rng = self.rng
        entries = tuple(range(first, first + rng.randint(1, 20)))
        return ops.AppendAt(ledger, entries, rng.choice((0, 1, 100, 300)), nowait=rng.random() < 0.3)

    def _recovering(self) -> tuple[ops.Call, ...]:
        rng = self.rng
        ledger = rng.choice(self.ledgers)
        opening = ops.Open(ledger, recover=True, attempts=rng.randint(1, 3))
        calls = [
            ops.Call(ops.Until(self._moment())),
            ops.Call(opening, limit_s=rng.choice((None, None, None, 0.02))),
            ops.Call(ops.Read(ledger)),
        ]
        if rng.random() < 0.1:
            calls.append(ops.Call(ops.DeleteLedger(ledger)))
        return tuple(calls)

    def _following(self) -> tuple[ops.Call, ...]:
        rng = self.rng
        ledger = rng.choice(self.ledgers)
        following: tuple[ops.ClientOperation, ...] = rng.choice(
            (
                (ops.Follow(ledger),),
                (ops.TailLedger(ledger),),
                (ops.ReadInBatches(ledger, count=rng.randint(1, 9)),),
                (ops.PollEntry(ledger, rng.randint(0, 9), wait_s=1.0), ops.AskLac(ledger), ops.Read(ledger)),
            )
        )
        # Without an end of its own: whether the ledger is ever closed is up to others.
        return (ops.Call(ops.Open(ledger, attempts=3)), *(ops.Call(operation, limit_s=20.0) for operation in following))

    # Steps -------------------------------------------------------------------------------------------------------

    def _can_afford(self, fault: faults.Fault) -> bool:
        """Whether ledgers survive it together with all that was drawn before; for safety they need not survive a bookie's end."""
        if fault.budget is Budget.NOTHING:
            return True
        if fault.budget is Budget.BOOKIE:
            if self.mode != LIVENESS:
                return True
            spare = self.cluster.bookies - self.cluster.sizes.ensemble
            return len(self.damaged) <= spare and fault.hosts[0] in self.damaged
        return fault.hosts[0] in self.damaged

    def _happens(self, fault: faults.Fault) -> None:
        """Let it happen at some moment; what lasts may end at another."""
        rng = self.rng
        name = f"s{len(self.steps)}" if fault.is_lasting else ""
        begin = self._moment()
        self.steps.append(Step(begin, fault, name))
        if isinstance(fault, faults.Wipe) or not name or rng.random() < 0.4:
            return
        if isinstance(begin, When) and rng.random() < 0.5:
            end: Trigger = replace(begin, after_s=begin.after_s + round(rng.choice((0.01, 0.3, 2.0, 8.0)), 3))
        else:
            end = self._moment()
        self.steps.append(Step(end, faults.EndFault(name)))

    def step(self, fault: faults.Fault, kind: Kind, *conditions: Condition, after_s: float = 0.0) -> str:
        """Have it happen right after the first such event; the name under which it can be ended."""
        name = f"s{len(self.steps)}" if fault.is_lasting else ""
        self.steps.append(Step(When(kind, after_s=after_s, maybe=True, where=conditions), fault, name))
        return name

    def _moment(self) -> Trigger:
        rng = self.rng
        if rng.random() < 0.25:
            return At(round(rng.uniform(0.0, 2.0), 3))
        kind, conditions = rng.choice(_MOMENTS_OF_LOGS if self.mode == LOGS and rng.random() < 0.5 else _MOMENTS)
        nth = rng.choice((1, 1, 2, 5, 13))
        after_s = rng.choice((0.0, 0.0, round(rng.uniform(0.0, 0.02), 4)))
        return When(kind, nth=nth, after_s=after_s, maybe=True, where=conditions)

    @property
    def clients(self) -> list[str]:
        """All clients so far."""
        return [*self.writers, *self.others]

    def bookie(self) -> str:
        """Any bookie."""
        return self.rng.choice(self.cluster.bookie_names)

    def client(self) -> str:
        """Any client."""
        return self.rng.choice(self.clients)

    def way(self) -> faults.Way:
        """Any direction."""
        return self.rng.choice(list(faults.Way))


_MOMENTS: Final[tuple[tuple[str, tuple[Condition, ...]], ...]] = (
    (Kind.APP_ACK, ()),
    (Kind.BK_STORE, ()),
    (Kind.ADD_SEND, ()),
    (Kind.ADD_RESP, ()),
    (Kind.BK_STORE, (Condition("recovery", value=True),)),
    (Kind.ADD_SEND, (Condition("recovery", value=True),)),
    (Kind.REC_DECIDE, ()),
    (Kind.REC_DECIDE, (Condition("verdict", "negative"),)),
    (Kind.REC_START, ()),
    (Kind.REC_READ_RESP, ()),
    (Kind.META_CAS, (Condition("cause", "create"),)),
    (Kind.META_CAS, (Condition("cause", "ensemble"),)),
    (Kind.META_CAS, (Condition("cause", "recover"),)),
    (Kind.META_CAS, (Condition("cause", "delete"),)),
    (Kind.FENCE_SET, ()),
    (Kind.CLOSE_START, ()),
    (Kind.BK_CRASH, ()),
    (Kind.CLIENT_CRASH, ()),
)
_MOMENTS_OF_LOGS: Final[tuple[tuple[str, tuple[Condition, ...]], ...]] = tuple(
    (kind, ())
    for kind in (
        *(Kind.LOG_CLAIM, Kind.LOG_APPEND, Kind.LOG_END, Kind.LOG_PUB, Kind.LOG_ACK, Kind.LOG_READ, Kind.LOG_CURSOR),
        *(Kind.LOG_COMPACT, Kind.LOG_TRIM, Kind.LOG_RELEASE),
    )
)
