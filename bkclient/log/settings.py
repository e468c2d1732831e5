"""Settings of a log, which its manifest holds: every owner follows those with which the log was created."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final

from bkclient.config.fields import number, whole
from bkclient.config.group import SettingsGroup, settings_class

__all__ = ["LogSettings"]

_MIB: Final = 1024 * 1024
_ENSEMBLE_MAX: Final = 255
_LONGEST_S: Final = 100 * 365 * 86_400.0


@settings_class
@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings(SettingsGroup):
    """How a log keeps its entries. Wrong values and unknown names raise :class:`~bkclient.errors.ArgumentError`.

    A ledger is replaced by a new one once it has ``max_ledger_entries`` entries or ``max_ledger_bytes`` bytes, but not before
    it is ``min_ledger_s`` seconds old; and in any case, if it holds anything, when it is ``max_ledger_s`` seconds old. These
    defaults are those of Pulsar's brokers. ``retention_s`` and ``retention_bytes`` say how much of what no cursor needs is
    kept; None, the default, keeps everything.
    """

    ordered: ClassVar[tuple[tuple[str, str], ...]] = (
        ("ack_quorum_size", "write_quorum_size"),
        ("write_quorum_size", "ensemble_size"),
        ("min_ledger_s", "max_ledger_s"),
    )

    ensemble_size: int = whole(3, low=1, high=_ENSEMBLE_MAX)
    write_quorum_size: int = whole(2, low=1, high=_ENSEMBLE_MAX)
    ack_quorum_size: int = whole(2, low=1, high=_ENSEMBLE_MAX)
    max_ledger_entries: int = whole(50_000, low=1, high=2**31 - 1)
    max_ledger_bytes: int = whole(2048 * _MIB, low=1, high=2**62)
    min_ledger_s: float = number(600.0, low=0, high=_LONGEST_S)
    max_ledger_s: float = number(14_400.0, low=0.001, high=_LONGEST_S)
    retention_s: float | None = number(None, low=0, high=_LONGEST_S, optional=True)
    retention_bytes: int | None = whole(None, low=0, high=2**62, optional=True)

    def as_dict(self) -> dict[str, Any]:
        """The settings by name."""
        return asdict(self)
