"""Which core is in use, and that the compiled one takes nothing and leaves nothing behind."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from asyncio import Future, InvalidStateError
from typing import Any

import pytest

import bkclient
from bkclient._client.writing import settling
from bkclient._core import CORES, VARIABLE, has_twins, using_core, ways_of
from bkclient.ledger import DigestType
from bkclient.protocol.adds import PendingAdds
from bkclient.protocol.quorum import QuorumSizes
from bkclient.wire import chunks, v2, v3
from bkclient.wire.entry import EntryCodec
from bkclient.wire.messages import AddTemplate
from tests.bkclient.core.both_cores import needs_compiled_core

#: What a program says of its core, if it finds the compiled one or not.
SAY = "import bkclient; print(bkclient.core_in_use())"
SAY_WITHOUT = f"import sys; sys.modules['bkclient._cython.entries'] = None; {SAY}"


def said(program: str, core: str | None) -> tuple[int, str]:
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    if core is not None:
        environment[VARIABLE] = core
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, env=environment, capture_output=True, text=True, timeout=60
    )
    return done.returncode, (done.stdout or done.stderr.splitlines()[-1]).strip()


def test_the_core_is_one_of_two() -> None:
    assert bkclient.core_in_use() in CORES


def test_the_variable_forces_the_core_in_python() -> None:
    assert said(SAY, "python") == (0, "python")


def test_without_the_compiled_core_everything_is_python() -> None:
    assert said(SAY_WITHOUT, None) == (0, "python")
    assert said(SAY_WITHOUT, "") == (0, "python")


@needs_compiled_core
def test_where_it_was_built_it_is_used() -> None:
    assert said(SAY, None) == (0, "cython")
    assert said(SAY, "cython") == (0, "cython")


def test_a_compiled_core_that_was_asked_for_and_is_not_there_is_an_error() -> None:
    code, error = said(SAY_WITHOUT, "cython")
    assert code == 1
    assert error.startswith("ImportError: BKCLIENT_CORE is cython, but the compiled core was not built")


def test_an_unknown_core_is_an_error() -> None:
    assert said(SAY, "rust") == (1, "ImportError: BKCLIENT_CORE must be one of python, cython, got 'rust'")


def test_no_core_is_used_that_is_not_there() -> None:
    with pytest.raises(ImportError, match="the core rust is not there"), using_core("rust"):
        pass


@needs_compiled_core
def test_functions_are_replaced_and_put_back() -> None:
    with using_core("python"):
        definition = PendingAdds.push
        assert definition.__code__.co_filename.endswith("adds.py")
        with using_core("cython"):
            assert PendingAdds.push is not definition
            assert ways_of(PendingAdds, "push") == (definition, PendingAdds.push)
        assert PendingAdds.push is definition


@needs_compiled_core
def test_a_core_that_lacks_a_twin_is_refused() -> None:
    with pytest.raises(AssertionError, match="counting has twins of settle"):
        has_twins(
            "counting",
            chunks,
            "settled",
            bind="bind_settle",
            knows=(Future, InvalidStateError, settling.InOrder),
        )


SIZES = QuorumSizes(2, 2, 2)


def use_every_twin() -> None:
    codec = EntryCodec(1, DigestType.CRC32C, b"")
    header = codec.encode_header(5, 4, 100, b"payload")
    codec.decode(header + b"payload", 5)
    codec.decode(header + b"payload", None)
    codec.decode_several((5,), (header + b"payload",))
    template = AddTemplate(ledger_id=1, master_key=bytes(20))
    known: dict[bytes, Any] = {}
    for encoder in (v2.AddPacketEncoder(template), v3.AddEncoder(template)):
        _, stored, size = encoder.encode(7, 5, header, b"payload")
        known[stored] = (5, "token", 1.0, size)
    found = chunks.taken(b"".join(known), known)
    chunks.runs_of(found[0])
    chunks.bodies_in(b"\x00\x00\x00\x18\x02\x02" + bytes(30), {}, 2, 100)
    adds = PendingAdds(SIZES, ("a", "b"))
    adds.push(b"payload", -1)
    adds.acknowledge_all("a", [0, 1])
    adds.acknowledge_all("b", [0, 1])
    adds.complete()


@needs_compiled_core
def test_nothing_leaks() -> None:
    with using_core("cython"):
        for _ in range(50):
            use_every_twin()
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(500):
            use_every_twin()
        gc.collect()
        assert sys.getallocatedblocks() - before < 250
