"""What looks into streams between clients and bookies, and lets frames pass once, more often, or not at all."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from bkclient.wire import v2, v3
from bkclient.wire.messages import AddRequest
from simbookie.world.calls import RequestMessage, ResponseMessage
from simbookie.world.faults import Action, Duplicate, Fate
from simbookie.world.frames import filters_between

REQUEST = AddRequest(1, 0, b"k" * 20, struct.pack(">qqqq", 1, 0, -1, 7), b"payload")


class Way:
    """One direction, on which every frame that is looked at meets the same ``action``."""

    is_intercepting = True

    def __init__(self, action: Action | None) -> None:
        self.action = action
        self.launched: list[bytes] = []
        self.seen: list[object] = []

    def intercepted(self, message: object, send_on: Callable[[], None]) -> Action | None:
        del send_on
        self.seen.append(message)
        return self.action

    def launch(self, data: bytes) -> None:
        self.launched.append(data)

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        raise AssertionError((delay_s, action))


def frames_of(version: int) -> tuple[bytes, bytes]:
    """Of a request, and of its answer."""
    encoded = (v3 if version == 3 else v2).encode_request(REQUEST, 7)
    assert encoded.acknowledgement is not None
    return b"".join(encoded.buffers), encoded.acknowledgement


@pytest.mark.parametrize(("version", "times"), [(3, 3), (2, 1)])
def test_a_frame_is_repeated_only_where_answers_name_their_requests(version: int, times: int) -> None:
    to, back = Way(Duplicate(2)), Way(Duplicate(2))
    requests, answers = filters_between(to, back)
    request, answer = frames_of(version)
    requests.forward(request)
    answers.forward(answer)
    assert [type(message) for message in (*to.seen, *back.seen)] == [RequestMessage, ResponseMessage]
    assert (to.launched, back.launched) == ([request] * times, [answer] * times)


@pytest.mark.parametrize("version", [3, 2])
@pytest.mark.parametrize(("action", "times"), [(None, 1), (Fate.DROP, 0), (Fate.HOLD, 0)])
def test_every_other_action_is_the_same_in_both_versions(version: int, action: Action | None, times: int) -> None:
    way = Way(action)
    requests, _ = filters_between(way, Way(None))
    request, _ = frames_of(version)
    requests.forward(request[:10])
    assert way.launched == [], "a frame is waited for"
    requests.forward(request[10:])
    assert way.launched == [request] * times
