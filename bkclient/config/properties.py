"""The syntax of Java properties files, as far as configurations use it.

One ``key = value``, ``key: value`` or ``key value`` a line; lines that begin with ``#`` or ``!`` are comments. A backslash at
the end of a line continues it; elsewhere it escapes the next character, of which n, t, r, f and uXXXX mean what they mean
in Java and all others themselves. Text is UTF-8, of which the ASCII that Java writes is a part. Not supported: including
other files, and the substitution of ``${variables}``, which stay as they are.
"""

from __future__ import annotations

import re
from typing import Final

from bkclient.errors import ArgumentError

__all__ = ["parse_properties"]

_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_ESCAPED: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
#: A key ends at the first separator that is not escaped.
_LINE: Final = re.compile(r"(?P<key>(?:\\.|[^\\:=\s])*)\s*[:=]?\s*(?P<value>.*)", re.DOTALL)
_LINES_MAX: Final = 10_000


def parse_properties(text: str) -> dict[str, str]:
    """The keys of ``text`` and their values; :class:`~bkclient.errors.ArgumentError` for a key given twice.

    The Java client takes one of both and says nothing.
    """
    values: dict[str, str] = {}
    lines = text.split("\n")
    if len(lines) > _LINES_MAX:
        raise ArgumentError(f"a properties file must have <= {_LINES_MAX} lines, got {len(lines)}")
    for line in _logical_lines(lines):
        match = _LINE.fullmatch(line)
        assert match is not None, "every line is a key and a value, of which either may be empty"
        key, value = _unescaped(match["key"]), _unescaped(match["value"])
        if not key:
            raise ArgumentError(f"there is no key in {line!r}")
        if key in values:
            raise ArgumentError(f"{key} is given twice")
        values[key] = value.strip()
    return values


def _logical_lines(lines: list[str]) -> list[str]:
    logical: list[str] = []
    is_continued = False
    for natural in lines:
        line = natural.removesuffix("\r").lstrip(" \t\f")
        if not is_continued:
            if not line or line[0] in "#!":
                continue
            logical.append("")
        is_continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        logical[-1] += line[:-1] if is_continued else line
    return logical


def _unescaped(text: str) -> str:
    def replacement(match: re.Match[str]) -> str:
        escaped = match[1]
        return chr(int(escaped[1:], 16)) if len(escaped) > 1 else _ESCAPES.get(escaped, escaped)

    return _ESCAPED.sub(replacement, text)
