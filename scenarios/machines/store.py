"""The metadata of one ledger: a register with compare-and-set, and the notation in which its fragments are written.

Bookies have one letter as their name, so that an ensemble is a word: ``ledger((3, 2, 2), {0: "abc", 5: "abd"})``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from bkclient.errors import NoSuchLedger
from bkclient.ledger import DigestType, Fragment, LedgerMetadata, LedgerState, Versioned
from bkclient.protocol.update import ReadMetadata, UpdateHandle
from bkclient.protocol.value import Value

__all__ = ["LEDGER_ID", "Store", "ensembles_of", "ledger"]

LEDGER_ID: Final = 7
"""The id of the ledger, which is the only one."""


def ledger(
    sizes: tuple[int, int, int],
    ensembles: str | Mapping[int, str],
    *,
    state: LedgerState = LedgerState.OPEN,
    version: int = 0,
) -> Versioned:
    """A ledger that is not closed. ``ensembles`` is one ensemble, or one for each first entry id of a fragment."""
    fragments = {0: ensembles} if isinstance(ensembles, str) else ensembles
    return Versioned(
        LedgerMetadata(
            LEDGER_ID,
            *sizes,
            fragments=tuple(Fragment(first, tuple(ensemble)) for first, ensemble in sorted(fragments.items())),
            state=state,
            digest_type=DigestType.DUMMY,
        ),
        version,
    )


def ensembles_of(metadata: LedgerMetadata) -> dict[int, str]:
    """The fragments, in the notation of :func:`ledger`."""
    return {fragment.first_entry_id: "".join(fragment.ensemble) for fragment in metadata.fragments}


class Store(Value):
    """The metadata of one ledger: a register with compare-and-set that remembers what was written and tried."""

    __slots__ = ("attempts", "is_deleted", "value", "writes")

    def __init__(self, value: Versioned) -> None:
        self.value = value
        self.writes = 0
        self.attempts = 0
        self.is_deleted = False

    @property
    def metadata(self) -> LedgerMetadata:
        """What is stored, without its version."""
        return self.value.metadata

    @property
    def ensembles(self) -> dict[int, str]:
        """The fragments of what is stored, in the notation of :func:`ledger`."""
        return ensembles_of(self.metadata)

    def write(self, metadata: LedgerMetadata, expected_version: int) -> Versioned | None:
        """The new value, or None for a conflict."""
        self.attempts += 1
        if self.value.version != expected_version:
            return None
        self.writes += 1
        self.value = Versioned(metadata, expected_version + 1)
        return self.value

    def edit(self, change: Callable[[LedgerMetadata], LedgerMetadata]) -> None:
        """Change the metadata, as another client would."""
        self.value = Versioned(change(self.metadata), self.value.version + 1)

    def carry_out(self, update: UpdateHandle, *, lose_answer: bool = False) -> None:
        """Execute the next action of ``update``; with ``lose_answer`` a write is applied and its answer is lost."""
        action = update.action
        assert action is not None, "the update has ended"
        if self.is_deleted:
            update.on_error(NoSuchLedger(ledger_id=LEDGER_ID))
        elif isinstance(action, ReadMetadata):
            update.on_read(self.value)
        else:
            written = self.write(action.metadata, action.expected_version)
            if written is None or lose_answer:
                update.on_conflict()
            else:
                update.on_written(written)

    def finish(self, update: UpdateHandle) -> None:
        """Execute all remaining actions of ``update``."""
        while update.action is not None:
            self.carry_out(update)
