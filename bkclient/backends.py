"""What :func:`bkclient.connect` connects to, by the scheme of the URI, where that is neither ZooKeeper nor this process.

A simulation or a test registers a backend for a scheme of its own, and programs that are given such a URI connect to it without
a change. ``scenarios.testing`` does so for ``sim://``.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

__all__ = ["Backend", "backend_of", "register_backend"]

Backend = Callable[..., Awaitable[Any]]
"""Called with the URI and, as keywords, everything that :func:`bkclient.connect` was given: ``config``, ``rng``, ``wall_clock``,
``placement``, ``locations``, ``observer``, ``features``, ``stats``, ``tracer``, ``auth``; ``wall_clock`` is None where the
system's was to be used. Returns a :class:`bkclient.BookKeeper` that was entered."""

_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*")
_BUILT_IN: Final = ("mem", "zk")

_backends: Final[dict[str, Backend]] = {}


def register_backend(scheme: str, backend: Backend) -> None:
    """Have ``backend`` connect every client whose URI begins with ``scheme://``, from now on in this process.

    The last one registered for a scheme counts. ``ValueError`` for what is no scheme, and for those of this package.
    """
    if _SCHEME.fullmatch(scheme) is None or scheme.partition("+")[0] in _BUILT_IN:
        raise ValueError(f"scheme must be lower-case letters, digits, + . or -, and not zk or mem; got {scheme!r}")
    _backends[scheme] = backend


def backend_of(uri: str) -> Backend | None:
    """The backend that was registered for the scheme of ``uri``, None if there is none."""
    scheme, separator, _ = uri.partition("://")
    return _backends.get(scheme) if separator else None
