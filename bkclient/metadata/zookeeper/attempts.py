"""Why no server answers: what became of the attempts to connect, server by server.

A server whose name does not exist will not appear by waiting. One that refuses says that nothing listens there; it may be
starting, so it is asked for a moment longer. One that is silent may be slow, and is waited for. A name may have several
addresses; a server is away only if each of them is.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

__all__ = ["REFUSAL_PATIENCE_S", "Attempts"]

REFUSAL_PATIENCE_S: Final = 1.0
"""How long servers are tried that all refuse."""

_NO_SUCH_NAME: Final = {
    number for number in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", None)) if number is not None
}
_NAME: Final = ""
"""Stands for the address of a server whose name could not be resolved."""


class Attempts:
    """The attempts of one session to connect for the first time; ``servers`` are ``host:port``."""

    def __init__(self, servers: tuple[str, ...], clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began_at = clock()
        # By server and address: what happened last, and whether that says that no server is there. None: still under way.
        self._outcomes: dict[str, dict[str, tuple[str, bool]]] = {_key(server): {} for server in servers}
        self._names = {_key(server): server for server in servers}
        self._unknown: set[str] = set()

    def accepted(self, server: str, address: str) -> None:
        """The server took the connection. It has yet to answer."""
        self._note(server, address, "it takes connections and does not answer as ZooKeeper", is_away=False)

    def failed(self, server: str, address: str, error: OSError) -> None:
        """The connection could not be made."""
        if isinstance(error, TimeoutError):
            self._note(server, address, "no answer", is_away=False)
        else:
            self._note(server, address, (error.strerror or type(error).__name__).lower(), is_away=True)

    def not_resolved(self, server: str, error: OSError) -> None:
        """The name of the server has no address."""
        self._note(server, _NAME, f"the name cannot be resolved ({(error.strerror or '').lower()})", is_away=True)
        if error.errno in _NO_SUCH_NAME:
            self._unknown.add(_key(server))

    @property
    def is_hopeless(self) -> bool:
        """Whether every server has said, for long enough, that it is not there."""
        for outcomes in self._outcomes.values():
            if not outcomes or not all(is_away for _, is_away in outcomes.values()):
                return False
        is_final = self._unknown >= set(self._outcomes)
        return is_final or self._clock() - self._began_at >= REFUSAL_PATIENCE_S

    def __str__(self) -> str:
        return "; ".join(
            f"{name}: {', '.join(dict.fromkeys(why for why, _ in self._outcomes[key].values())) or 'no answer'}"
            for key, name in self._names.items()
        )

    def _note(self, server: str, address: str, what: str, *, is_away: bool) -> None:
        outcomes = self._outcomes.get(_key(server))
        if outcomes is not None:
            if address != _NAME:
                outcomes.pop(_NAME, None)
                self._unknown.discard(_key(server))
            outcomes[address] = what, is_away


def _key(server: str) -> str:
    """``server`` as the library writes it: in lower case, and without the brackets of an IPv6 address."""
    return server.lower().replace("[", "").replace("]", "")
