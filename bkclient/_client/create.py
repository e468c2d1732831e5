"""Creating ledgers: what is asked for, whether it can be, and its registration.

No bookie is contacted: a ledger exists once its metadata does. Everything that can be wrong with a request is found before
anything is generated, chosen or stored (API-2, API-3); the bookies are chosen before an id is taken (API-5), so a cluster that is
too small costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from bkclient._client.arguments import check_flag, check_ledger_id, check_password, check_sizes, checked_digest_type
from bkclient._client.core import ClientCore
from bkclient._frozen import NO_ITEMS, FrozenDict
from bkclient.config import ClientConfig
from bkclient.errors import (
    ArgumentError,
    IllegalOperation,
    LedgerExists,
    LedgerFenced,
    NotEnoughBookies,
    WriteOnReadOnlyBookie,
)
from bkclient.ledger import DigestType, Ensemble, Fragment, LedgerMetadata, LedgerState, Versioned
from bkclient.placement import LedgerShape

__all__ = ["CreatedLedger", "NewLedger", "create_ledger"]

#: A generated id that is taken means another generator works on the same store; that cannot go on for long.
_CREATE_ATTEMPTS: Final = 100
#: The oldest metadata format, which holds neither digest type nor password; ledgers stored in it have these.
_FORMAT_WITHOUT_SECRETS: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLedger:
    """What an application asks of a new ledger; making one raises :class:`~bkclient.errors.ArgumentError` (API-3)."""

    ensemble_size: int
    write_quorum_size: int
    ack_quorum_size: int
    password: bytes = field(repr=False)
    digest_type: DigestType
    custom_metadata: Mapping[str, bytes] | None
    deferred_sync: bool
    ledger_id: int | None

    def __post_init__(self) -> None:
        check_sizes(self.ensemble_size, self.write_quorum_size, self.ack_quorum_size)
        check_password(self.password)
        checked_digest_type(self.digest_type)
        check_flag("deferred_sync", self.deferred_sync)
        if self.ledger_id is not None:
            check_ledger_id(self.ledger_id, may_be_negative=False)
        object.__setattr__(self, "custom_metadata", _checked_custom_metadata(self.custom_metadata))

    def check_against(self, config: ClientConfig) -> None:
        """Raise for what this client, as it is configured, cannot create."""
        if self.deferred_sync and config.connections.protocol_version == 2:
            raise IllegalOperation("deferred sync needs wire protocol version 3, this client is configured for 2")
        if config.metadata.format_version == _FORMAT_WITHOUT_SECRETS and (
            (self.digest_type, self.password, dict(self.custom_metadata or {})) != (DigestType.CRC32, b"", {})
            or self.ack_quorum_size != self.write_quorum_size
        ):
            raise ArgumentError(
                "metadata format 1 holds neither digest type nor password, custom metadata or ack quorum: digest_type "
                "must be CRC32, and the ack quorum the write quorum"
            )

    def metadata(
        self, ledger_id: int, ensemble: Ensemble, config: ClientConfig, ctime_ms: int | None
    ) -> LedgerMetadata:
        """The first metadata of the ledger; ``ensemble`` may be smaller than asked for."""
        has_secrets = config.metadata.format_version != _FORMAT_WITHOUT_SECRETS
        return LedgerMetadata(
            ledger_id=ledger_id,
            ensemble_size=len(ensemble),
            write_quorum_size=self.write_quorum_size,
            ack_quorum_size=self.ack_quorum_size,
            fragments=(Fragment(0, ensemble),),
            digest_type=self.digest_type if has_secrets else None,
            password=self.password,
            has_password=has_secrets,
            custom_metadata=self.custom_metadata or NO_ITEMS,
            format_version=config.metadata.format_version,
            ctime_ms=ctime_ms,
        )


@dataclass(frozen=True, slots=True)
class CreatedLedger:
    """A ledger that was registered, and the newest connection to any bookie that was established before that began (W-60)."""

    value: Versioned
    connection: int


async def create_ledger(core: ClientCore, wanted: NewLedger, now_ms: Callable[[], int] | None) -> CreatedLedger:
    """Choose bookies and register the ledger. ``now_ms``, the wall clock, stamps it where it is given.

    Raises :class:`~bkclient.errors.NotEnoughBookies` before anything is written, and
    :class:`~bkclient.errors.LedgerExists` for a chosen id that is taken, and :class:`~bkclient.errors.LedgerFenced` if another
    client recovered the new ledger before the answer came; a generated id is replaced by another then. A call that is cancelled
    may leave an empty ledger behind.
    """
    wanted.check_against(core.config)
    ensemble = await _choose_ensemble(core, wanted)
    ctime_ms = None if now_ms is None else now_ms()
    if wanted.ledger_id is not None:
        return await _register(core, wanted.metadata(wanted.ledger_id, ensemble, core.config, ctime_ms))
    taken: LedgerExists | LedgerFenced | None = None
    for _ in range(_CREATE_ATTEMPTS):
        ledger_id = await core.metadata.generate_ledger_id()
        try:
            return await _register(core, wanted.metadata(ledger_id, ensemble, core.config, ctime_ms))
        except (LedgerExists, LedgerFenced) as error:
            taken = error
    raise LedgerExists(f"{_CREATE_ATTEMPTS} generated ledger ids in a row were taken") from taken


async def _register(core: ClientCore, metadata: LedgerMetadata) -> CreatedLedger:
    connection = max(core.transport.connections.values(), default=0)
    value = await core.metadata.create_ledger(metadata)
    if value.metadata.state is not LedgerState.OPEN:  # found again by a repeated creation
        raise LedgerFenced(
            "another client recovered the ledger before the answer to its creation came", ledger_id=metadata.ledger_id
        )
    return CreatedLedger(value, connection)


async def _choose_ensemble(core: ClientCore, wanted: NewLedger) -> Ensemble:
    """The largest ensemble there is, from the size asked for down to the write quorum if the client stripes opportunistically."""
    smallest = wanted.write_quorum_size if core.config.writing.opportunistic_striping else wanted.ensemble_size
    for size in range(wanted.ensemble_size, smallest - 1, -1):
        shape = LedgerShape(size, wanted.write_quorum_size, wanted.ack_quorum_size, wanted.custom_metadata or {})
        ensemble = core.watcher.new_ensemble(shape)
        if ensemble is not None:
            return ensemble
    registered = await core.metadata.bookies()
    why = f"an ensemble of {smallest} is wanted, the writable bookies are: {', '.join(registered.writable) or 'none'}"
    if not registered.read_only:
        raise NotEnoughBookies(why)
    advice = WriteOnReadOnlyBookie.advice if len(registered.read_only) >= smallest else None
    raise NotEnoughBookies(f"{why}; read-only are: {', '.join(registered.read_only)}", advice=advice)


def _checked_custom_metadata(custom_metadata: Mapping[str, bytes] | None) -> Mapping[str, bytes]:
    if custom_metadata is not None and not isinstance(custom_metadata, Mapping):
        raise ArgumentError(f"custom_metadata must be a mapping, got {type(custom_metadata).__name__}")
    custom = dict(custom_metadata or {})
    for key, value in custom.items():
        if not isinstance(key, str) or not isinstance(value, bytes):  # type: ignore[redundant-expr]
            raise ArgumentError(f"custom_metadata must map str to bytes, got {key!r} and {value!r}")
    return FrozenDict(custom) if custom else NO_ITEMS
