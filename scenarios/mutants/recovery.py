"""Defects of recovery: fencing, decisions, the first entry that it reads, and the end at which it closes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

import bkclient.protocol.recovery
from bkclient.errors import BookKeeperError, Code, NotEnoughBookies, error_for
from bkclient.ledger import BookieId, Ensemble
from bkclient.protocol.quorum import CoverageSet, QuorumSizes
from bkclient.protocol.recovery import RecoveryMachine, RecoveryPhase
from scenarios.mutants.base import Function, Mutant, Replacement, always
from scenarios.mutants.transports import WithoutFenceOnReads

__all__ = ["RECOVERY_MUTANTS"]

# ruff: noqa: SLF001 - a defect has no interface

_NO_ANSWER: Final = frozenset({int(Code.TIMEOUT), int(Code.BOOKIE_NOT_AVAILABLE)})


class _UnfencedPorts:
    """Ports that take the fence off every read."""

    def __init__(self, ports: Any) -> None:
        self._ports = ports

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ports, name)

    def send_read(self, entry_id: int, bookie_id: BookieId, *, fence: bool) -> None:
        del fence
        self._ports.send_read(entry_id, bookie_id, fence=False)


def _reading_without_fences(read_on: Function) -> Function:
    def mutated(self: RecoveryMachine, *arguments: Any) -> None:
        ports = self.ports
        self.ports = _UnfencedPorts(ports)
        try:
            read_on(self, *arguments)
        finally:
            self.ports = ports

    return mutated


def _taking_silence_for_a_denial(on_read_reply: Function) -> Function:
    def mutated(self: RecoveryMachine, bookie_id: BookieId, entry_id: int, code: int, *found: Any) -> None:
        on_read_reply(self, bookie_id, entry_id, Code.NO_SUCH_ENTRY if code in _NO_ANSWER else code, *found)

    return mutated


def _taking_rot_for_a_denial(on_read_reply: Function) -> Function:
    def mutated(self: RecoveryMachine, bookie_id: BookieId, entry_id: int, code: int, *found: Any) -> None:
        on_read_reply(self, bookie_id, entry_id, Code.NO_SUCH_ENTRY if code == Code.DIGEST_MATCH else code, *found)

    return mutated


def _covered_in_total(_original: Function) -> Function:
    def mutated(self: QuorumSizes, known: int) -> bool:
        return known.bit_count() >= self.write_quorum_size - self.ack_quorum_size + 1

    return mutated


def _start_at_found_lac(_original: Function) -> Function:
    return lambda found_lac, _first_entry_id: found_lac


def _close_at_once(_original: Function) -> Function:
    def mutated(self: RecoveryMachine) -> None:
        if self._end_found:
            self.adds.last_add_confirmed = self.adds.last_add_pushed
            self.adds.pending.clear()
            self._close()

    return mutated


def _close_at_the_lac(_original: Function) -> Function:
    def mutated(self: RecoveryMachine, found: Any) -> None:
        self._enter(RecoveryPhase.READING)
        self.adds.last_add_confirmed = found.last_add_confirmed
        self._close()

    return mutated


def _reading_from_replacements(switch: Function) -> Function:
    def mutated(self: RecoveryMachine, ensemble: Ensemble, positions: Iterable[int]) -> None:
        if self._reads is not None:
            self._reads._ensemble = ensemble
        switch(self, ensemble, positions)

    return mutated


def _closing_when_undecided(fail: Function) -> Function:
    def mutated(self: RecoveryMachine, code: int, why: str, **details: Any) -> None:
        if "ruled out" not in why:
            fail(self, code, why, **details)
            return
        self._end_found = True
        self._reads = None
        self._close_if_written_back()

    return mutated


def _with_an_advancing_lac(write_back: Function) -> Function:
    def mutated(self: RecoveryMachine, payload: bytes, length: int) -> None:
        self._frozen_lac = self.adds.last_add_confirmed
        write_back(self, payload, length)

    return mutated


class _AsIfGone:
    """Ports that tell of a failed recovery that there is no such ledger."""

    def __init__(self, ports: Any) -> None:
        self._ports = ports

    def recovery_finished(self, error: BookKeeperError) -> None:
        self._ports.recovery_finished(error_for(Code.NO_SUCH_LEDGER, str(error)))


def _told_as_gone(fail: Function) -> Function:
    def mutated(self: RecoveryMachine, code: int, *arguments: Any, **details: Any) -> None:
        ports = self.ports
        if code == Code.TIMEOUT:
            self.ports = _AsIfGone(ports)  # type: ignore[assignment]
        try:
            fail(self, code, *arguments, **details)
        finally:
            self.ports = ports

    return mutated


#: Positions that each recovery gave up; only a recovery that is planted with the defect notes any.
_given_up: Final[defaultdict[int, set[int]]] = defaultdict(set)


def _forgetting_what_was_given_up(start: Function) -> Function:
    def mutated(self: RecoveryMachine) -> None:
        _given_up[id(self)] = set()
        start(self)

    return mutated


def _noting_what_is_given_up(on_bookies_failed: Function) -> Function:
    def mutated(self: RecoveryMachine, failures: Mapping[int, BookieId]) -> None:
        _given_up[id(self)].update(failures)
        on_bookies_failed(self, failures)

    return mutated


def _counting_it_for_every_entry(do_without: Function) -> Function:
    def mutated(self: RecoveryMachine, error: NotEnoughBookies) -> None:
        failed = sum(1 << position for position in _given_up[id(self)])
        for entry_id, add in self.adds.pending.items():
            add.failed |= failed & sum(1 << position for position in self.sizes.write_set(entry_id))
        do_without(self, error)

    return mutated


RECOVERY_MUTANTS: Final = (
    Mutant(
        name="rot-counts-as-denial",
        summary="a copy whose digest does not match counts in recovery as if the bookie had denied the entry",
        clauses=("A1", "E3"),
        in_runs=True,
        past="M42",
        replaces=(Replacement(RecoveryMachine, "on_read_reply", _taking_rot_for_a_denial),),
    ),
    Mutant(
        name="recovery-reads-do-not-fence",
        summary="only the LAC phase of recovery fences; a bookie that denies an entry may store it afterwards (issue 2614)",
        clauses=("A1", "D3", "E5", "F5"),
        world="both-copies",
        in_runs=True,
        past="M01",
        wrap_transport=WithoutFenceOnReads,  # below the shell, so that histories tell these reads from ordinary ones
        replaces=(Replacement(RecoveryMachine, "_read_on", _reading_without_fences),),
    ),
    Mutant(
        name="recovery-takes-silence-for-denial",
        summary="a recovery read without an answer counts as a denial of the entry",
        clauses=("A1", "E3"),
        world="one-copy",
        in_runs=True,
        past="M02",
        replaces=(Replacement(RecoveryMachine, "on_read_reply", _taking_silence_for_a_denial),),
    ),
    Mutant(
        name="one-denial-decides",
        summary="recovery takes the first denial of an entry for the end",
        clauses=("A1", "E3"),
        world="either-copy",
        in_runs=True,
        past="M03",
        replaces=(Replacement(QuorumSizes, "negatives_to_deny", always(1)),),
    ),
    Mutant(
        name="recovery-reads-without-coverage",
        summary="recovery begins to read before enough bookies are fenced",
        clauses=("D4",),
        world="either-copy",
        in_runs=True,
        past="M04",
        replaces=(Replacement(CoverageSet, "is_covered", always(True)),),  # noqa: FBT003
    ),
    Mutant(
        name="coverage-counts-bookies-in-total",
        summary="fences are counted over a striped ensemble as a whole, instead of in every write set",
        clauses=("D4",),
        world="striped",
        in_runs=True,
        past="M05",
        replaces=(Replacement(QuorumSizes, "is_covered", _covered_in_total),),
    ),
    Mutant(
        name="recovery-closes-before-write-back",
        summary="recovery does not wait for the ack quorums of what it writes back",
        clauses=("B4", "E6"),
        world="both-copies",
        in_runs=True,
        past="M06",
        replaces=(Replacement(RecoveryMachine, "_close_if_written_back", _close_at_once),),
    ),
    Mutant(
        name="recovery-closes-at-found-lac",
        summary="recovery trusts the best LAC that it is told, and does not read on",
        clauses=("A1", "B6", "E7", "F5"),
        world="one-copy",
        in_runs=True,
        past="M07",
        replaces=(Replacement(RecoveryMachine, "_begin_reading", _close_at_the_lac),),
    ),
    Mutant(
        name="recovery-starts-below-last-fragment",
        summary="recovery trusts the LAC of bookies that joined with the last fragment and never saw the earlier ones "
        "(issue 2615)",
        clauses=("A1", "B9", "E1", "F5"),
        world="one-copy-2",
        in_runs=True,
        past="M08",
        replaces=(Replacement(bkclient.protocol.recovery, "starting_lac", _start_at_found_lac),),
    ),
    Mutant(
        name="recovery-reads-from-replacements",
        summary="recovery asks the bookies that it has put in the place of others for entries that they never got",
        clauses=("E2", "E3"),
        world="one-copy-3",
        in_runs=True,
        past="M09",
        replaces=(Replacement(RecoveryMachine, "_switch_ensemble", _reading_from_replacements),),
    ),
    Mutant(
        name="undecided-entry-ends-ledger",
        summary="recovery closes the ledger below an entry that it can neither find nor rule out",
        clauses=("A1", "E7", "E11"),
        world="either-copy",
        in_runs=True,
        past="M14",
        replaces=(Replacement(RecoveryMachine, "_fail", _closing_when_undecided),),
    ),
    Mutant(
        name="recovery-lac-advances",
        summary="what recovery writes back carries a LAC that advances with it, which a rival recovery may undo",
        clauses=("D6", "E9"),
        world="both-copies-rivals",
        in_runs=True,
        past="M36",
        replaces=(Replacement(RecoveryMachine, "_write_back", _with_an_advancing_lac),),
    ),
    Mutant(
        name="timeouts-are-told-as-a-missing-ledger",
        summary="the application of a recovery that met a timeout is told that there is no such ledger, and not to try again",
        clauses=("L8",),
        in_runs=True,
        past="M55",
        replaces=(Replacement(RecoveryMachine, "_fail", _told_as_gone),),
    ),
    Mutant(
        name="failed-bookie-counts-for-every-entry",
        summary="a recovery that has no spare bookie gives up entries that the failed bookie had stored already",
        clauses=("L10",),
        world="no-spare",
        in_runs=True,
        past="REC-28",
        replaces=(
            Replacement(RecoveryMachine, "start", _forgetting_what_was_given_up),
            Replacement(RecoveryMachine, "_on_bookies_failed", _noting_what_is_given_up),
            Replacement(RecoveryMachine, "_do_without", _counting_it_for_every_entry),
        ),
    ),
)
