from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simbookie.world.ledger_program import Run, digest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("seed", range(6))
def test_the_shipped_client_loses_nothing_that_it_acknowledged_in_a_world_that_breaks(seed: int) -> None:
    run = Run(seed)
    assert len(run.acked) > 50
    assert run.acked == list(range(len(run.acked)))
    assert run.read[: len(run.acked)] == [b"%d" % number for number in run.acked]
    assert any(" restarted " in line or " cut " in line or " pause " in line for line in run.log), "something broke"


def test_a_run_of_the_shipped_client_is_the_same_every_time_and_in_every_process() -> None:
    first = Run(4)
    assert Run(4).log == first.log
    environment = {**os.environ, "PYTHONHASHSEED": "99"}
    command = [sys.executable, "-W", "error", "-m", "tests.simbookie.world.ledger_program", "4"]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == digest(4)
    assert digest(5) != digest(4)
