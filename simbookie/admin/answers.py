"""Answers of the endpoints: JSON laid out as BookKeeper's is, and plain sentences."""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from typing import Any, Final

from simbookie.admin.http_server import HttpRequest, HttpResponse

__all__ = ["BadBody", "body_object", "java_json", "json_answer", "sentence"]


#: A character that JSON must not have as it is; a backslash that is text comes in pairs.
_ESCAPED: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\u([0-9a-f]{4})")


class BadBody(ValueError):
    """The body of a request does not say what it has to; the message says why."""


def java_json(value: Any, depth: int = 0) -> str:
    """``value`` as Jackson's default pretty printer writes it: members on lines of their own, elements on one."""
    if isinstance(value, dict):
        if not value:
            return "{ }"
        inner = "  " * (depth + 1)
        members = (f"{inner}{json.dumps(str(name))} : {java_json(each, depth + 1)}" for name, each in value.items())
        return "{\n" + ",\n".join(members) + "\n" + "  " * depth + "}"
    if isinstance(value, (list, tuple)):
        return "[ " + ", ".join(java_json(each, depth) for each in value) + " ]" if value else "[ ]"
    return _ESCAPED.sub(lambda found: f"{found[1]}\\u{found[2].upper()}", json.dumps(value, ensure_ascii=False))


def json_answer(value: Any) -> HttpResponse:
    """OK, with ``value``. BookKeeper names no content type, and neither does this."""
    return HttpResponse(HTTPStatus.OK, java_json(value).encode())


def sentence(status: HTTPStatus, text: str) -> HttpResponse:
    """``status``, and why."""
    return HttpResponse(status, text.encode())


def body_object(request: HttpRequest) -> dict[str, Any]:
    """The JSON object that the body is; :class:`BadBody` if it is none."""
    try:
        value = json.loads(request.body)
    except (ValueError, RecursionError) as error:
        raise BadBody(f"the body is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadBody("the body must be a JSON object")
    return value
