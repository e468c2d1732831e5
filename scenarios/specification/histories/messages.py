"""Requests that clients sent, and what bookies answered."""

from __future__ import annotations

from dataclasses import dataclass

from scenarios.specification.histories.values import require

__all__ = ["RecordedMessages", "RecordedRequest"]


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A request; ``owner`` is the client that sent it, as an object, and ``content`` the entry's where it is an add."""

    owner: object
    bookie: str
    operation: str
    entry: int
    content: int | None = None


class RecordedMessages:
    """All requests of one ledger. Messages may be lost, delayed and repeated, as in the specification, but not invented."""

    def __init__(self, recording: set[str]) -> None:
        #: Bookies that tell what arrives; of the others nothing is known but what clients hear.
        self._recording = recording
        self._sent: dict[tuple[str, int], RecordedRequest] = {}
        self._contents: dict[tuple[str, str, str, int], set[int | None]] = {}
        self._answers: dict[tuple[str, str, str, int], set[int]] = {}

    def send(self, actor: str, number: int | None, asked: RecordedRequest) -> None:
        """A client sends a request."""
        self._contents.setdefault((actor, asked.bookie, asked.operation, asked.entry), set()).add(asked.content)
        if number is not None:
            self._sent[actor, number] = asked

    def asked(self, actor: str, number: int | None) -> RecordedRequest | None:
        """The request of this number; None if it is not known."""
        return None if number is None else self._sent.get((actor, number))

    def arrives(self, source: str, bookie: str, operation: str, entry: int) -> None:
        """A request arrives: somebody has sent it."""
        self._recording.add(bookie)
        require((source, bookie, operation, entry) in self._contents, f"{operation} {entry} of {source} was never sent")

    def contents(self, source: str, bookie: str, operation: str, entry: int) -> set[int | None]:
        """What an add of this entry holds, as it was sent there."""
        return self._contents.get((source, bookie, operation, entry), set())

    def answer(self, source: str, bookie: str, operation: str, entry: int, code: int) -> None:
        """A bookie answers."""
        self._answers.setdefault((source, bookie, operation, entry), set()).add(code)

    def hears(self, actor: str, bookie: str, operation: str, entry: int, code: int) -> None:
        """A client hears from a bookie: this has answered so."""
        require(
            bookie not in self._recording or code in self._answers.get((actor, bookie, operation, entry), ()),
            f"{bookie} has not answered {operation} {entry} so (code {code})",
        )
