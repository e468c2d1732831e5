"""Text for terminals: what others stored, in names and custom metadata, must not steer whose terminal shows it."""

from __future__ import annotations

import logging

__all__ = ["SafeFormatter", "terminal_safe"]

_KEPT = "\t"


def terminal_safe(text: str) -> str:
    """``text`` in one line, with everything escaped that is not printed: controls, directions of writing, lone surrogates."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character in _KEPT
        else character.encode("unicode_escape", "surrogatepass").decode()
        for character in text
    )


class SafeFormatter(logging.Formatter):
    """Formats records as its base does, and escapes all but the ends of lines."""

    def format(self, record: logging.LogRecord) -> str:
        """The lines of ``record``."""
        return "\n".join(map(terminal_safe, super().format(record).splitlines()))
