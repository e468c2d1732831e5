"""The page about tests can be followed to the replay of a failure, and a step that goes wrong is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_readme import ENVIRONMENT
from tests.tools.following import FollowingError
from tests.tools.newcomer_testing import PAGE, Command, Program, Steps, follow, is_in, steps_of

#: The plugins of a newcomer: no other one.
ALONE = {**ENVIRONMENT, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "scenarios.testing.plugin"}
REPLAY = "pytest 'test_careless.py::test_counts_once[seed-2]' --bk-seed 2"
INSTALL = '    pip install "bkclient[test]"\n\n'
FAILING = """    pytest test_it.py

```text
seed 0, ...
again:    pytest ...
```
"""


@pytest.mark.deep
@pytest.mark.timeout(300)
def test_the_page_about_tests_can_be_followed_word_by_word(tmp_path: Path) -> None:
    steps = steps_of(PAGE.read_text(encoding="utf-8"))
    assert steps.install == 'pip install "bkclient[test]"'
    done = list(follow(steps, ALONE, tmp_path, ALONE))
    lines = [step.command for step in done]
    assert [step.command for step in done if step.is_replay] == [REPLAY]
    failed = done[lines.index(REPLAY) - 1]
    assert failed.command == "pytest test_careless.py --bk-seeds 3"
    assert done[lines.index(REPLAY)].printed == failed.printed
    assert failed.printed.startswith("E       assert 200 == 100\nseed 2, ended after ")
    history = done[lines.index(REPLAY) + 1]
    assert history.command.startswith("bk-chaos show ")
    assert "no violation" in history.printed
    saved = {step.name for step in steps.others if isinstance(step, Program)}
    tried = {line.split()[1] for line in lines if line.startswith("pytest ") and line != REPLAY}
    assert saved - tried == {"counter.py"}


def _follow(program: str, tmp_path: Path) -> list[str]:
    steps = Steps("pip install x", (Program("test_it.py", program), Command(*_command())))
    return [done.command for done in follow(steps, ALONE, tmp_path)]


def _command() -> tuple[str, str]:
    (command,) = (step for step in steps_of(INSTALL + FAILING).others if isinstance(step, Command))
    return f"{command.line} --bk-seeds 1", command.shown


@pytest.mark.deep
@pytest.mark.parametrize(
    ("program", "complaint"),
    [
        ("async def test_it(bk_world):\n    pass\n", "ended with 0, not 1"),
        ("def test_it():\n    assert False\n", "does not print"),
        (
            (
                "import pathlib\n\nasync def test_it(bk_world):\n    tried = pathlib.Path('tried').exists()\n"
                "    pathlib.Path('tried').touch()\n    assert not tried and tried\n"
            ),
            "does not print",
        ),
    ],
    ids=["passes", "fails without a world", "fails otherwise the second time"],
)
def test_a_failure_that_does_not_come_again_is_noticed(program: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(FollowingError, match=complaint):
        _follow(program, tmp_path)


@pytest.mark.parametrize(
    "page",
    ["", FAILING, INSTALL, f"{INSTALL}    pytest test_it.py\n", f"```python\n# test_it.py\n```\n\n{INSTALL}{FAILING}"],
)
def test_a_page_without_its_steps_is_noticed(page: str) -> None:
    with pytest.raises(FollowingError, match="the page"):
        steps_of(page)


@pytest.mark.parametrize(
    ("printed", "shown", "is_there"),
    [
        ("a\nb\nc\n", "a\nc\n", True),
        ("a\nb\nc\n", "c\na\n", False),
        ("a\n", "a\na\n", False),
        ("took 0.3 s (so)\n", "took ... s\n", True),
        ("a\n", "a\n...\nb\n", False),
        ("a\nx\nb\n", "a\n...\nb\n", True),
    ],
)
def test_lines_are_found_in_their_order(printed: str, shown: str, *, is_there: bool) -> None:
    assert is_in(printed, shown) == is_there
