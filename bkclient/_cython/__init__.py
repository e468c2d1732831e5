"""The compiled core: twins of the functions that every entry passes through (:mod:`bkclient._core` tells which, and when)."""

import os
import zlib

__all__ = ["sources_digest"]


def sources_digest() -> str:
    """What tells the sources beside this file from older ones of theirs; empty if they are not there, as in a wheel."""
    folder = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - everybody imports this, and not pathlib
    digest, names = 0, sorted(name for name in os.listdir(folder) if name.endswith((".h", ".pxd", ".pyx")))  # noqa: PTH208
    for name in names:
        with open(os.path.join(folder, name), "rb") as source:  # noqa: PTH118, PTH123
            digest = zlib.crc32(source.read(), zlib.crc32(name.encode(), digest))
    return f"{digest:08x}" if names else ""
