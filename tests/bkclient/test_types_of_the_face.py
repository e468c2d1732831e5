"""An application on the public names type-checks as strictly as there is, and misspelt names do not."""

from __future__ import annotations

from pathlib import Path

import pytest

api = pytest.importorskip("mypy.api", reason="environments of other Pythons have no tools")

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def check(tmp_path: Path, source: str) -> list[str]:
    """What mypy says of an application, by itself: in a folder of its own, knowing the package only as installed."""
    program = tmp_path / "application.py"
    program.write_text(source, encoding="utf-8")
    options = ["--strict", "--no-error-summary", "--cache-dir", str(ROOT / ".mypy_cache" / "face"), "--config-file="]
    out, failures, _ = api.run([*options, str(program)])
    assert failures == "", failures
    return [line.partition("error: ")[2] for line in out.splitlines() if "application.py" in line]


@pytest.mark.deep
@pytest.mark.timeout(600)
def test_an_application_type_checks_strictly_and_what_is_wrong_in_it_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MYPYPATH", str(ROOT))
    source = (HERE / "application.py").read_text(encoding="utf-8")

    assert check(tmp_path, source) == []

    wrong = source.replace("bkclient.connect(uri)\n", "bkclient.conect(uri)\n").replace(
        "reader.aclose()", "reader.close()"
    )
    assert {message.partition("  [")[2].rstrip("]") for message in check(tmp_path, wrong)} == {
        "attr-defined",
        "assert-type",
    }
