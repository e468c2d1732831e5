"""The actions of bookies, and what happens to bookies that the specification does not know."""

from __future__ import annotations

from typing import Any, Final

from scenarios.specification.histories.messages import RecordedMessages
from scenarios.specification.histories.values import DENIALS, FENCED, OK, require

__all__ = ["RecordedBookie"]

_ADDS: Final = frozenset({"add", "write-back"})

#: Who asks, what for, and the entry.
_Key = tuple[str, str, int]


class _Arrived:
    """A request that has arrived and was not answered yet, and what could be answered since it fenced the bookie."""

    __slots__ = ("entry", "key", "lacked", "lacs", "request")

    def __init__(self, key: _Key, request: int | None) -> None:
        self.key = key
        self.request = request
        self.entry = key[2]
        self.lacked = False
        self.lacs: set[int] = set()


class RecordedBookie:
    """One bookie, and what it has of one ledger."""

    def __init__(self, name: str, messages: RecordedMessages) -> None:
        self.name = name
        self._messages = messages
        self._entries: dict[int, tuple[int | None, int]] = {}
        #: Entries that were lost, or are not what was stored any more; a bookie may still answer with them.
        self._lost: set[int] = set()
        self._is_fenced = False
        #: Whether the fence is on disk; and whether there may be one that a crash left behind.
        self._is_durable = False
        self._may_be_fenced = False
        self._arrived: list[_Arrived] = []
        self._told_lacs: dict[str, set[int]] = {}
        #: Clients that were told of a last entry when entries were lost or altered here.
        self._misled: set[str] = set()

    # Requests --------------------------------------------------------------------------------------------------------

    def arrives(self, fields: dict[str, Any]) -> tuple[str, ...]:
        """BK_RECV."""
        source, operation, entry = key = fields["source"], fields["operation"], fields["entry"]
        if operation == "read":
            return ()
        self._messages.arrives(source, self.name, operation, entry)
        arrived = _Arrived(key, fields["request"])
        self._arrived.append(arrived)
        self._look(arrived)
        return ()

    def _look(self, arrived: _Arrived) -> None:
        """What a fenced bookie could answer now."""
        if self._is_fenced or self._may_be_fenced:
            arrived.lacked = arrived.lacked or arrived.entry not in self._entries
        last = max(self._entries, default=None)
        arrived.lacs.add(-1 if last is None else self._entries[last][1])

    def _look_again(self) -> None:
        for arrived in self._arrived:
            self._look(arrived)

    def stores(self, fields: dict[str, Any]) -> tuple[str, ...]:
        """BK_STORE, the first half of ``BookieSendsAddConfirmedResponse``."""
        entry, source = fields["entry"], fields["source"]
        operation = "write-back" if fields["recovery"] else "add"
        fenced = self._is_fenced and not fields["recovery"]
        contents = self._messages.contents(source, self.name, operation, entry)
        self._lost.discard(entry)
        self._entries[entry] = fields["content"], -1 if fields["lac"] is None else fields["lac"]
        self._look_again()
        require(bool(contents), f"entry {entry} of {source} is stored, and was never sent")
        require(
            None in contents or fields["content"] is None or fields["content"] in contents,
            f"entry {entry} is stored with other bytes than {source} sent",
        )
        require(not fenced, f"a fenced bookie stores entry {entry} of the writer")
        return ()

    def answers(self, fields: dict[str, Any]) -> tuple[str, ...]:
        """BK_ANSWER."""
        source, code = fields["source"], fields["code"]
        operation, entry = fields["operation"], fields["entry"]
        if operation == "read":
            return ()
        arrived = self._taken((source, operation, entry), fields["request"])
        self._messages.answer(source, self.name, operation, entry, code)
        require(bool(arrived), f"{operation} {entry} of {source} is answered, and has not arrived")
        if operation in _ADDS:
            return self._answers_add(operation, entry, code)
        if operation == "fence":
            self._told_lacs.setdefault(source, set()).update(*(one.lacs for one in arrived))
            if self._lost:
                self._misled.add(source)
        if code != OK and code not in DENIALS:
            return ("loses a request",)
        require(self._is_fenced or self._may_be_fenced, f"{operation} {entry} is answered without a fence")
        if operation == "fence":
            return ("BookieSendsFencingReadLacResponse",)
        if code == OK and entry in self._lost:
            return ("answers with an altered copy",)
        if code == OK:
            require(entry in self._entries, f"entry {entry} is answered, and is not there")
        else:
            require(any(one.lacked for one in arrived), f"entry {entry} is denied, and is there")
        return ("BookieSendsReadResponse",)

    def _answers_add(self, operation: str, entry: int, code: int) -> tuple[str, ...]:
        if code == FENCED:
            require(operation == "add", "what a recovery writes back is refused")
            require(self._is_fenced or self._may_be_fenced, "an add is refused without a fence")
            return ("BookieSendsAddFencedResponse",)
        if code != OK:
            return ("loses a request",)
        require(entry in {*self._entries, *self._lost}, f"entry {entry} is acknowledged, and is not there")
        return ("BookieSendsAddConfirmedResponse",)

    def _taken(self, key: _Key, request: int | None) -> list[_Arrived]:
        """Those that the answer may be to; the oldest of them goes. Where several are alike, merged histories have no numbers."""
        alike = [one for one in self._arrived if one.key == key]
        same = [one for one in alike if one.request == request] or [
            one for one in alike if request is None or one.request is None
        ]
        if same:
            self._arrived.remove(same[0])
        return same

    def told_lacs(self, source: str) -> set[int]:
        """The LACs that the bookie could tell ``source`` with a fence; none are known of one that lost entries."""
        return set() if self._lost or source in self._misled else self._told_lacs.get(source, set())

    # Fences ----------------------------------------------------------------------------------------------------------

    def fences(self, fields: dict[str, Any]) -> tuple[str, ...]:
        """FENCE_SET, the first half of a fencing read."""
        was_fenced = self._is_fenced or self._may_be_fenced
        self._is_fenced, self._may_be_fenced = True, False
        self._is_durable = self._is_durable or fields["durable"]
        self._look_again()
        asking = any(one.key[1] in {"fence", "recovery-read"} for one in self._arrived)
        if not fields["source"]:
            return ("fences by itself",)
        require(was_fenced or asking, "a fence comes from nowhere")
        return ()

    # What the specification does not know ----------------------------------------------------------------------------

    def crashes(self) -> None:
        """BK_CRASH: requests are lost, and a fence may be that is not on disk."""
        self._arrived.clear()
        if self._is_fenced and not self._is_durable:
            self._is_fenced, self._may_be_fenced = False, True

    def forgets(self) -> tuple[str, ...]:
        """FENCE_LOST."""
        self._is_fenced = self._is_durable = self._may_be_fenced = False
        return ("forgets its fence",)

    def loses(self, entry: int) -> tuple[str, ...]:
        """BK_LOSS."""
        self._entries.pop(entry, None)
        self._lost.add(entry)
        self._look_again()
        return ("loses an entry",)

    def collects(self) -> tuple[str, ...]:
        """BK_GC."""
        self._entries.clear()
        self._may_be_fenced = self._may_be_fenced or self._is_fenced
        self._is_fenced = self._is_durable = False
        self._look_again()
        return ("collects the ledger",)
