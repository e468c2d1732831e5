"""What tests of several packages share.

Property tests run the same examples every time, and a busy machine does not fail them.
"""

from __future__ import annotations

import pytest
from hypothesis import settings

from bkclient.ledger import BookieId
from bkclient.placement import BookieWatcher

settings.register_profile("repeatable", settings.get_profile("patient"), derandomize=True)
settings.load_profile("repeatable")


@pytest.fixture
def health(monkeypatch: pytest.MonkeyPatch) -> list[tuple[BookieId, int]]:
    """What placement is told of requests that failed."""
    noted: list[tuple[BookieId, int]] = []
    monkeypatch.setattr(BookieWatcher, "on_request_failed", lambda _, bookie_id, code: noted.append((bookie_id, code)))
    return noted
