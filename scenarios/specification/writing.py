"""The actions of the writer, and those that writers and recoveries have in common.

A check of a step raises :class:`~scenarios.specification.values.NotSpecifiedError`, or returns the names of the actions that the
step consists of.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

from bkclient.errors import Code
from bkclient.ledger import BookieId, Ensemble, LedgerState, Versioned
from bkclient.protocol.adds import NewEntry
from scenarios.exhaustive.automata import APPEND, CLOSE, Answered, Ask, AskStore, Stimulus, Told
from scenarios.exhaustive.configuration import SmallCluster
from scenarios.specification.values import (
    ClientStatus,
    Fragments,
    NotSpecifiedError,
    SpecifiedClient,
    fragments_of,
    write_set,
)

__all__ = [
    "Observed",
    "adds_sent",
    "changes_ensemble",
    "confirms",
    "is_own_write",
    "learns",
    "require",
    "sends",
    "writer_step",
]

NO_NOTICE: Final = "takes no notice"


@dataclass(frozen=True, slots=True)
class Observed:
    """One step of a client: what it was like before, what it heard, what it sent, and what it is like after.

    ``written`` is what it was writing to the metadata store before, by the number of the update. ``failed`` are the bookies that
    it has an error of, the one in ``stimulus`` included.
    """

    before: SpecifiedClient
    stimulus: Stimulus
    asks: tuple[Ask, ...]
    updates: tuple[AskStore, ...]
    after: SpecifiedClient
    written: dict[int, Versioned]
    failed: frozenset[BookieId]

    @property
    def is_nothing(self) -> bool:
        """Whether the client took no notice: the specification may lose any message."""
        return self.before == self.after and not self.asks and not self.updates

    @property
    def writes(self) -> list[Versioned]:
        """What it asks the metadata store to write."""
        return [update.write for update in self.updates if update.write is not None]


def require(holds: bool, what: str) -> None:  # noqa: FBT001
    """Raise unless ``holds``."""
    if not holds:
        raise NotSpecifiedError(what)


def learns(observed: Observed) -> None:
    """What a client knows of the end of the ledger, the metadata store has told it."""
    before, after, told = observed.before, observed.after, observed.stimulus
    value = told.value if isinstance(told, Told) else None
    end = value.metadata.last_entry_id if value is not None and value.metadata.is_closed else None
    if after.status is ClientStatus.CLOSED:
        require(
            before.known_end is not None or end is not None,
            "a client takes the ledger for closed, and nobody said so",
        )
    elif not after.has_ended and after.known_end != before.known_end:
        require(after.known_end == end, "a client knows an end that it was not told")


def is_own_write(observed: Observed, told: Told) -> bool:
    """Whether the metadata store answers that it stored what the client wanted."""
    return told.value is not None and told.value == observed.written.get(told.number)


# What is sent ------------------------------------------------------------------------------------------------------


def sends(asks: Iterable[Ask], kind: str, entry_id: int, bookies: Collection[BookieId]) -> list[Ask]:
    """Those of ``asks`` of this kind about this entry; they must go to ``bookies``, once to each."""
    found = [ask for ask in asks if (ask.kind, ask.entry_id) == (kind, entry_id)]
    require(sorted(ask.bookie_id for ask in found) == sorted(bookies), f"{kind} {entry_id} is not sent to {bookies}")
    return found


def adds_sent(observed: Observed, lac: int, bookies_of: dict[int, Collection[BookieId]]) -> None:
    """The adds sent are those of these entries to these bookies, and none tells a LAC above ``lac``."""
    for entry_id, bookies in bookies_of.items():
        for ask in sends(observed.asks, "add", entry_id, bookies):
            entry: NewEntry | None = ask.add
            require(entry is not None and entry.entry_id == entry_id, "an add has its entry")
            require(
                entry is None or entry.last_add_confirmed <= lac, "an entry tells a LAC that its client has not reached"
            )
    others = [ask for ask in observed.asks if ask.kind == "add" and ask.entry_id not in bookies_of]
    require(not others, f"adds of other entries are sent: {others}")


# Answers to adds ---------------------------------------------------------------------------------------------------


def _contiguous(cluster: SmallCluster, client: SpecifiedClient, confirmed: Collection[tuple[int, BookieId]]) -> int:
    """The highest entry with an ack quorum whose predecessors have one (``MaxContiguousConfirmedEntry``)."""
    last = client.lac
    while sum(entry_id == last + 1 for entry_id, _ in confirmed) >= cluster.ack_quorum:
        last += 1
    return last


def _advances(
    cluster: SmallCluster, before: SpecifiedClient, after: SpecifiedClient, confirmed: frozenset[tuple[int, BookieId]]
) -> None:
    """With ``confirmed`` the LAC goes as far as it may, or waits; what it passes is not pending any more."""
    may = _contiguous(cluster, before, confirmed)
    require(before.lac <= after.lac <= may, f"the LAC went from {before.lac} to {after.lac}, and may go to {may}")
    require(
        after.pending == {e for e in before.pending if e > after.lac},
        "entries are pending that are confirmed, or are not",
    )
    require(after.confirmed == {(e, b) for e, b in confirmed if e > after.lac}, "confirmations appeared, or got lost")


def confirms(cluster: SmallCluster, observed: Observed, ask: Ask) -> None:
    """``ReceiveAddConfirmedResponse``: the bookie counts for the entry, and the LAC may go on.

    Ours does not move the LAC while an ensemble change is being stored.
    """
    before, after = observed.before, observed.after
    confirmed = before.confirmed
    if ask.entry_id in before.pending and ask.bookie_id in write_set(cluster, before.ensemble, ask.entry_id):
        confirmed |= {(ask.entry_id, ask.bookie_id)}
    _advances(cluster, before, after, confirmed)
    require(after.fragments == before.fragments, "the fragments changed with an answer")
    require(
        not [one for one in observed.asks if one.kind == "add"], "an answer that confirms makes nothing be sent again"
    )


# Ensemble changes --------------------------------------------------------------------------------------------------


def updated(fragments: Fragments, first_entry_id: int, ensemble: Ensemble) -> Fragments:
    """``UpdatedFragments``: the last fragment is replaced if the new one begins with the same entry."""
    kept = fragments[:-1] if fragments[-1][0] == first_entry_id else fragments
    return (*kept, (first_entry_id, ensemble))


def new_fragments(
    client: SpecifiedClient, fragments: Fragments, failed: Collection[BookieId]
) -> dict[BookieId, BookieId]:
    """``ChangeEnsemble``: these fragments may follow; returns the replacements by position.

    The new one begins after the LAC. Bookies that are replaced have failed. Those that come in are not there already; one that
    was replaced earlier may return.
    """
    ensemble = fragments[-1][1]
    require(
        fragments == updated(client.fragments, client.lac + 1, ensemble),
        f"{fragments} do not follow {client.fragments}",
    )
    replaced = {old: new for old, new in zip(client.ensemble, ensemble, strict=True) if old != new}
    require(bool(replaced), "nobody is replaced")
    require(replaced.keys() <= set(failed), f"{sorted(replaced)} are replaced, and {sorted(failed)} failed")
    require(
        not set(replaced.values()) & set(client.ensemble), "a bookie comes in that is there already, or is replaced"
    )
    require(len(set(ensemble)) == len(ensemble), "a bookie is in the ensemble twice")
    return replaced


def changes_ensemble(cluster: SmallCluster, observed: Observed) -> None:
    """``ChangeEnsemble`` takes effect, and ``ResendPendingAddOp`` for everything that is pending.

    Entries with their quorum are done at once, which ours had put off; whether they go to the new bookies too does not matter.
    """
    before, after = observed.before, observed.after
    replaced = new_fragments(before, after.fragments, observed.failed)
    confirmed = frozenset((e, b) for e, b in before.confirmed if b not in replaced)
    _advances(cluster, before, after, confirmed)
    resent: dict[int, Collection[BookieId]] = {}
    for entry_id in sorted(before.pending):
        newcomers = [b for b in write_set(cluster, after.ensemble, entry_id) if b in replaced.values()]
        is_sent = any(ask.kind == "add" and ask.entry_id == entry_id for ask in observed.asks)
        resent[entry_id] = newcomers if is_sent or entry_id in after.pending else ()
    adds_sent(observed, before.lac, resent)


# The writer --------------------------------------------------------------------------------------------------------


def writer_step(cluster: SmallCluster, observed: Observed) -> tuple[str, ...]:
    """The actions that a step of the writer consists of."""
    if observed.is_nothing:
        return (NO_NOTICE,)
    before, after, stimulus = observed.before, observed.after, observed.stimulus
    if before.status is ClientStatus.WITHDRAWN and stimulus == CLOSE:
        require(after.lac == before.lac and not after.pending and not observed.asks, "a close changes something else")
        return ("closes after it failed", *_writer_writes(after, observed))
    if before.has_ended:
        require(
            not observed.asks and not observed.writes and after.status is before.status, "a writer that has ended acts"
        )
        return ("lets an update end",)
    learns(observed)
    require(not [ask for ask in observed.asks if ask.kind != "add"], "a writer sends adds only")
    if stimulus == APPEND:
        names = _appends(cluster, observed)
    elif stimulus == CLOSE:
        names = _begins_to_close(observed)
    elif isinstance(stimulus, Answered):
        names = _hears(cluster, observed, stimulus)
    else:
        assert isinstance(stimulus, Told), "there are four kinds of stimuli"
        names = _is_told(cluster, observed, stimulus)
    if after.status is ClientStatus.OPEN:
        return (*names, *_writer_writes(after, observed))
    require(not observed.writes, "a writer that has ended writes metadata")
    return names


def _without_pending(client: SpecifiedClient) -> SpecifiedClient:
    return replace(client, lap=client.lac, pending=frozenset(), confirmed=frozenset())


def _appends(cluster: SmallCluster, observed: Observed) -> tuple[str, ...]:
    before, entry_id = observed.before, observed.before.lap + 1
    expected = replace(before, lap=entry_id, pending=before.pending | {entry_id})
    require(observed.after == expected, "an append adds one entry")
    adds_sent(observed, before.lac, {entry_id: write_set(cluster, before.ensemble, entry_id)})
    return ("ClientSendsAddEntryRequests",)


def _begins_to_close(observed: Observed) -> tuple[str, ...]:
    before, after = observed.before, observed.after
    require(
        after in {before, _without_pending(before)} and not observed.asks,
        "a close changes something else",
    )
    return ("gives up what is pending",)


def _hears(cluster: SmallCluster, observed: Observed, heard: Answered) -> tuple[str, ...]:
    before, after = observed.before, observed.after
    if after.status is ClientStatus.WITHDRAWN:
        require(after.lac == before.lac and not observed.asks, "a writer that withdraws confirms nothing")
        return ("ClientReceivesAddFencedResponse" if heard.code == Code.LEDGER_FENCED else "withdraws",)
    if heard.code == Code.OK:
        confirms(cluster, observed, heard.ask)
        return ("ClientReceivesAddConfirmedResponse",)
    require(not observed.asks, "a failure makes something be sent before the ensemble has changed")
    if after == _without_pending(before):
        refused = ("ClientReceivesAddFencedResponse",) * (heard.code == Code.LEDGER_FENCED)
        return (*refused, "gives up what is pending")
    this = {(heard.ask.entry_id, heard.ask.bookie_id)}
    require(after in {before, replace(before, confirmed=before.confirmed - this)}, "a failure changes something")
    return ("notes a failure",)


def _is_told(cluster: SmallCluster, observed: Observed, told: Told) -> tuple[str, ...]:
    before, after, value = observed.before, observed.after, told.value
    if after.status is ClientStatus.WITHDRAWN:
        require(not observed.asks, "a writer that withdraws sends nothing")
        return ("ClientClosesLedgerFail",)
    if after.status is ClientStatus.CLOSED:
        if not is_own_write(observed, told):
            return ("finds the ledger closed",)
        assert value is not None, "what was written is what was told"
        require(value.metadata.last_entry_id == before.lac, "the writer closed above or below its LAC")
        return ("ClientClosesLedgerSuccess",)
    if after.known_end is not None and before.known_end is None:
        # What is pending fails; the end, which is not below its LAC, is all that is left to know.
        require(
            before.lac <= after.lac == after.lap == after.known_end, "a writer takes another end than the stored one"
        )
        require(not after.pending and not observed.asks, "a writer goes on although the ledger is closed")
        return ("ClientClosesLedgerFail",)
    told_of = before.stored if value is None else fragments_of(value.metadata)
    require(after.stored in {before.stored, told_of}, "a writer knows fragments that nobody told it")
    if after.fragments != before.fragments:
        require(after.fragments == after.stored, "fragments are used that are not stored")
        changes_ensemble(cluster, observed)
        return ("ClientChangesEnsemble", "ClientResendsPendingAddOp")
    same = replace(after, version=before.version, is_marked=before.is_marked, stored=before.stored)
    require(
        same in {before, _without_pending(before)} and not observed.asks,
        "an answer changes something else",
    )
    return ("asks the metadata store again",)


def _writer_writes(client: SpecifiedClient, observed: Observed) -> tuple[str, ...]:
    """What it asks to write is what ``ClientChangesEnsemble`` or ``ClientClosesLedgerSuccess`` would write now."""
    for write in observed.writes:
        metadata = write.metadata
        require(write.version == client.version + 1, "a write does not follow the version that the client knows")
        if metadata.is_closed:
            require(
                metadata.last_entry_id == client.lac,
                f"it closes at {metadata.last_entry_id}, and its LAC is {client.lac}",
            )
            require(fragments_of(metadata) == client.stored, "a close changes the fragments")
            require(not client.pending, "it closes with entries pending")
        else:
            require(metadata.state is LedgerState.OPEN, f"a writer makes the ledger {metadata.state.name}")
            new_fragments(client, fragments_of(metadata), observed.failed)
    return ("asks for its metadata to be stored",) * bool(observed.writes)
