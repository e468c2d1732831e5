"""The actions of bookies."""

from __future__ import annotations

from typing import NamedTuple

from bkclient.errors import Code
from scenarios.exhaustive.automata import Ask
from scenarios.machines.bookies import MachineBookie, StoredEntry
from scenarios.specification.writing import require

__all__ = ["Request", "bookie_step"]


class Request(NamedTuple):
    """A request, who sent it, and the answer."""

    ask: Ask
    of_writer: bool
    code: int
    entry: StoredEntry | None


def bookie_step(before: MachineBookie, after: MachineBookie, request: Request) -> tuple[str, ...]:
    """The action that a bookie takes; a bookie that is down takes none, and the request is lost."""
    ask, of_writer, code, entry = request
    if not before.is_up:
        require((after.entries, after.is_fenced) == (before.entries, before.is_fenced), "a bookie that is down changes")
        require(code == Code.BOOKIE_NOT_AVAILABLE, "a bookie that is down answers")
        return ("loses a request",)
    if ask.add is not None:
        require(after.is_fenced == before.is_fenced, "an add changes a fence")
        if before.is_fenced and of_writer:
            require(
                code == Code.LEDGER_FENCED and after.entries == before.entries,
                "a fenced bookie stores the writer's entry",
            )
            return ("BookieSendsAddFencedResponse",)
        require(
            code == Code.OK and after.entries.keys() == {*before.entries, ask.entry_id}, "an add stores another entry"
        )
        require(after.entries[ask.entry_id].payload == ask.add.payload, "an add stores other bytes")
        return ("BookieSendsAddConfirmedResponse",)
    require(after.entries == before.entries, "a read changes entries")
    require(after.is_fenced == (before.is_fenced or ask.fence), "a fence is not kept, or came from nowhere")
    if ask.kind == "fence":
        last = before.entries.get(max(before.entries, default=-1))
        told = None if entry is None else entry.last_add_confirmed
        require(
            told == (None if last is None else last.last_add_confirmed),
            "a bookie tells another LAC than that of its last entry",
        )
        return ("BookieSendsFencingReadLacResponse",)
    require((code == Code.OK) == (ask.entry_id in before.entries), "a bookie denies what it has, or has what it denies")
    return ("BookieSendsReadResponse",)
