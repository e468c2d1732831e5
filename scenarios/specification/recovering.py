"""The actions of a recovery."""

from __future__ import annotations

from dataclasses import replace

from bkclient.errors import Code
from bkclient.ledger import BookieId, LedgerState
from scenarios.exhaustive.automata import Answered, Told
from scenarios.exhaustive.configuration import SmallCluster
from scenarios.specification.values import ClientStatus, Phase, SpecifiedClient, fragments_of, write_set
from scenarios.specification.writing import (
    NO_NOTICE,
    Observed,
    adds_sent,
    changes_ensemble,
    confirms,
    is_own_write,
    learns,
    require,
    sends,
)

__all__ = ["recovery_begins", "recovery_step"]


def recovery_begins(observed: Observed) -> tuple[str, ...]:
    """The first step: a recovery asks for the ledger to be marked, unless it finds it marked or closed."""
    require(not observed.asks, "a recovery sends something before the ledger is marked")
    if observed.after.status is ClientStatus.CLOSED:
        return ("finds the ledger closed",)
    return ("begins", *_writes(observed.after, observed))


def recovery_step(cluster: SmallCluster, observed: Observed) -> tuple[str, ...]:
    """The actions that a step of a recovery consists of."""
    if observed.is_nothing:
        return (NO_NOTICE,)
    before, after, stimulus = observed.before, observed.after, observed.stimulus
    require(not before.has_ended, f"a recovery that is {before.status.value} acts")
    learns(observed)
    if after.status is ClientStatus.ABORTED:
        require(not observed.asks and not observed.updates, "a recovery that gives up sends nothing")
        return ("gives up",)
    if isinstance(stimulus, Told):
        names = _is_told(observed, stimulus)
    else:
        assert isinstance(stimulus, Answered), "a recovery has no application"
        names = _hears(cluster, observed, stimulus)
    if after.has_ended:
        require(not observed.asks and not observed.updates, "a recovery that has ended sends something")
        return names
    return (*names, *_writes(after, observed))


def _is_told(observed: Observed, told: Told) -> tuple[str, ...]:
    before, after, value = observed.before, observed.after, told.value
    if after.status is ClientStatus.CLOSED:
        return ("RecoveryClientClosesLedger" if is_own_write(observed, told) else "finds the ledger closed",)
    if before.phase is Phase.NOT_STARTED and after.phase is Phase.FENCING:
        require(after.is_marked, "fencing begins before the ledger is marked")
        known = before.version, before.fragments, before.is_marked
        if value is not None:
            known = value.version, fragments_of(value.metadata), value.metadata.state is LedgerState.IN_RECOVERY
        require(
            (after.version, after.fragments, after.is_marked) == known, "the metadata are not those that it was told"
        )
        ensemble = after.ensemble
        require(after.recovery_ensemble == ensemble, "the recovery reads from others than the last ensemble")
        require(all(ask.fence for ask in sends(observed.asks, "fence", -1, ensemble)), "a fencing read does not fence")
        require(len(observed.asks) == len(ensemble), "something else is sent")
        return ("ClientStartsRecovery",)
    same = replace(after, version=before.version, is_marked=before.is_marked, stored=before.stored)
    same = replace(same, fragments=before.fragments)
    require(same == before and not observed.asks, "an answer changes something else")
    return ("asks the metadata store again",)


def _hears(cluster: SmallCluster, observed: Observed, heard: Answered) -> tuple[str, ...]:
    kind = heard.ask.kind
    if kind == "fence":
        return _hears_of_fence(cluster, observed, heard)
    if kind == "read":
        return _hears_of_read(cluster, observed, heard)
    if kind == "add":
        return _hears_of_add(cluster, observed, heard)
    same = replace(observed.after, denied=observed.before.denied)
    require(kind == "measure" and same == observed.before and not observed.asks, "a measuring read changes something")
    return ("learns the length",)


# Fencing -----------------------------------------------------------------------------------------------------------


def _is_covered(cluster: SmallCluster, client: SpecifiedClient, fenced: frozenset[BookieId]) -> bool:
    """``HasQuorumCoverage`` for every write set: no ack quorum of it is unfenced."""
    size = len(client.recovery_ensemble)
    write_sets = [write_set(cluster, client.recovery_ensemble, first) for first in range(size)]
    return all(sum(b in fenced for b in members) > cluster.write_quorum - cluster.ack_quorum for members in write_sets)


def _hears_of_fence(cluster: SmallCluster, observed: Observed, heard: Answered) -> tuple[str, ...]:
    before, after = observed.before, observed.after
    require(before.phase is Phase.FENCING, "an answer to a fence after fencing changes something")
    is_fenced = heard.code in {Code.OK, Code.NO_SUCH_ENTRY, Code.NO_SUCH_LEDGER}
    fenced = before.fenced | {heard.ask.bookie_id} if is_fenced else before.fenced
    told = heard.entry.last_add_confirmed if heard.code == Code.OK and heard.entry is not None else -1
    lac = max(before.lac, told)
    require((after.lac, after.lap) == (lac, lac), f"the LAC is {after.lac}, and {lac} was found")
    require(after.fragments == before.fragments, "the fragments changed while fencing")
    if after.phase is Phase.FENCING:
        require(
            after == replace(before, fenced=fenced, lac=lac, lap=lac) and not observed.asks, "something else changed"
        )
        return ("ClientReceivesFencingReadLacResponse",)
    require(_is_covered(cluster, before, fenced), f"reading begins with {sorted(fenced)} fenced")
    _reads_next(cluster, observed)
    return "ClientReceivesFencingReadLacResponse", "ClientSendsRecoveryReadRequests"


# Reading -----------------------------------------------------------------------------------------------------------


def _reads_next(cluster: SmallCluster, observed: Observed) -> None:
    """``ClientSendsRecoveryReadRequests``: the next entry is read, with fences, where it was when the recovery began."""
    after, entry_id = observed.after, observed.after.lap + 1
    require(after.last_recoverable is None, "it reads on after the end")
    reads = sends(observed.asks, "read", entry_id, write_set(cluster, after.recovery_ensemble, entry_id))
    require(all(ask.fence for ask in reads), "a recovery read does not fence")
    require(
        len([ask for ask in observed.asks if ask.kind == "read"]) == len(reads), "it reads several entries at a time"
    )


def _hears_of_read(cluster: SmallCluster, observed: Observed, heard: Answered) -> tuple[str, ...]:
    before, after, entry_id = observed.before, observed.after, heard.ask.entry_id
    require(before.last_recoverable is None, "an answer to a read after the end changes something")
    this = frozenset({(entry_id, heard.ask.bookie_id)}) if heard.code == Code.NO_SUCH_ENTRY else frozenset()
    denied = before.denied | this
    name = "ClientReceivesRecoveryReadResponse"
    if after.lap > before.lap:
        require(heard.code == Code.OK and heard.entry is not None, "an entry is recovered that nobody has sent")
        require(entry_id == after.lap == before.lap + 1, "entries are not recovered one after the other")
        require(after.pending == before.pending | {entry_id}, "what was read is not written back")
        require((after.lac, after.fragments) == (before.lac, before.fragments), "something else changed")
        adds_sent(observed, before.lac, {entry_id: write_set(cluster, after.ensemble, entry_id)})
        adds = [ask.add for ask in observed.asks if ask.kind == "add" and ask.add is not None]
        require(
            all(heard.entry is not None and add.payload == heard.entry.payload for add in adds),
            "other bytes are written back",
        )
        _reads_next(cluster, observed)
        return name, "ClientWritesBackEntry", "ClientSendsRecoveryReadRequests"
    same = replace(after, denied=before.denied, last_recoverable=None)
    require(same == replace(before, last_recoverable=None), "something else changed")
    require(not [ask for ask in observed.asks if ask.kind != "measure"], "something is sent although nothing was found")
    if after.last_recoverable is not None:
        deniers = {b for e, b in denied if e == entry_id} & set(write_set(cluster, before.recovery_ensemble, entry_id))
        needed = cluster.write_quorum - cluster.ack_quorum + 1
        require(len(deniers) >= needed, f"entry {entry_id} is ruled out by {sorted(deniers)}")
        require(after.last_recoverable == before.lap == entry_id - 1, "the end is not below what was ruled out")
    return (name,)


# Writing back ------------------------------------------------------------------------------------------------------


def _hears_of_add(cluster: SmallCluster, observed: Observed, heard: Answered) -> tuple[str, ...]:
    before, after = observed.before, observed.after
    require(after.last_recoverable == before.last_recoverable, "an answer to an add finds the end")
    if heard.code == Code.OK:
        confirms(cluster, observed, heard.ask)
        if any(ask.kind == "read" for ask in observed.asks):
            _reads_next(cluster, observed)
            return "RecoveryClientReceivesAddConfirmedResponse", "ClientSendsRecoveryReadRequests"
        return ("RecoveryClientReceivesAddConfirmedResponse",)
    if after.fragments != before.fragments:
        changes_ensemble(cluster, observed)
        return "RecoveryClientChangesEnsemble", "RecoveryClientSendsPendingAddOp"
    this = {(heard.ask.entry_id, heard.ask.bookie_id)}
    require(after in {before, replace(before, confirmed=before.confirmed - this)}, "a failure changes something")
    require(not observed.asks, "a failure makes something be sent")
    return ("does without a bookie",)


# Metadata ----------------------------------------------------------------------------------------------------------


def _writes(client: SpecifiedClient, observed: Observed) -> tuple[str, ...]:
    """What it asks to write is what ``ClientStartsRecovery`` or ``RecoveryClientClosesLedger`` would write now."""
    for write in observed.writes:
        metadata = write.metadata
        require(write.version == client.version + 1, "a write does not follow the version that the client knows")
        require(fragments_of(metadata) == client.fragments, "the fragments are others")
        if metadata.is_closed:
            require(client.phase is Phase.READ_WRITE and not client.pending, "it closes with entries pending")
            require(
                metadata.last_entry_id == client.last_recoverable == client.lac,
                f"it closes at {metadata.last_entry_id}",
            )
        else:
            require(client.phase is Phase.NOT_STARTED, "the ledger is marked again")
            require(metadata.state is LedgerState.IN_RECOVERY, f"a recovery makes the ledger {metadata.state.name}")
    return ("asks for its metadata to be stored",) * bool(observed.writes)
