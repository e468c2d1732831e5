"""Files of a bookie, opened to be looked at: never written, whatever is in them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from typing import Annotated, Final

import typer

from simbookie.cli.options import EXIT_FAILURE, errors_end_the_program
from simbookie.storage.base import StorageError

__all__ = ["ENTRY_HEAD", "InspectedFile", "Payload", "inspected"]

#: Of an entry: ledger id, entry id, LAC, length.
ENTRY_HEAD: Final = Struct(">qqqq")

Payload = Annotated[bool, typer.Option("--payload", help="Print the payload of each entry, in hexadecimal.")]


class InspectedFile:
    """A file that is open for reading only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._descriptor).st_size

    def read_now(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``offset`` on, fewer at the end."""
        return os.pread(self._descriptor, size, offset)

    def close(self) -> None:
        """Let go of it."""
        os.close(self._descriptor)


@contextmanager
def inspected(path: Path, *, as_json: bool) -> Iterator[InspectedFile]:
    """The file while the block lasts; what cannot be read or understood ends the program."""
    with errors_end_the_program(as_json=as_json):
        file = InspectedFile(path)
    try:
        yield file
    except StorageError as error:
        typer.echo(f"bk-sim: {path}: {error}", err=True)
        raise typer.Exit(EXIT_FAILURE) from None
    finally:
        file.close()
