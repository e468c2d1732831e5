"""What an append or a read takes of the client, in instructions: exact, because time on a busy machine tells little.

Valgrind runs the client and counts what its processor would execute while it works, without start, first entries and end. There
is no network: a bookie's socket is an object that forgets what is written to it, and at the next turn of the loop answers it,
acknowledgements in chunks of ``--chunk``. It takes what it answers from where the client waits for it, so it adds little: next to
nothing to an append or a batch, and some thousand instructions to an entry that is read by itself. System calls and the memory's
speed are not counted; :mod:`benchmarks.append` and :mod:`benchmarks.read` measure them. ``--bytecodes`` counts the interpreter's
instead of the processor's, which needs no Valgrind: those of the client and of asyncio.

    python -m benchmarks.instructions
    python -m benchmarks.instructions --core cython --protocol 2 --size 1024 --functions 40
    python -m benchmarks.instructions --what range --what batch --size 1024
    python -m benchmarks.instructions --ensemble 5 --write-quorum 3 --ack-quorum 2
    python -m benchmarks.instructions --ledgers 1000 --bookies 5

Ledgers of more than one ensemble take ``--bookies`` beyond ``--ensemble``: each ledger has bookies of its own, chosen by a seed.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Final, NamedTuple, cast

import typer

from benchmarks.measuring import LOOPS, run_on_loop
from bkclient import BookKeeper, ClientConfig, DigestType
from bkclient.metadata.base import BookieAddress
from bkclient.metadata.memory import MemoryMetadataService
from bkclient.transport.link import NewConnection
from bkclient.transport.tcp import TcpConnector
from bkclient.transport.tcp_config import TcpTransportConfig
from bkclient.wire.bodies import LENGTH_SIZE
from bkclient.wire.entry import EntryCodec
from bkclient.wire.framing import frame
from bkclient.wire.v3_add import varint
from tests.bkclient.transport import sockets
from tests.bkclient.transport.sockets import SocketObject, resolve, transport_with

WINDOW: Final = 1000
#: Entries before anything is counted, and those that are.
WARM, COUNTED = 2_000, 6_000
#: Entries of a batch that is called for.
PIECE: Final = 1_000
#: What the client may do, in words of the report.
WORK: Final = {
    "append": "an append",
    "append-all": "an append of many",
    "range": "an entry of a range",
    "batch": "an entry of batches",
}
#: The environment variable that chooses a core, and the cores that are there.
VARIABLE: Final = "BKCLIENT_CORE"
THERE: Final = ["python"] if find_spec("bkclient._cython.answers") is None else ["python", "cython"]
#: What stands for bookies, which is not counted.
_BOOKIES: Final = (__file__, sockets.__file__)


class Sizes(NamedTuple):
    """Of ledgers: E, Qw and Qa, and how many bookies there are to choose from."""

    ensemble: int
    write_quorum: int
    ack_quorum: int
    bookies: int

    @property
    def quorums(self) -> dict[str, Any]:
        """For the creation of a ledger."""
        return dict(zip(("ensemble_size", "write_quorum_size", "ack_quorum_size"), self, strict=False))


class _Socket(SocketObject):
    """Answers whatever is written."""

    def __init__(self, stream: Any, chunk: int, bodies: list[bytes]) -> None:
        super().__init__(stream)
        self._chunk = chunk
        self._bodies = bodies
        self._loop = asyncio.get_running_loop()
        self._sent = 0

    def writelines(self, buffers: list[bytes]) -> None:  # noqa: ARG002 - they are forgotten
        connection = self.stream.connection
        self._sent = len(connection.adds) + connection.runs.outstanding
        self._loop.call_soon(self._answer)

    def _answer(self) -> None:
        connection = self.stream.connection
        for chunk in list(_acknowledgements(connection, self._sent, self._chunk)):
            self.feed(chunk)
        self._sent = 0
        if connection.reads:
            self.feed(b"".join([self._answer_to(key, read) for key, read in connection.reads.items()]))
        for key, entry in list(connection.outstanding.entries.items()):
            self.feed(self._batch_for(key, entry[0]))

    def _answer_to(self, match: bytes, read: tuple[Any, ...]) -> bytes:
        """The good answer to a read that the client waits for."""
        body = self._bodies[read[1]][LENGTH_SIZE:]
        if not read[0]:
            content = b"\x02\x02\x00\x00\x00\x00\x00\x00" + match[1:] + body
        else:
            message = b"%b%b%b" % (read[0], varint(len(body)), body)
            content = b"%b\x10\x00\xa2\x06%b%b" % (match, varint(len(message)), message)
        return frame(content)

    def _batch_for(self, match: bytes, request: Any) -> bytes:
        """As many entries as were asked for, as long as there are any."""
        first = request.entry_id
        head = struct.pack(">BBHiqq8s", 2, 7, 0, 0, request.ledger_id, first, match[1:])
        return frame(head + b"".join(self._bodies[first : first + request.max_count]))


def _acknowledgements(connection: Any, count: int, most: int) -> Iterator[bytes]:
    """Those of the first adds that are outstanding, ``most`` in a chunk; of runs in one slice, which takes next to nothing."""
    adds = list(itertools.islice(connection.adds, count))
    for at in range(0, len(adds), most):
        yield b"".join(adds[at : at + most])
    left, first = count - len(adds), connection.runs.first
    for run in connection.runs:
        size, end = run.frame_size, min(len(run.entry_ids), first + left)
        for at in range(first, end, most):
            yield run.acknowledgements[at * size : min(at + most, end) * size]
        left -= end - first
        first = 0


class _Connector(TcpConnector):
    def __init__(self, config: TcpTransportConfig, chunk: int) -> None:
        super().__init__(resolve, config, None)
        self._per_chunk = chunk
        #: What every bookie has of the ledger that is read: each body behind its length.
        self.bodies: list[bytes] = []

    async def connect(self, bookie_id: str, protocol_version: int, new: NewConnection) -> None:
        stream = self.new_stream(bookie_id, protocol_version, new)
        stream.connection_made(cast("asyncio.Transport", _Socket(stream, self._per_chunk, self.bodies)))


def instrument(switch: str) -> None:
    """Have Valgrind count from now on, or no more."""
    subprocess.run(["callgrind_control", f"--instr={switch}", str(os.getpid())], check=True, stdout=subprocess.DEVNULL)


class Bytecodes:
    """Counts what the interpreter executes in functions that are called while it is switched on."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, switch: str) -> None:
        """Count from now on, or no more."""
        sys.settrace(self._on_event if switch == "on" else None)

    def _on_event(self, frame: FrameType, event: str, _: object) -> Any:
        code = frame.f_code
        if code.co_filename in _BOOKIES or "expire" in code.co_qualname:
            return None  # and what is done when time has passed
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        self.count += event == "opcode"
        return self._on_event


async def work(
    count: Callable[[str], None], what: str, protocol: int, size: int, ledgers: int, chunk: int, *sizes: int
) -> None:
    """What a child does: it appends to ``ledgers`` in turn, as many in flight as the window takes, or reads one of them."""
    config = ClientConfig().with_changes(
        connections={"protocol_version": protocol},
        limits={"max_in_flight_entries": WINDOW, "max_client_in_flight_entries": max(2, WINDOW)},
        writing={"explicit_lac_interval_s": 0.0},
        timeouts={"add_s": 600.0},
    )
    transport_config = TcpTransportConfig.of_client(config)
    connector = _Connector(transport_config, chunk)
    transport = transport_with(transport_config, connector)
    rng = random.Random(2)
    payload = bytes(size)
    of_ledgers = Sizes(*sizes)
    async with MemoryMetadataService().session(rng=rng) as store:
        for number in range(of_ledgers.bookies):
            bookie_id = f"b{number}"
            await store.register_bookie(bookie_id, BookieAddress(bookie_id, 1))
        async with BookKeeper(store, transport, config=config, rng=rng) as client:
            if what == "append":
                await _append(client, of_ledgers, count, payload, ledgers)
            elif what == "append-all":
                await _append_all(client, of_ledgers, count, payload)
            else:
                await _read(client, of_ledgers, connector.bodies, count, payload, what)


async def _append(client: BookKeeper, sizes: Sizes, count: Callable[[str], None], payload: bytes, ledgers: int) -> None:
    writers = [await client.create_ledger(**sizes.quorums) for _ in range(ledgers)]
    for writer in writers:
        await writer.append(payload)
    in_turn = itertools.cycle(writers)
    for writer in itertools.islice(in_turn, WARM):
        await writer.submit(payload)
    count("on")
    for writer in itertools.islice(in_turn, COUNTED):
        await writer.submit(payload)
    count("off")
    for writer in writers:
        await writer.flush()
        await writer.close()


async def _append_all(client: BookKeeper, sizes: Sizes, count: Callable[[str], None], payload: bytes) -> None:
    async with await client.create_ledger(**sizes.quorums) as writer:
        await writer.append_all(itertools.repeat(payload, WARM))
        count("on")
        await writer.append_all(itertools.repeat(payload, COUNTED))
        count("off")


async def _read(
    client: BookKeeper, sizes: Sizes, bodies: list[bytes], count: Callable[[str], None], payload: bytes, what: str
) -> None:
    async with await client.create_ledger(**sizes.quorums) as writer:
        size = len(payload)
        codec = EntryCodec(writer.ledger_id, DigestType.CRC32C, b"")
        for entry_id in range(WARM + COUNTED):
            await writer.submit(payload)
            header = codec.encode_header(entry_id, entry_id - 1, (entry_id + 1) * size, payload)
            bodies.append(struct.pack(">i", len(header) + size) + header + payload)
    async with await client.open_ledger(writer.ledger_id) as reader:
        if what == "batch":
            for first in range(0, WARM + COUNTED, PIECE):
                if first == WARM:
                    count("on")
                assert len(await reader.read_batch(first, PIECE)) == PIECE
        else:
            async for entry in reader.read_range(0, WARM + COUNTED - 1):
                if entry.entry_id == WARM - 1:
                    count("on")
        count("off")


def counted(unit: str, arguments: list[str], core: str, file: Path) -> int:
    """Instructions or bytecodes of one run."""
    valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={file}"]
    command = [*(valgrind if unit == "instructions" else ()), sys.executable, "-m", "benchmarks.instructions"]
    environment = {**os.environ, VARIABLE: core, "PYTHONHASHSEED": "0"}
    command += ["child", unit, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    found = re.search(r"Collected : (\d+)", done.stderr + done.stdout)
    if done.returncode or found is None:
        raise SystemExit(done.stderr)
    return int(found[1])


def main(
    what: Annotated[list[str], typer.Option(help=f"One of {', '.join(WORK)}; again for more.")] = ["append"],  # noqa: B006
    core: Annotated[list[str], typer.Option(help="Python, or the compiled core; again for both.")] = THERE,
    protocol: Annotated[list[int], typer.Option(help="Protocol version; again for both.")] = [3, 2],  # noqa: B006
    size: Annotated[list[int], typer.Option(help="Bytes of payload.")] = [100, 1024],  # noqa: B006
    ledgers: Annotated[int, typer.Option(help="How many are appended to in turn.")] = 1,
    ensemble: Annotated[int, typer.Option(help="Bookies of a ledger.")] = 3,
    write_quorum: Annotated[
        int | None, typer.Option(help="Bookies of an entry; all of the ledger's by default.")
    ] = None,
    ack_quorum: Annotated[int | None, typer.Option(help="How many acknowledge it; a majority by default.")] = None,
    bookies: Annotated[int, typer.Option(help="Of which ledgers get theirs; as many as needed by default.")] = 0,
    chunk: Annotated[list[int], typer.Option(help="Acknowledgements that arrive together.")] = [32],  # noqa: B006
    loop: Annotated[str, typer.Option(help="Event loop.")] = LOOPS[0],
    functions: Annotated[int, typer.Option(help="Tell of so many functions of the processor, too.")] = 0,
    bytecodes: Annotated[bool, typer.Option(help="Count those of the interpreter instead.")] = False,  # noqa: FBT002
) -> None:
    """Count the instructions of an append, or of an entry that is read."""
    unit = "bytecodes" if bytecodes else "instructions"
    replicas = write_quorum or ensemble
    sizes = Sizes(ensemble, replicas, ack_quorum or replicas // 2 + 1, max(bookies, ensemble))
    for kind, version, payload, together, name in itertools.product(what, protocol, size, chunk, core):
        if kind != "append" and together != chunk[0]:
            continue  # answers to reads come together
        arguments = [loop, kind, *map(str, (version, payload, ledgers, together, *sizes))]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "callgrind"
            each = counted(unit, arguments, name, file) / COUNTED
            how = f", {ledgers} ledgers, chunks of {together}" if kind == "append" else ""
            where = "/".join(map(str, sizes[:3])) + (f" of {sizes.bookies} bookies" if bookies > ensemble else "")
            print(f"v{version}, {payload} B, {where}{how}, {name}: {each:,.0f} {unit} of {WORK[kind]}", flush=True)
            if functions and not bytecodes:
                _tell(file, functions)


def _tell(file: Path, most: int) -> None:
    told = subprocess.run(
        ["callgrind_annotate", "--threshold=100", str(file)], capture_output=True, text=True, check=True
    )
    totals: Counter[str] = Counter()
    for count, name in re.findall(
        r"^\s*([\d,]+) \([^)]*\)\s+(?:\S*:)?(.+?)(?: \[.*)?$", told.stdout, flags=re.MULTILINE
    ):
        totals[name] += int(count.replace(",", ""))
    for name, count in totals.most_common(most):
        print(f"{count / COUNTED:10,.0f}  {name}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        traced = Bytecodes()
        meter: Callable[[str], None] = instrument if sys.argv[2] == "instructions" else traced
        run_on_loop(sys.argv[3], work(meter, sys.argv[4], *map(int, sys.argv[5:])))
        print(f"Collected : {traced.count}")
    else:
        typer.run(main)
