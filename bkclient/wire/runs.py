"""Runs: adds that were sent one after the other, kept together until they are answered.

An add that waits for its answer by itself takes a place in a dict of each connection, the bytes of the acknowledgement as an
object, and a tuple. Adds that one turn of the event loop sends to one write set are acknowledged by each of its bookies in the
order in which they were sent, as a rule. So they are kept as that: the acknowledgements as the bytes in which they will
arrive, once for all connections of the write set, and beside them what has to be known of each add. A connection compares what
arrives with the bytes that are next.

Everything else (another order, a failure, a timeout) is told of adds that are known by their acknowledgements: a connection takes
its runs apart then. See :class:`~bkclient.wire.connection.ClientConnection`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, Generic, TypeVar

from bkclient._core import has_twins
from bkclient.wire.chunks import SentAdd
from bkclient.wire.messages import AddRequest

__all__ = ["Acknowledged", "Run", "Runs", "add_told"]

Token = TypeVar("Token")

Acknowledged = tuple[Token, AddRequest | list[int]]
"""Who is to be told of adds that were stored: of what was sent as a request by itself, or of entries by their ids."""


def add_told(told: list[Acknowledged[Token]], token: Token, added: AddRequest | list[int]) -> None:
    """Add to ``told`` what follows; what one token hears one after the other it hears together."""
    if told and told[-1][0] is token and isinstance(added, list):
        last = told[-1][1]
        if isinstance(last, list):
            last += added
            return
    told.append((token, added))


class Run(Generic[Token]):
    """Adds of one turn, whose acknowledgements have ``frame_size`` bytes each; it never changes.

    Made of what each add has at its place: entry id, bytes of its frame, frame of its acknowledgement. There is one add at least.
    ``owners`` says whose they are: from each of these places on, of which the first is 0, those of that token.
    """

    __slots__ = ("_sizes", "_token", "_tokens", "acknowledgements", "bytes", "deadline", "entry_ids", "frame_size")

    def __init__(
        self,
        entry_ids: Sequence[int],
        owners: Sequence[tuple[int, Token]],
        sizes: Sequence[int],
        acknowledgements: Sequence[bytes],
        deadline: float,
    ) -> None:
        count = len(entry_ids)
        self.entry_ids: Final[tuple[int, ...]] = tuple(entry_ids)
        #: The frames that will acknowledge them, one after the other.
        self.acknowledgements: Final = b"".join(acknowledgements)
        self.frame_size: Final = len(acknowledgements[0])
        assert len(self.acknowledgements) == count * self.frame_size, "acknowledgements of a run have one size"
        #: Bytes of the adds' own frames in all.
        self.bytes: Final[int] = sum(sizes)
        self.deadline: Final = deadline
        # Of most runs all adds are one writer's, and of one size.
        is_of_one = len(owners) == 1
        self._token: Final[Token | None] = owners[0][1] if is_of_one else None
        self._tokens: Final[tuple[Token, ...] | None] = None if is_of_one else _spread(owners, count)
        self._sizes: Final[tuple[int, ...] | None] = None if sizes.count(sizes[0]) == count else tuple(sizes)

    def __len__(self) -> int:
        return len(self.entry_ids)

    def size_of(self, first: int, end: int) -> int:
        """Bytes of the frames of the adds at these places."""
        if self._sizes is None:
            return self.bytes // len(self.entry_ids) * (end - first)
        return sum(self._sizes[first:end])

    def length_of_common(self, chunk: bytes, position: int, first: int, most: int) -> int:
        """How many of the frames in ``chunk``, ``most`` at most, acknowledge the adds from ``first`` on in their order."""
        size, expected = self.frame_size, self.acknowledgements
        for count in range(most):
            start = position + count * size
            if not expected.startswith(chunk[start : start + size], (first + count) * size):
                return count
        return most

    def tell(self, told: list[Acknowledged[Token]], first: int, end: int) -> None:
        """Add the adds at these places to ``told``, as :func:`add_told` does."""
        entry_ids = list(self.entry_ids[first:end])
        if self._tokens is None:
            assert self._token is not None, "a run has tokens"
            if told:
                add_told(told, self._token, entry_ids)
            else:
                told.append((self._token, entry_ids))
            return
        groups: list[tuple[Token, list[int]]] = []
        last: Token | None = None
        for token, entry_id in zip(self._tokens[first:end], entry_ids, strict=True):
            if token is last:
                groups[-1][1].append(entry_id)
            else:
                groups.append((token, [entry_id]))
                last = token
        add_told(told, *groups[0])
        told += groups[1:]

    def adds_from(self, first: int) -> Iterator[tuple[bytes, SentAdd[Token]]]:
        """The adds from this place on, with the frame that will acknowledge each."""
        size, count = self.frame_size, len(self.entry_ids)
        for place in range(first, count):
            token = self._token if self._tokens is None else self._tokens[place]
            assert token is not None, "a run has tokens"
            own = self.bytes // count if self._sizes is None else self._sizes[place]
            frame = self.acknowledgements[place * size : (place + 1) * size]
            yield frame, (self.entry_ids[place], token, self.deadline, own)


def _spread(owners: Sequence[tuple[int, Token]], count: int) -> tuple[Token, ...]:
    """Of each of ``count`` adds its token."""
    tokens: list[Token] = []
    for place, (_, token) in enumerate(owners, start=1):
        end = owners[place][0] if place < len(owners) else count
        tokens += [token] * (end - len(tokens))
    return tuple(tokens)


class Runs(deque[Run[Token]]):
    """The runs of one connection that await their answers there, in this order; of the first a part may have been answered."""

    __slots__ = ("first",)

    def __init__(self) -> None:
        super().__init__()
        #: How many adds of the first run were answered here.
        self.first = 0

    @property
    def outstanding(self) -> int:
        """How many adds await their answers."""
        return sum(map(len, self)) - self.first

    def follow(self, chunk: bytes, told: list[Acknowledged[Token]]) -> tuple[int, int, int]:
        """Take out the adds that the first frames of ``chunk`` acknowledge in their order, and add them to ``told``.

        Returns where these frames end, how many adds were taken out, and the bytes of the adds' own frames.
        """
        position = count = size = 0
        end = len(chunk)
        while self and position < end:
            run, first = self[0], self.first
            frame_size, left = run.frame_size, len(run.entry_ids) - first
            same = min((end - position) // frame_size, left)
            if not run.acknowledgements.startswith(chunk[position : position + same * frame_size], first * frame_size):
                same = run.length_of_common(chunk, position, first, same)
            if not same:
                break
            run.tell(told, first, first + same)
            size += run.size_of(first, first + same)
            count += same
            position += same * frame_size
            self._settle(same, left)
        return position, count, size

    def have(self, acknowledgement: bytes) -> bool:
        """Whether this acknowledges one of them; takes time linear in their number."""
        return any(frame == acknowledgement for frame, _ in self.adds())

    def answered(self, acknowledgement: bytes) -> SentAdd[Token] | None:
        """Take out the next add if this acknowledges it."""
        frame, add = next(self.adds())
        if frame != acknowledgement:
            return None
        self._settle(1, len(self[0]) - self.first)
        return add

    def _settle(self, count: int, left: int) -> None:
        """So many adds of the first run, of which ``left`` were outstanding, are no more."""
        if count < left:
            self.first += count
        else:
            self.popleft()
            self.first = 0

    def adds(self) -> Iterator[tuple[bytes, SentAdd[Token]]]:
        """All of them, with the frame that will acknowledge each."""
        first = self.first
        for run in self:
            yield from run.adds_from(first)
            first = 0

    def take(self) -> list[tuple[bytes, SentAdd[Token]]]:
        """Take out all of them."""
        adds = list(self.adds())
        self.clear()
        self.first = 0
        return adds

    def sizes(self) -> list[int]:
        """The bytes of their own frames, one by one."""
        assert 0 <= self.first < len(self[0]), "a run that was answered is no more"
        return [size for _, (_, _, _, size) in self.adds()]


has_twins("following", Runs, "follow", knows=(Run, add_told))
