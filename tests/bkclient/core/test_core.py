"""Which core is in use, and that the compiled one takes nothing and leaves nothing behind."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from typing import Any

import pytest

import bkclient
from bkclient._core import CORES, VARIABLE, using_core, ways_of
from bkclient._cython import sources_digest
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
#: A core that was built from sources with this digest, and whose twins of entries are these functions.
SAY_WITH = """
import sys, types
entries = sys.modules["bkclient._cython.entries"] = types.ModuleType("entries")
{core}
import bkclient
from bkclient._core import has_twins
has_twins("entries", object, "encode", "decode", knows=(1,))
print(bkclient.core_in_use())
"""
_FITS = f"entries.BUILT_FROM = {sources_digest()!r}"
STALE = {
    "of other sources": ("entries.BUILT_FROM = 'other'", "its sources have changed since it was built"),
    "of unknown sources": ("", "its sources have changed since it was built"),
    "nothing to bind": (_FITS, "entries: module 'entries' has no attribute 'bind'"),
    "knows less": (f"{_FITS}; entries.bind = lambda owner: {{}}", "entries: .* takes 1 positional argument but"),
    "has less": (
        f"{_FITS}; entries.bind = lambda *known: {{'decode': None}}",
        "entries has twins of decode, and not of",
    ),
}


def outcome(program: str, core: str | None) -> tuple[int, str]:
    """The exit code of a program, and what it wrote: warnings and errors first."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    if core is not None:
        environment[VARIABLE] = core
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, env=environment, capture_output=True, text=True, timeout=60
    )
    return done.returncode, (done.stderr + done.stdout).strip()


def said(program: str, core: str | None) -> tuple[int, str]:
    """The exit code of a program, and the last line that it wrote."""
    code, text = outcome(program, core)
    return code, text.splitlines()[-1]


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


@pytest.mark.parametrize("stale", STALE)
@pytest.mark.parametrize("wanted", [None, "python", "cython"])
def test_a_core_that_does_not_fit_is_not_used_and_what_to_do_is_said(stale: str, wanted: str | None) -> None:
    core, reason = STALE[stale]
    code, said_of_it = outcome(SAY_WITH.format(core=core), wanted)
    if wanted == "python":
        assert (code, said_of_it) == (0, "python")
        return
    assert re.search(rf"the compiled core does not fit this bkclient \({reason}.*\), so it is not used", said_of_it)
    assert "build it again with 'make core' in a checkout, or install bkclient again" in said_of_it
    if wanted is None:
        assert "RuntimeWarning: the compiled" in said_of_it
        assert (code, said_of_it.splitlines()[-1]) == (0, "python")
    else:
        assert "ImportError: BKCLIENT_CORE is cython, but the compiled" in said_of_it
        assert code == 1


@needs_compiled_core
def test_what_a_core_replaced_is_put_back_when_the_rest_of_it_does_not_fit() -> None:
    program = f"""
import bkclient, bkclient.wire.entry, bkclient.protocol.adds as adds
from bkclient._core import has_twins, is_built, using_core
compiled = adds.PendingAdds.push
has_twins("counting", adds.PendingAdds, "something")
assert adds.PendingAdds.push.__code__.co_filename.endswith("adds.py") and compiled is not adds.PendingAdds.push
assert not is_built()
import bkclient.wire.v2 as v2
assert v2.AddPacketEncoder.encode.__code__.co_filename.endswith("v2.py")
{SAY}"""
    code, text = outcome(program, None)
    assert (code, text.splitlines()[-1]) == (0, "python"), text
    assert text.count("RuntimeWarning: ") == 1


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
