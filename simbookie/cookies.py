"""Cookies: which bookie a folder belongs to, which folders belong to a bookie, and in which cluster.

A bookie that starts for the first time stamps each of its folders with a cookie, in a file ``VERSION``, and leaves the same
cookie in the metadata service. From then on all of them have to be there and to agree. So a disk that came back empty, a
folder of another bookie or of another cluster, and a cluster that has forgotten the bookie are noticed before it serves, and
denies what it has acknowledged, or has its ledgers collected as garbage. The text is BookKeeper's, whose shell and whose
bookies read it.

A bookie in memory has nothing that could belong to a cookie, so it leaves one and never reads it. It is there for others:
BookKeeper's own auditor takes the bookies it must miss from the names of the cookies, and ends at once in a cluster that has
none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from bkclient.errors import MetadataSerializationError
from bkclient.ledger import BookieId
from bkclient.metadata.base import MetadataStore
from bkclient.metadata.records import Cookie, decode_cookie, encode_cookie
from bkclient.metadata.tree import tree_of
from simbookie.storage.base import StorageError
from simbookie.storage.folders import Folder
from simbookie.storage.waiting import until_done

__all__ = ["COOKIE_FILE", "InvalidCookie", "check_cookies", "is_known", "leave_cookie", "read_cookie", "stamp_cookies"]

#: The file with the cookie of a folder.
COOKIE_FILE: Final = "VERSION"
#: What the cookie of a bookie in memory says instead of directories.
NOWHERE: Final = ("memory",)


class InvalidCookie(StorageError):
    """Folders, bookie and cluster do not belong together; the message says which of them does not."""


async def leave_cookie(metadata: MetadataStore, bookie_id: BookieId) -> None:
    """Make a bookie in memory known for good, unless it is; with the instance id of the cluster, if that has one.

    Raises as ``metadata`` does, and :class:`~bkclient.errors.ArgumentError` if it has no room for anything but ledgers.
    """
    cookie = Cookie(bookie_id, NOWHERE, NOWHERE, await _instance_id(metadata))
    await tree_of(metadata).create(_path(bookie_id), encode_cookie(cookie))


async def check_cookies(metadata: MetadataStore | None, cookie: Cookie, folders: Sequence[Folder]) -> None:
    """Have ``folders`` and the metadata service agree with ``cookie``, whose instance id is that of the cluster.

    On a first start, when nobody has a cookie and the folders are empty, it is written to all of them, durably, and then to the
    service; what was left between the two is made up for. Without ``metadata`` only the folders are compared: a store that
    forgets everything remembers no bookie. Raises :class:`InvalidCookie`, and as ``metadata`` and the disks do.
    """
    known: Cookie | None = None
    bookie_id = cookie.bookie_host
    if metadata is not None:
        cookie = replace(cookie, instance_id=await _instance_id(metadata))
        node = await tree_of(metadata).get(_path(bookie_id))
        known = None if node is None else decode_cookie(bookie_id, node.data)
    if known is not None:
        _compare(cookie, known, "the metadata service", knows_instance=True)
    missing = _without(folders, cookie, is_known=known is not None, knows_instance=metadata is not None)
    if missing and known is not None:
        raise InvalidCookie(
            f"{_listed(missing)} has no cookie, though bookie {bookie_id} was here before: was the disk replaced or emptied?"
        )
    full = [folder for folder in missing if _is_used(folder)]
    if full:
        raise InvalidCookie(f"{_listed(full)} is not empty, and has no cookie to say whose data it is")
    if missing:
        for folder in folders:
            await _stamp(folder, cookie)
    elif metadata is not None and known is None and any(_is_used(folder) for folder in folders):
        raise InvalidCookie(
            f"the metadata service has no cookie of bookie {bookie_id}, whose data is here: is this another cluster, or was "
            f"it set up anew? It would delete every ledger of the bookie as garbage"
        )
    if metadata is not None and known is None:
        created = await tree_of(metadata).create(_path(bookie_id), encode_cookie(cookie))
        if created is None:
            raise InvalidCookie(f"another bookie {bookie_id} starts in the same cluster for the first time")


async def is_known(metadata: MetadataStore, cookie: Cookie) -> bool:
    """Whether the metadata service has a cookie of the bookie, and of this cluster: then others know what it should have."""
    node = await tree_of(metadata).get(_path(cookie.bookie_host))
    return node is not None and decode_cookie(cookie.bookie_host, node.data).instance_id == await _instance_id(metadata)


async def stamp_cookies(metadata: MetadataStore, cookie: Cookie, folders: Sequence[Folder]) -> None:
    """Have the metadata service and ``folders`` say ``cookie`` from now on, whatever they said; the service first.

    :class:`InvalidCookie` if another process changes the service's at the same time.
    """
    cookie = replace(cookie, instance_id=await _instance_id(metadata))
    tree, path = tree_of(metadata), _path(cookie.bookie_host)
    node = await tree.get(path)
    if node is None or not await tree.write(path, encode_cookie(cookie), node.version):
        raise InvalidCookie(
            f"the cookie of bookie {cookie.bookie_host} in the metadata service was changed by somebody else"
        )
    for folder in folders:
        await _stamp(folder, cookie)


def _without(folders: Sequence[Folder], cookie: Cookie, *, is_known: bool, knows_instance: bool) -> list[Folder]:
    """The folders without a cookie; all others have the right one."""
    missing = []
    for folder in folders:
        try:
            found = read_cookie(folder)
        except InvalidCookie:
            if is_known or _is_used(folder):
                raise
            found = None  # a first start lost power while it wrote
        if found is None:
            missing.append(folder)
        else:
            _compare(cookie, found, folder.path, knows_instance=knows_instance)
    return missing


def read_cookie(folder: Folder) -> Cookie | None:
    """The cookie of a folder, ``None`` if it has none; :class:`InvalidCookie` if it cannot be read."""
    text = folder.read_small(COOKIE_FILE)
    if text is None:
        return None
    try:
        return decode_cookie("?", text)
    except MetadataSerializationError as error:
        raise InvalidCookie(f"{folder.file(COOKIE_FILE)} cannot be read: {error}") from error


def _compare(wanted: Cookie, found: Cookie, where: str, *, knows_instance: bool) -> None:
    if found.bookie_host != wanted.bookie_host:
        raise InvalidCookie(
            f"{where} is the data of bookie {found.bookie_host}, not of {wanted.bookie_host}; use --id {found.bookie_host}"
        )
    for name, old, new in (
        ("journals", found.journal_dirs, wanted.journal_dirs),
        ("ledgers", found.ledger_dirs, wanted.ledger_dirs),
        ("indexes", found.index_dirs or found.ledger_dirs, wanted.index_dirs or wanted.ledger_dirs),
    ):
        if old != new:
            raise InvalidCookie(
                f"by the cookie in {where} bookie {wanted.bookie_host} has its {name} in {', '.join(old)}, not in "
                f"{', '.join(new)}: were folders moved, added or left out?"
            )
    if knows_instance and found.instance_id != wanted.instance_id:
        raise InvalidCookie(
            f"by the cookie in {where} bookie {wanted.bookie_host} belongs to the cluster with instance id "
            f"{found.instance_id}, and this one has {wanted.instance_id}"
        )


def _is_used(folder: Folder) -> bool:
    """Whether it holds anything but a cookie."""
    return bool(set(folder.names()) - {COOKIE_FILE} or folder.disk.folders(folder.path))


async def _stamp(folder: Folder, cookie: Cookie) -> None:
    folder.write_small(COOKIE_FILE, encode_cookie(cookie))
    file = folder.open(COOKIE_FILE)
    try:
        await until_done(lambda on_done: file.sync(on_done, None))
    finally:
        file.close()
    await until_done(lambda on_done: folder.sync(on_done, None))


def _listed(folders: Sequence[Folder]) -> str:
    return ", ".join(folder.path for folder in folders)


def _path(bookie_id: BookieId) -> str:
    return f"cookies/{bookie_id}"


async def _instance_id(metadata: MetadataStore) -> str | None:
    node = await tree_of(metadata).get("INSTANCEID")
    return None if node is None else node.data.decode()
