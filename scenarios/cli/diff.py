"""``bk-chaos diff``: where two histories part."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from scenarios.cli.options import Json
from scenarios.cli.output import EXIT_FOUND, fail, print_json, print_lines
from scenarios.determinism import HAS_ENDED, event_line
from scenarios.history import Event, HistoryError
from scenarios.parting import CONTEXT, Parting, where_they_part

__all__ = ["add_to"]


def add_to(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("diff", help=_DIFF_HELP)(diff)


_DIFF_HELP: Final = """Show where two histories part.

What the runs came from is compared first: scenario, seed, defect, settings, and the lines of their plans. Then the events: the
last ones that both have, and how each goes on. With --no-times the same events at other times are the same.

\b
Examples:
  bk-chaos diff histories/lost-fence-0.bkh histories/lost-fence-recovery-reads-do-not-fence-0.bkh
  bk-chaos diff before.bkh after.bkh --no-times --context 20
  bk-chaos diff before.bkh after.bkh --json

\b
Exit codes: 0 they have the same events; 1 they part; 2 the input cannot be used.
With --json: {"same", "shared", "headers": [line], "before": [event], "one": [event], "other": [event]}.
"""

_History = Annotated[Path, typer.Argument(help="A recorded history (.bkh).", show_default=False)]


def diff(
    one: _History,
    other: _History,
    *,
    times: Annotated[bool, typer.Option("--times/--no-times", help="Compare the times of events.")] = True,
    context: Annotated[
        int, typer.Option(min=1, max=10_000, help="How many events to show before and after.")
    ] = CONTEXT,
    as_json: Json = False,
) -> None:
    """Compare two histories."""
    try:
        found = where_they_part(one, other, context=context, times=times)
    except HistoryError as error:
        fail(str(error))
    if as_json:
        print_json(_as_json(found))
    else:
        _print(found)
    if not found.is_same:
        raise typer.Exit(EXIT_FOUND)


def _as_json(found: Parting) -> dict[str, object]:
    events = {"before": found.before, "one": found.one, "other": found.other}
    return {
        "same": found.is_same,
        "shared": found.shared,
        "headers": list(found.headers),
        **{name: [_shown(event) for event in shown] for name, shown in events.items()},
    }


def _shown(event: Event) -> dict[str, object]:
    common = {
        "seq": event.seq,
        "time_us": event.time_us,
        "actor": event.actor,
        "kind": event.kind,
        "ledger": event.ledger,
    }
    return common | dict(event.fields)


def _print(found: Parting) -> None:
    print_lines(*found.headers)
    if found.is_same:
        print_lines(f"the same {found.shared} events")
        return
    print_lines(f"{found.shared} events are the same")
    print_lines(*(f"  {event_line(event)}" for event in found.before))
    for sign, events in (("-", found.one), ("+", found.other)):
        print_lines(*(f"{sign} {event_line(event)}" for event in events))
        if not events:
            print_lines(f"{sign} {HAS_ENDED}")
