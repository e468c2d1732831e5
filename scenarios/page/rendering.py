"""One file of everything: the page, its style, its program and its data. It refers to nothing outside itself."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from typing import Any, Final

__all__ = ["render_page"]

_FILES: Final = {"style": "page.css", "program": "page.js"}
_PLACE: Final = re.compile(r"<!--(title)-->|/\*(style|program|data)\*/")


def render_page(content: Mapping[str, Any]) -> str:
    """The page for what :func:`~scenarios.page.content.content_of` returns, as HTML."""
    folder = files("scenarios.page")
    parts = {name: folder.joinpath(file).read_text(encoding="utf-8") for name, file in _FILES.items()}
    parts |= {"title": escape(str(content["title"])), "data": _json_in_script(content)}
    page = folder.joinpath("page.html").read_text(encoding="utf-8")
    return _PLACE.sub(
        lambda place: parts[place[1] or place[2]], page
    )  # one pass: what is put in is not looked at again


def _json_in_script(content: Mapping[str, Any]) -> str:
    """JSON that cannot end the element that it stands in, whatever names and messages say."""
    text = json.dumps(content, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
