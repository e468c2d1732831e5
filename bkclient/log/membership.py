"""The consumers of a group, as nodes of their sessions, and which partitions each of them has.

A member is an ephemeral node with a number that grows; it is gone when its session ends. Everybody computes who has which
partition from the same list. Two members may look at different lists for a moment, and take the same partition; the cursor's
compare-and-set refuses the acknowledgements of the one that came first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

import msgpack

from bkclient.coordination.names import check_name
from bkclient.errors import MetadataSerializationError, TooManyRequests
from bkclient.log.errors import ConsumerRefused
from bkclient.log.machine.division import divided
from bkclient.log.store import ManifestStore
from bkclient.metadata.base import Cancel
from bkclient.metadata.paths import sequence_number

__all__ = ["ConsumerMode", "GroupMember", "GroupMembership", "assigned"]

GROUPS: Final = "groups"
MEMBERS_MAX: Final = 1_000
_PREFIX: Final = "member-"


class ConsumerMode(Enum):
    """How the consumers of a group share a log.

    ``EXCLUSIVE``: there is one, and a second one is refused. ``FAILOVER``: one has all messages, and the next one takes over
    when it is gone. ``SHARED``: each has some of the partitions.
    """

    EXCLUSIVE = "exclusive"
    FAILOVER = "failover"
    SHARED = "shared"


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A consumer of a group: its number, the id that it made up, how it consumes, and the name that it gave itself."""

    number: int
    member_id: str
    mode: ConsumerMode
    name: str


def assigned(members: list[GroupMember], partitions: list[int], member_id: str) -> set[int]:
    """The partitions of one member; ``members`` are in the order of their numbers."""
    ids = list(dict.fromkeys(member.member_id for member in members))  # a repeated creation may have made two nodes
    if member_id not in ids:
        return set()
    if members[0].mode is not ConsumerMode.SHARED:
        return set(partitions) if ids[0] == member_id else set()
    return {partition for partition, holder in divided(ids, partitions).items() if holder == member_id}


class GroupMembership:
    """One consumer's place in the group ``group`` of a log."""

    def __init__(self, store: ManifestStore, group: str, mode: ConsumerMode, name: str) -> None:
        self._tree: Final = store.tree
        self._directory: Final = f"{GROUPS}/{store.name}/{check_name('group', group)}"
        self._group: Final = group
        self._mode: Final = mode
        self._name: Final = name
        self.member_id: Final = store.new_id()

    async def members(self) -> list[GroupMember]:
        """All consumers of the group, in the order in which they came."""
        found = []
        for name in await self._tree.children(self._directory):
            try:
                number = sequence_number(name, _PREFIX)
            except ValueError:
                continue
            node = await self._tree.get(f"{self._directory}/{name}")
            if node is not None:
                found.append(_member_from(number, node.data))
        return sorted(found, key=lambda member: member.number)

    async def join(self) -> list[GroupMember]:
        """Become a member, unless one is; all members.

        Raises :class:`~bkclient.log.ConsumerRefused` where the group is another's alone, or consumes in another mode, and
        :class:`~bkclient.errors.TooManyRequests` for one consumer too many.
        """
        members = await self.members()
        if not any(member.member_id == self.member_id for member in members):
            self._check(members)
            data: bytes = msgpack.packb([1, self.member_id, self._mode.value, self._name])
            await self._tree.create(f"{self._directory}/{_PREFIX}", data, is_ephemeral=True, is_sequential=True)
            members = await self.members()
        own = next((member.number for member in members if member.member_id == self.member_id), None)
        before = [member for member in members if own is not None and member.number < own]
        try:
            self._check(before)  # of two that came at the same time the later one goes
        except ConsumerRefused:
            await self.leave()
            raise
        return members

    def _check(self, before: list[GroupMember]) -> None:
        for member in before:
            if member.mode is not self._mode:
                raise ConsumerRefused(
                    f"group {self._group!r} consumes in mode {member.mode.value}, not {self._mode.value}",
                    advice="Use the group's mode, or another group.",
                )
            if member.mode is ConsumerMode.EXCLUSIVE:
                raise ConsumerRefused(f"group {self._group!r} is consumed exclusively by {member.name!r}")
        if len(before) >= MEMBERS_MAX:
            raise TooManyRequests(f"a group has at most {MEMBERS_MAX} consumers")

    async def leave(self) -> None:
        """Be no member any more. Idempotent."""
        for name in await self._tree.children(self._directory):
            path = f"{self._directory}/{name}"
            node = await self._tree.get(path)
            if node is not None and name.startswith(_PREFIX) and _member_from(0, node.data).member_id == self.member_id:
                await self._tree.delete(path)

    def watch(self, listener: Callable[[], None]) -> Cancel:
        """Call ``listener`` soon, and after every change of the members."""
        return self._tree.watch(self._directory, listener)


def _member_from(number: int, data: bytes) -> GroupMember:
    try:
        version, member_id, mode, name = msgpack.unpackb(data)
        if version == 1 and type(member_id) is str and type(name) is str:
            return GroupMember(number, member_id, ConsumerMode(mode), name)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise MetadataSerializationError(f"the record of a consumer is damaged: {error}") from error
    raise MetadataSerializationError(f"the record of a consumer has version {version!r}, known is 1")
