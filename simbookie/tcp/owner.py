"""What a connection needs of the server that it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from simbookie.bookie import Bookie
from simbookie.tcp.config import ServerConfig
from simbookie.tcp.notices import Notices
from simbookie.tcp.turns import Turns
from simbookie.tcp.unsent import Unsent

if TYPE_CHECKING:
    from simbookie.tcp.connection import ServedConnection

__all__ = ["ConnectionOwner"]


class ConnectionOwner(Protocol):
    """What connections need of their server."""

    bookie: Bookie
    config: ServerConfig
    notices: Notices
    turns: Turns
    unsent: Unsent

    def admit(self, connection: ServedConnection) -> bool:
        """Whether a new connection may stay."""
        ...

    def dismiss(self, connection: ServedConnection) -> None:
        """Forget a connection, which has ended."""
        ...
