"""``bk-verify replay``."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from spark_analysis.cli.running import Conf, Folder, Json, Master, conclude, in_spark, usable_files
from spark_analysis.defaults import MAX_WITNESSES_DEFAULT
from spark_analysis.jobs.replay import replay
from spark_analysis.report import copies_shown, differing_list, replay_table

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("replay", help=_REPLAY_HELP)(replay_histories)


_REPLAY_HELP: Final = """Make every recorded run again, and compare it with its history, event by event.

A history names scenario, seed, planted defect and transport of its run, which is all that the run depends on. The version that
recorded it makes the same events at the same times; for another version, "ends otherwise" counts the runs that break other
clauses than before.

\b
Examples:
  bk-chaos sweep --seeds 100 --record histories && bk-verify replay histories
  bk-verify replay histories --master spark://host:7077 --json

\b
Exit codes: 0 every run came out as it was recorded, and breaks no invariant; 1 one differs, or breaks an invariant (again);
2 unusable input (no folder, no history, a damaged or foreign file; the others are replayed nevertheless); 3 nothing was found
out, because Spark or this program failed.
With --json: {"histories", "events", "scenarios", "differing", "rejected", "rejected_files", "same", "seconds",
"copies", "copied_files"}.
"""


def replay_histories(
    folder: Folder,
    *,
    master: Master = None,
    conf: Conf = None,
    max_differing: Annotated[
        int, typer.Option(min=0, help="Runs that differ to show; counts are always complete.")
    ] = MAX_WITNESSES_DEFAULT,
    as_json: Json = False,
) -> None:
    """Replay the histories in ``folder``, and print what came of it."""
    input_bytes = sum(file.size for file in usable_files(folder))
    with in_spark(master, conf, input_bytes, "nothing was found out", "replaying", [folder]) as session:
        verdict = replay(session, folder, max_differing=max_differing)
    shown = [differing_list(verdict)] if verdict.differing else []
    is_fine = verdict.is_same and verdict.is_clean
    copied = copies_shown(verdict.copies, verdict.copied_files)
    conclude(verdict, replay_table(verdict), *shown, *copied, is_fine=is_fine, as_json=as_json)
