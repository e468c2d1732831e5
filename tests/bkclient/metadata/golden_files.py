"""Znodes that Apache BookKeeper itself made, and how two captures of the same thing are made equal.

Each file in ``golden/`` is one version of BookKeeper: scenes, and the znodes that each of them left below the root of its
cluster. ``make interop`` holds the files to the real thing; the ordinary tests hold our codecs, paths and drivers to the files.

What differs from run to run is replaced before anything is kept or compared (:func:`without_chance`): the instance id, times,
creator tokens, ports and folders of bookies, the name of the machine, and which of several bookies was chosen. The rest is as it
was found, byte by byte. Numbers inside binary messages are replaced field by field without the codecs under test, so the order
of the fields stays what it was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import ZnodeStat

__all__ = ["INSTANCE_ID", "Golden", "Scene", "Znode", "capture", "golden_files", "without_chance", "znodes_below"]

FOLDER: Final = Path(__file__).resolve().parent / "golden"

#: What stands for every instance id, creator token, time in milliseconds, port and name of a machine.
INSTANCE_ID: Final = "11111111-2222-4333-8444-555555555555"
CREATOR_TOKEN: Final = 42
TIME_MS: Final = 1_700_000_000_000
PORT: Final = 3181
MACHINE: Final = "machine"

_HEADER_OF_FORMAT_3: Final = b"BookieMetadataFormatVersion\t3\n"
_UUID: Final = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_TIME_IN_TEXT: Final = re.compile(rb"(?<=\nctime: )[0-9]{13}(?=\n)")
_BOOKIE: Final = re.compile(rb"127\.0\.0\.1:31[0-9]{2}")
_LOCK: Final = re.compile(rb'bookieId: "[^"]+"\n')


@dataclass(frozen=True, slots=True)
class Znode:
    """What a znode holds, how often it was changed, and whether it ends with the session of who made it."""

    data: bytes
    version: int = 0
    is_ephemeral: bool = False


#: Znodes by their paths below the root of the cluster; the root itself is "".
Scene = dict[str, Znode]


@dataclass(frozen=True, slots=True)
class Golden:
    """One file."""

    version: str
    scenes: Mapping[str, Scene]

    @property
    def path(self) -> Path:
        """Where it is kept."""
        return FOLDER / f"bookkeeper-{self.version}.json"

    def with_scene(self, name: str, scene: Scene) -> Golden:
        """The same with this scene instead of what was there of this name."""
        return replace(self, scenes=dict(sorted({**self.scenes, name: scene}.items())))

    def save(self) -> None:
        """Write it."""
        FOLDER.mkdir(exist_ok=True)
        scenes = {
            name: {path: _to_json(scene[path]) for path in sorted(scene)} for name, scene in sorted(self.scenes.items())
        }
        self.path.write_text(json.dumps({"version": self.version, "scenes": scenes}, indent=1) + "\n")


def golden_files() -> list[Golden]:
    """All files."""
    found = []
    for path in sorted(FOLDER.glob("*.json")):
        value = json.loads(path.read_text())
        scenes = {
            name: {path: _from_json(znode) for path, znode in scene.items()} for name, scene in value["scenes"].items()
        }
        found.append(Golden(value["version"], scenes))
    return found


def _to_json(znode: Znode) -> dict[str, Any]:
    is_text = znode.data.isascii() and re.search(rb"[^\n\t -~]", znode.data) is None
    return {
        "text" if is_text else "hex": znode.data.decode() if is_text else znode.data.hex(),
        **({"version": znode.version} if znode.version else {}),
        **({"ephemeral": True} if znode.is_ephemeral else {}),
    }


def _from_json(value: dict[str, Any]) -> Znode:
    data = value["text"].encode() if "text" in value else bytes.fromhex(value["hex"])
    return Znode(data, value.get("version", 0), value.get("ephemeral", False))


def znodes_below(zookeeper: str, root: str, *, passing_over: str = "") -> Iterator[tuple[str, bytes, ZnodeStat]]:
    """``(path, data, stat)`` of ``root``, whose path is empty, and of what is below it but for subtrees ``passing_over``."""
    client = KazooClient(zookeeper)
    client.start(timeout=20)
    try:
        paths = [""]
        while paths:
            path = paths.pop()
            try:
                data, stat = client.get(root + path)
                children = [f"{path}/{name}" for name in client.get_children(root + path)]
            except NoNodeError:
                continue
            paths += [child for child in children if not re.fullmatch(passing_over, child)]
            yield path, data, stat
    finally:
        client.stop()
        client.close()


def capture(
    zookeeper: str, root: str, *, only: str = ".*", names: Mapping[str, str] | None = None, with_chance: bool = False
) -> Scene:
    """The znodes below ``root`` whose paths match ``only``, without chance.

    ``names`` has texts that this run chose, such as the ids of its bookies, and what stands for them.
    """
    found = {
        path: Znode(data, stat.version, stat.ephemeralOwner != 0)
        for path, data, stat in znodes_below(zookeeper, root)
        if re.fullmatch(only, path)
    }
    return found if with_chance else without_chance(found, names or {})


def without_chance(scene: Scene, names: Mapping[str, str]) -> Scene:
    """The znodes without what differs from run to run."""

    def renamed(text: bytes) -> bytes:
        for name, instead in names.items():
            text = text.replace(name.encode(), instead.encode())
        return text

    return {
        (new := renamed(path.encode()).decode()): replace(znode, data=_data_without_chance(new, znode.data, renamed))
        for path, znode in scene.items()
    }


def _data_without_chance(path: str, data: bytes, renamed: Callable[[bytes], bytes]) -> bytes:
    kind, _, rest = path.removeprefix("/").partition("/")
    name = path.rpartition("/")[2]
    if kind == "available" and data:
        return _with_number(data, (6, 2), PORT)
    if kind == "underreplication":
        if rest.startswith("locks/"):
            return _LOCK.sub(b'bookieId: "%s"\n' % MACHINE.encode(), data)
        if name.endswith("ctime"):
            return _with_number(data, (1,), TIME_MS)
        return renamed(_TIME_IN_TEXT.sub(b"%d" % TIME_MS, data))
    if data.startswith(_HEADER_OF_FORMAT_3):
        _, body = _varint(data, len(_HEADER_OF_FORMAT_3))
        message = _with_number(_with_number(data[body:], (10,), TIME_MS), (12,), CREATOR_TOKEN)
        return _HEADER_OF_FORMAT_3 + _encoded(len(message)) + _in_order_of_appearance(message)
    if data.startswith(_HEADER_OF_FORMAT_3[:-2]):
        return _in_order_of_appearance(_TIME_IN_TEXT.sub(b"%d" % TIME_MS, data))
    return renamed(_UUID.sub(INSTANCE_ID.encode(), data))


def _in_order_of_appearance(data: bytes) -> bytes:
    """Number the bookies of a ledger anew: which of them were chosen is chance, and which come again is not."""
    numbers: dict[bytes, int] = {}
    return _BOOKIE.sub(lambda bookie: b"127.0.0.1:%d" % (PORT + numbers.setdefault(bookie[0], len(numbers))), data)


# ---- binary messages, field by field --------------------------------------------------------------------------------


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _encoded(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _with_number(message: bytes, field: tuple[int, ...], value: int) -> bytes:
    """The message with ``value`` in a numeric field wherever that is there and not 0; ``field`` leads to it through messages."""
    made = bytearray()
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        made += _encoded(tag)
        number, kind = tag >> 3, tag & 7
        content, at = _varint(message, at)
        if kind == 0:
            made += _encoded(value if (number,) == field and content else content)
        elif kind == 2:
            inner, at = message[at : at + content], at + content
            if number == field[0] and len(field) > 1:
                inner = _with_number(inner, field[1:], value)
            made += _encoded(len(inner)) + inner
        else:
            raise ValueError(f"a field of wire type {kind}, which no message in ZooKeeper has")
    return bytes(made)
