"""The names of the package: type checkers read one list of them, Python another; they have to agree."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import bkclient

SOURCE = ast.parse(Path(bkclient.__file__).read_text(encoding="utf-8"))


def imports_for_type_checkers() -> dict[str, str]:
    """Names by the module that they are imported from. Only ``import x as x`` passes a name on, for Pyright and mypy alike."""
    test = "TYPE_CHECKING"
    block = next(node for node in SOURCE.body if isinstance(node, ast.If) and ast.unparse(node.test) == test)
    found = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for name in node.names:
            assert name.asname == name.name
            found[name.name] = node.module or ""
    return found


def test_type_checkers_know_every_name_and_where_it_comes_from() -> None:
    assert imports_for_type_checkers() == {**bkclient._MODULES, "errors": "bkclient"}
    assert sorted(imports_for_type_checkers()) == bkclient.__all__


@pytest.mark.parametrize("name", bkclient.__all__)
def test_every_name_is_there_without_another_import(name: str) -> None:
    code = f"import bkclient; print(bkclient.{name}.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() in {name, f"bkclient.{name}"}


def test_other_names_are_not_there() -> None:
    assert not hasattr(bkclient, "nothing")
    assert {*bkclient.__all__, "__version__"} <= set(dir(bkclient))


def test_a_command_line_loads_nothing_of_the_client_before_it_can_handle_an_interrupt() -> None:
    code = "import sys, bkclient.cli; print(*sorted(name for name in sys.modules if name.startswith('bkclient')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["bkclient", "bkclient.cli", "bkclient.program"]
