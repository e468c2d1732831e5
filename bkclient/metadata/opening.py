"""The one call that opens a metadata store from its URI.

A driver is imported when a URI asks for it, so the ZooKeeper library is needed only where it is used.
"""

from __future__ import annotations

from random import Random
from typing import Final

from bkclient.errors import MetadataDriverMissing
from bkclient.metadata.base import MetadataStore
from bkclient.metadata.memory import MemoryMetadataService
from bkclient.metadata.uri import MemoryUri, parse_metadata_uri

__all__ = ["open_store"]

SESSION_TIMEOUT_S_DEFAULT: Final = 10.0


async def open_store(
    uri: str,
    *,
    rng: Random,
    session_timeout_s: float = SESSION_TIMEOUT_S_DEFAULT,
    connect_timeout_s: float | None = None,
    initialise: bool = False,
) -> MetadataStore:
    """Open a session with the metadata service at ``uri``; the caller closes it with ``aclose()``.

    ``rng`` supplies creator tokens. ``session_timeout_s`` is how long the service waits for a silent client
    before it forgets the bookies it registered. ``connect_timeout_s`` is how long to try servers that refuse or do not
    answer; without it the session timeout, and one second where all of them refuse or have no address. With
    ``initialise`` a cluster that does not exist yet is made; without it a client that was given a wrong root learns so
    instead of finding an empty cluster. None of these means anything to ``mem://``.

    :class:`~bkclient.errors.ArgumentError` for a URI that is malformed or disagrees with the cluster's LAYOUT,
    :class:`~bkclient.errors.MetadataStoreError` if the service cannot be reached or holds no cluster at the root,
    :class:`~bkclient.errors.MetadataDriverMissing` if its driver is not installed.
    """
    target = parse_metadata_uri(uri)
    if isinstance(target, MemoryUri):
        return MemoryMetadataService.named(target.name).session(rng=rng)
    try:
        from bkclient.metadata.zookeeper import connect_zookeeper  # noqa: PLC0415 - see the docstring of the module
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "kazoo":
            raise
        raise MetadataDriverMissing(f"{target} needs kazoo, which is not installed") from error

    return await connect_zookeeper(
        target,
        rng=rng,
        session_timeout_s=session_timeout_s,
        connect_timeout_s=connect_timeout_s,
        initialise=initialise,
    )
