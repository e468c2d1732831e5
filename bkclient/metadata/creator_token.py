"""Recognising one's own creation of a ledger (API-6).

A create whose answer was lost may have been carried out. When it is sent again the store answers "exists", and only the
record can tell whether it was this creator or another one. So each creation in format 3 carries a random number, the
creator token; formats 1 and 2 have no room for it, and with them "exists" always means somebody else.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from bkclient.ledger import LedgerMetadata

__all__ = ["carries_creator_token", "is_created_by", "with_creator_token"]

_FORMAT_VERSION_WITH_TOKEN: Final = 3
_TOKEN_BITS: Final = 63


def with_creator_token(metadata: LedgerMetadata, rng: Random) -> LedgerMetadata:
    """``metadata`` with a token, drawn from ``rng`` unless it has one or its format has none.

    A caller that repeats a creation after an unknown outcome passes metadata with the token of the first attempt.
    """
    if metadata.creator_token or metadata.format_version != _FORMAT_VERSION_WITH_TOKEN:
        return metadata
    # 0 is what a store without tokens, or a rewrite by BookKeeper's own client, leaves behind.
    return replace(metadata, creator_token=rng.getrandbits(_TOKEN_BITS) or 1)


def carries_creator_token(metadata: LedgerMetadata) -> bool:
    """Whether a creation of ``metadata`` can be recognised, and so be sent again without harm."""
    return metadata.format_version == _FORMAT_VERSION_WITH_TOKEN and metadata.creator_token != 0


def is_created_by(stored: LedgerMetadata, attempted: LedgerMetadata) -> bool:
    """Whether ``stored`` goes back to the creation that ``attempted`` was."""
    return carries_creator_token(attempted) and stored.creator_token == attempted.creator_token
