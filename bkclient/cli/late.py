"""Groups of commands that are loaded when one of them runs.

To list its commands a group needs their names and a line about each; what a command is made of, most of the client above all,
takes longer to load than to tell how to use it. So a group names the module of each command, and the module is loaded when the
command is asked for. All programs of this package use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from bkclient.program import loading

__all__ = ["Late", "LateCommand", "late_group"]


class Late(NamedTuple):
    """A command that is not loaded yet: its module, whose ``add_to(group)`` adds it to a group, and the line about it."""

    module: str
    short_help: str


class LateCommand(TyperCommand):
    """Stands for a command until somebody runs it, or asks for its help."""

    def __init__(self, name: str, late: Late) -> None:
        super().__init__(name, short_help=late.short_help)
        self._late = late

    def loaded(self) -> Any:
        """The command itself (of a type that Typer does not name)."""
        group = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)
        with loading():
            import_module(self._late.module).add_to(group)
            return get_group(group).commands[str(self.name)]

    def make_context(self, *arguments: Any, **settings: Any) -> Any:
        """The context of the command itself, which runs instead of this one."""
        return self.loaded().make_context(*arguments, **settings)


def late_group(commands: Mapping[str, Late]) -> type[TyperGroup]:
    """The class of a group of ``commands``, for ``typer.Typer(cls=...)``."""

    class LateGroup(TyperGroup):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            for name, late in commands.items():
                self.add_command(LateCommand(name, late))

    return LateGroup
