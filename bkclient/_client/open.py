"""Opening ledgers: who may, with which keys, and what is done first to one that is not closed."""

from __future__ import annotations

from dataclasses import dataclass, field

from bkclient._client.arguments import check_password, checked_digest_type
from bkclient._client.core import ClientCore, LedgerKeys, entry_codec_for
from bkclient._client.reading.followed import FollowedLedger
from bkclient._client.reading.lac import read_last_add_confirmed
from bkclient._client.reading.reader import LedgerReader
from bkclient._client.recover import recover_ledger
from bkclient.config import ClientConfig
from bkclient.errors import ArgumentError, DigestMismatch, NoSuchLedger, UnauthorizedAccess
from bkclient.ledger import DigestType, LedgerMetadata, Versioned

__all__ = ["Credentials", "open_ledger", "read_metadata"]


@dataclass(frozen=True, slots=True)
class Credentials:
    """What an application knows of a ledger: its password and, perhaps, its digest type. Construction checks the types."""

    password: bytes = field(repr=False)
    digest_type: DigestType | None

    def __post_init__(self) -> None:
        check_password(self.password)
        if self.digest_type is not None:
            checked_digest_type(self.digest_type)

    @property
    def keys(self) -> LedgerKeys:
        """What counts for a ledger older than stored passwords (API-7)."""
        return LedgerKeys(self.password, self.digest_type or DigestType.CRC32)

    def check_against_config(self, config: ClientConfig) -> None:
        """Without autodetection, :class:`~bkclient.errors.ArgumentError` unless the digest type is stated."""
        if self.digest_type is None and not config.metadata.digest_type_autodetection:
            raise ArgumentError("digest_type must be given: metadata.digest_type_autodetection is off")

    def check(self, metadata: LedgerMetadata, config: ClientConfig) -> None:
        """Raise unless they fit. Ledgers older than stored passwords take any (API-7)."""
        if not metadata.has_password:
            return
        if metadata.password != self.password:
            raise UnauthorizedAccess(ledger_id=metadata.ledger_id)
        if not config.metadata.digest_type_autodetection and metadata.digest_type is not self.digest_type:
            assert metadata.digest_type is not None, "it is stored with the password"
            assert self.digest_type is not None, "checked against the configuration first"
            raise DigestMismatch(
                f"the ledger was created with {metadata.digest_type.name}, not with {self.digest_type.name}",
                ledger_id=metadata.ledger_id,
            )


async def read_metadata(core: ClientCore, ledger_id: int) -> Versioned:
    """A ledger's metadata; negative ids are unknown ones (H-36)."""
    if ledger_id < 0:
        raise NoSuchLedger("ledger ids are not negative", ledger_id=ledger_id)
    return await core.metadata.read_ledger(ledger_id)


async def open_ledger(
    core: ClientCore, ledger_id: int, credentials: Credentials | None, *, recover: bool, keep_metadata_updated: bool
) -> LedgerReader:
    """Open a ledger; without ``credentials`` nothing is compared, as administrators do (API-8)."""
    value = await read_metadata(core, ledger_id)
    if credentials is not None:
        credentials.check(value.metadata, core.config)
    keys = core.admin_keys if credentials is None else credentials.keys
    codec = entry_codec_for(value.metadata, keys)
    if not value.metadata.is_closed and recover:
        value = await recover_ledger(core, value, codec)
    if value.metadata.is_closed:
        followed = FollowedLedger(core, value, value.metadata.last_entry_id)
        is_followed = keep_metadata_updated  # NR-9
    else:
        told = await read_last_add_confirmed(core, value.metadata, codec)  # NR-1
        followed = FollowedLedger(core, value, *told)
        is_followed = True
    reader = LedgerReader(core, followed, codec)
    if is_followed:
        followed.follow()
    return reader
