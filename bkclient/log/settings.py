"""Settings of a log, which its manifest holds, so that every owner follows them; and settings of those who publish."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final

from bkclient.config.fields import choice, number, whole
from bkclient.config.group import SettingsGroup, settings_class
from bkclient.log.format.compression import COMPRESSIONS
from bkclient.log.format.entry import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX

__all__ = ["LogSettings", "PublishSettings"]

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


@settings_class
@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSettings(SettingsGroup):
    """How messages are published. Wrong values and unknown names raise :class:`~bkclient.errors.ArgumentError`.

    Messages are gathered to one entry until there are ``batch_messages`` of them, or ``batch_bytes`` bytes, or the first one
    has waited for ``batch_delay_s`` seconds; a message that finds nothing under way does not wait. These defaults are those
    of Pulsar's producers. ``compression`` is ``none``, ``zlib``, ``lz4``, ``zstd`` or ``snappy``; the last three need the
    extra ``compression``. At most ``max_pending_messages`` and ``max_pending_bytes`` are not acknowledged at a time. An owner
    that cannot write for ``give_up_s`` seconds, because the metadata store or too many bookies are away, fails.
    """

    batch_messages: int = whole(1_000, low=1, high=BATCH_MESSAGES_MAX)
    batch_bytes: int = whole(128 * 1024, low=1, high=BATCH_BYTES_MAX)
    batch_delay_s: float = number(0.001, low=0, high=3600)
    compression: str = choice("none", COMPRESSIONS)
    max_pending_messages: int = whole(100_000, low=1, high=10**9)
    max_pending_bytes: int = whole(64 * _MIB, low=1, high=2**40)
    give_up_s: float = number(120.0, low=0.001, high=_LONGEST_S)
