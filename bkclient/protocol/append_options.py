"""How a writer behaves: the choices that BookKeeper leaves to the application."""

from __future__ import annotations

from dataclasses import dataclass

from bkclient.errors import ArgumentError

__all__ = ["MAX_ENTRY_ID", "AppendOptions"]

#: Entry ids travel and are stored as signed 64 bit numbers.
MAX_ENTRY_ID = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendOptions:
    """Fixed for the life of one writer. Wrong values raise :class:`~bkclient.errors.ArgumentError`.

    * ``max_ensemble_changes`` bounds how many changes, counted per pass, the writer makes in its life (W-29).
    * ``delay_ensemble_change``: a bookie that fails is replaced only once an entry cannot reach its ack quorum without
      (W-25); until then the ledger has fewer copies than asked for.
    * ``deferred_sync``: entries are acknowledged before they are durable, and the LAC moves by force only (LAC-11). The
      ensemble of such a ledger must not change (W-27).
    * ``entry_ids_given``: the caller chooses entry ids (W-5).
    * ``enforce_fault_domains``: an ack quorum counts only if it spans the fault domains that placement asks for (W-19).
    * ``quorum_timeout_s``: an entry without its ack quorum for so long ends the writer (W-46); None waits for ever.
    * ``first_resend_s``, ``max_resend_s``, ``max_resends``: while ensemble changes are disabled, what failed is sent again
      after ``first_resend_s`` seconds, then after twice that and so on, up to ``max_resend_s``; and after ``max_resends``
      rounds in a row in which nothing got acknowledged the writer gives up (W-26, H-8).
    * ``placement_policy`` names the plug-in that chooses bookies, for error messages.
    """

    max_ensemble_changes: int = 2**31 - 1
    delay_ensemble_change: bool = False
    deferred_sync: bool = False
    entry_ids_given: bool = False
    enforce_fault_domains: bool = False
    quorum_timeout_s: float | None = None
    first_resend_s: float = 0.1
    max_resend_s: float = 5.0
    max_resends: int = 100
    placement_policy: str = "placement policy"

    def __post_init__(self) -> None:
        if self.max_ensemble_changes < 0:
            raise ArgumentError(f"max_ensemble_changes must be >= 0, got {self.max_ensemble_changes}")
        if self.quorum_timeout_s is not None and self.quorum_timeout_s <= 0:
            raise ArgumentError(
                f"quorum_timeout_s must be > 0, got {self.quorum_timeout_s}; None switches the timeout off"
            )
        if not 0 < self.first_resend_s <= self.max_resend_s:
            raise ArgumentError(
                f"0 < first_resend_s <= max_resend_s must hold, got {self.first_resend_s} and {self.max_resend_s}"
            )
        if self.max_resends < 0:
            raise ArgumentError(f"max_resends must be >= 0, got {self.max_resends}")
