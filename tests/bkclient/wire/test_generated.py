"""The committed protobuf modules are what the compiler makes of the committed definitions."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from bkclient.wire import bookkeeper_pb2, metadata_pb2

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.skipif(importlib.util.find_spec("grpc_tools") is None, reason="grpcio-tools is not installed")
def test_regenerating_gives_the_committed_bytes(tmp_path: Path) -> None:
    tool = ROOT / "tests/tools/generate_wire.py"
    subprocess.run([sys.executable, tool, "--output", tmp_path], check=True, cwd=tmp_path, timeout=60)
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*_pb2.py*") if path.is_file())
    packages = [ROOT / "bkclient", ROOT / "simbookie"]
    committed = sorted(
        path.relative_to(ROOT) for each in packages for path in each.rglob("*_pb2.py*") if path.suffix != ".pyc"
    )
    assert made == committed
    for path in made:
        assert (tmp_path / path).read_bytes() == (ROOT / path).read_bytes(), f"{path} is stale or was edited"


def test_both_definitions_live_in_one_process_under_names_of_their_own() -> None:
    assert bookkeeper_pb2.DESCRIPTOR.package == "bkclient.wire.v3"
    assert metadata_pb2.DESCRIPTOR.package == "bkclient.wire.metadata"


def test_the_modules_are_marked_as_generated() -> None:
    for module in (bookkeeper_pb2, metadata_pb2):
        assert module.__file__ is not None
        assert "DO NOT EDIT" in Path(module.__file__).read_text(encoding="utf-8")[:200]
