"""Values that change by compare-and-set."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Final

from bkclient import BookKeeper
from bkclient._news import wait_for_news
from bkclient.coordination.names import check_name
from bkclient.errors import ArgumentError, MetadataOutcomeUnknown, MetadataStoreError, MetadataVersionConflict

__all__ = ["RegisterValue", "VersionedRegister"]

_LOOK_S: Final = 10.0
"""How often to look although no watch fired, in case one was lost."""
_BYTES_MAX: Final = 1_000_000
"""Below the 1 MiB that ZooKeeper takes by default."""
_ATTEMPTS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class RegisterValue:
    """What a register holds, as of one version. Versions of a register count up from 0, and begin anew after a deletion."""

    data: bytes = field(repr=False)
    version: int


class VersionedRegister:
    """A value of at most 1,000,000 bytes, under a name of the application, that changes by compare-and-set.

    Names in different directories, which may be nested by slashes, are different.

    ::

        register = VersionedRegister(bk, "index-position")
        value = await register.read()
        await register.write(b"42", value.version)

    All clients of a cluster see the same registers, and see them change in one order: a read sees every write that ended
    before it began. Methods raise :class:`~bkclient.errors.MetadataStoreError` when the metadata service does not answer.
    """

    def __init__(self, client: BookKeeper, name: str, *, directory: str = "registers") -> None:
        self._tree = client.node_tree()
        self._path = "/".join(
            (*(check_name("directory", part) for part in directory.split("/")), check_name("name", name))
        )

    def __repr__(self) -> str:
        return f"<VersionedRegister {self._path}>"

    async def read(self) -> RegisterValue | None:
        """The present value; None if there is none."""
        node = await self._tree.get(self._path)
        return None if node is None else RegisterValue(node.data, node.version)

    async def create(self, data: bytes) -> RegisterValue:
        """Make the register.

        Raises :class:`~bkclient.errors.MetadataVersionConflict` if it exists. That may be by this very call, if its answer was
        lost and it was repeated: data that no other program writes tells.
        """
        self._check(data)
        if await self._tree.create(self._path, data) is None:
            raise MetadataVersionConflict(f"the register {self._path} exists")
        return RegisterValue(bytes(data), 0)

    async def write(self, data: bytes, version: int) -> RegisterValue:
        """Replace the value if it still has ``version``.

        Raises :class:`~bkclient.errors.MetadataVersionConflict` if it has not or is gone, and
        :class:`~bkclient.errors.MetadataOutcomeUnknown` if the connection was lost in between: :meth:`read` tells.
        """
        self._check(data)
        self._check_version(version)
        if not await self._tree.write(self._path, data, version):
            raise MetadataVersionConflict(f"the register {self._path} is gone, or has another version than {version}")
        return RegisterValue(bytes(data), version + 1)

    async def change(self, function: Callable[[bytes | None], bytes]) -> RegisterValue:
        """Replace the value by what ``function`` makes of it (None: there is none), again after every conflict.

        A write whose outcome is unknown is repeated too, on the value that is found then. So ``function`` is called with
        its own result where that had been written, and should return it unchanged then; returning what it was given writes
        nothing.
        """
        for _ in range(_ATTEMPTS_MAX):
            value = await self.read()
            data = function(None if value is None else value.data)
            if value is not None and data == value.data:
                return value
            try:
                return await (self.create(data) if value is None else self.write(data, value.version))
            except (MetadataVersionConflict, MetadataOutcomeUnknown):
                continue
        raise MetadataStoreError(f"the register {self._path} changes as often as it is read")

    async def delete(self, version: int | None = None) -> None:
        """Remove the register, if it has ``version`` where one is given. Succeeds if there is none.

        A register that is made anew begins with version 0. So a program that read an earlier one of this name may write over it:
        where that matters write a value that means "none" instead.

        Raises :class:`~bkclient.errors.MetadataVersionConflict` if it has another one.
        """
        if not await self._tree.delete(self._path, version):
            raise MetadataVersionConflict(f"the register {self._path} has another version than {version}")

    async def watch(self) -> AsyncGenerator[RegisterValue | None, None]:
        """The value now, and after every change; None where there is none. Changes in quick succession are told by the last."""
        changed = asyncio.Event()
        cancel = self._tree.watch(self._path, changed.set)
        told: RegisterValue | None = None
        is_first = True
        try:
            while True:
                changed.clear()
                value = await self.read()
                if is_first or value != told:
                    told, is_first = value, False
                    yield value
                await wait_for_news(changed, _LOOK_S)
        finally:
            cancel()

    def _check(self, data: object) -> None:
        if not isinstance(data, bytes):
            raise ArgumentError(f"data must be bytes, got {type(data).__name__}")
        if len(data) > _BYTES_MAX:
            raise ArgumentError(f"data must have at most {_BYTES_MAX} bytes, got {len(data)}")

    def _check_version(self, version: object) -> None:
        if isinstance(version, bool) or not isinstance(version, int) or version < 0:
            raise ArgumentError(f"version must be a whole number >= 0, got {version!r}")
