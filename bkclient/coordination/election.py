"""The election of one of several programs."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from bkclient import BookKeeper
from bkclient._in_any_case import in_any_case
from bkclient.coordination.names import check_name
from bkclient.coordination.sequence import SequentialElection
from bkclient.errors import ArgumentError, ClientClosed, MetadataStoreError

__all__ = ["LeaderElection"]

_CANDIDATE_BYTES_MAX: Final = 1000


class LeaderElection:
    """An election by the name ``name``, in which this program stands as ``candidate``, any text of at most 1000 bytes.

    ::

        election = LeaderElection(bk, "indexer", "host-7")
        while True:
            term = await election.until_elected()
            ...  # work, until:
            await election.until_deposed()

    Candidates are elected in the order in which they came. A program whose session with the metadata service ends is out; the
    client opens another session by itself, and :meth:`until_elected` stands again. A program can be deposed before it hears of
    it, so two may act at the same time for a while. Give the ``term``, a number that grows from each elected candidate to
    the next, to what they act on, or have them write to a log, whose next owner fences the one before.

    Methods raise :class:`~bkclient.errors.MetadataStoreError` when the metadata service does not answer;
    those that wait go on waiting instead.
    """

    def __init__(self, client: BookKeeper, name: str, candidate: str) -> None:
        _check_candidate(candidate)
        directory = f"elections/{check_name('name', name)}"
        self._election = SequentialElection(client.node_tree(), directory, "candidate-", candidate.encode())
        self._name, self._candidate = name, candidate

    def __repr__(self) -> str:
        return f"<LeaderElection name={self._name!r} candidate={self._candidate!r}>"

    async def until_elected(self) -> int:
        """Stand, and wait until this program is elected; the term. Stands again if it was out.

        A program goes on standing when a call is cancelled, until :meth:`resign`; ``async with`` resigns by itself.
        """
        return await self._election.until(is_elected=True)

    async def until_deposed(self) -> None:
        """Wait until this program is not elected any more, as far as the metadata service tells."""
        await self._election.until(is_elected=False)

    async def term(self) -> int | None:
        """The term of this program if it is elected now; None if it is not."""
        return await self._election.own_term()

    async def leader(self) -> str | None:
        """The candidate that is elected now, as it named itself; None if nobody stands."""
        elected = await self._election.lowest()
        return None if elected is None else elected[1].data.decode(errors="replace")

    async def resign(self) -> None:
        """Stand no more; the next one is elected. Idempotent."""
        await self._election.resign()

    async def __aenter__(self) -> Self:
        try:
            await self.until_elected()
        except BaseException:
            with suppress(MetadataStoreError, ClientClosed):  # the end of the session removes the candidate
                await self._resign_in_any_case()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._resign_in_any_case()
        except MetadataStoreError as failure:
            if error is None:
                raise
            error.add_note(f"resigning failed too: {failure}")

    async def _resign_in_any_case(self) -> None:
        await in_any_case(self.resign(), name=f"end of a candidate of {self._name}")


def _check_candidate(candidate: object) -> None:
    if not isinstance(candidate, str) or len(candidate.encode()) > _CANDIDATE_BYTES_MAX:
        raise ArgumentError(f"candidate must be a text of at most {_CANDIDATE_BYTES_MAX} bytes")
