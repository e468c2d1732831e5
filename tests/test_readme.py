"""README does what it says: its program and its commands run as they stand there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.tools.following import FollowingError, cluster, run
from tests.tools.newcomer_readme import README, follow, steps_of

ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


@pytest.mark.deep
def test_a_newcomer_can_follow_readme_word_by_word(tmp_path: Path) -> None:
    steps = steps_of(README.read_text())
    assert steps.install == 'pip install "bkclient[sim]"'
    printed = dict(follow(steps, ENVIRONMENT, tmp_path))
    assert printed["bk-sim cluster"].startswith("export BK_METADATA_URI=zk://127.0.0.1:")
    assert printed["python first.py"].splitlines() == [
        "0 stored by two of three bookies when this returns",
        "1 entry 0",
        "2 entry 1",
        "ledger 0 has 1001 entries",
    ]
    assert printed["python second.py"] == "customer-7 one tea\n"
    assert printed["seq 1000 | bk ledger append --create"].startswith("ledger 1: 1000 entries, ")
    assert printed["bk ledger read 1 --first 998"].splitlines() == ["999", "1000"]


@pytest.mark.parametrize("command", ["echo wrong >&2", "exit 3"])
def test_a_command_that_fails_or_complains_is_noticed(command: str, tmp_path: Path) -> None:
    with pytest.raises(FollowingError, match="ended with"):
        run(command, ENVIRONMENT, tmp_path)


def test_a_cluster_that_does_not_start_is_noticed(tmp_path: Path) -> None:
    with (
        pytest.raises(FollowingError, match="did not come to serve"),
        cluster("bk-sim cluster --no", ENVIRONMENT, tmp_path),
    ):
        pass


_INSTALL = "## Install\n\n    pip install x\n\n"


@pytest.mark.parametrize(
    "page",
    [
        "",
        _INSTALL,
        f"{_INSTALL}## A first program\n\n```python\n```\n\n    run\n",
        f"{_INSTALL}## A first program\n\n    run\n\n## With a cluster\n\n    start\n    run\n    command\n",
        f"{_INSTALL}## A first program\n\n```python\n```\n\n    run\n\n## With a cluster\n\n    start\n    run\n",
    ],
)
def test_a_readme_without_its_steps_is_noticed(page: str) -> None:
    with pytest.raises(FollowingError, match="README"):
        steps_of(page)
