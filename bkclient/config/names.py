"""Names of settings: where a name that does not exist was probably meant to go.

People write a setting flat (``add_timeout_s``), under BookKeeper's key (``addEntryTimeoutSec``), in the wrong group, or misspelt.
So names are compared as sets of words: ``add_timeout_s`` and ``timeouts.add_s`` have the same ones.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from bkclient.config.fields import Setting

__all__ = ["hint", "nearest"]

_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


def hint(name: str, known: Mapping[str, Setting], reader: str) -> str:
    """``; it is ...`` or ``; did you mean ...?`` for a name like one of ``known``, else nothing.

    ``known`` are full names, ``timeouts.add_s``. ``reader`` is the call that reads BookKeeper's keys.
    """
    for full, setting in known.items():
        if name == setting.key:
            return f"; BookKeeper's {name} is {full} here, and {reader} reads BookKeeper's keys"
    wanted = _words(name)
    same = [full for full in known if wanted in (_words(full), _words(full.rpartition(".")[2]))]
    if same:
        return f"; it is {' or '.join(same)}"
    spelt: dict[str, str] = {}
    for full, setting in known.items():
        for spelling in (full, full.rpartition(".")[2], setting.key or full):
            spelt.setdefault(_in_order(_words(spelling)), full)
    close = difflib.get_close_matches(_in_order(wanted), spelt, n=2)
    return _did_you_mean(dict.fromkeys(spelt[spelling] for spelling in close))


def nearest(name: str, known: Iterable[str], *, likeness: float = 0.6) -> str:
    """``; did you mean ...?`` for a name that looks like one of ``known``, else nothing; ``likeness`` is from 0 to 1."""
    by_folded = {candidate.replace("_", "").lower(): candidate for candidate in known}
    close = difflib.get_close_matches(str(name).replace("_", "").lower(), by_folded, n=2, cutoff=likeness)
    return _did_you_mean(by_folded[folded] for folded in close)


def _words(name: str) -> frozenset[str]:
    """The words of a name, in the singular."""
    words = (word.lower() for word in _WORD.findall(name))
    return frozenset(word[:-1] if len(word) > 2 and word.endswith("s") else word for word in words)


def _in_order(words: Iterable[str]) -> str:
    return " ".join(sorted(words))


def _did_you_mean(names: Iterable[str]) -> str:
    text = " or ".join(names)
    return f"; did you mean {text}?" if text else ""
