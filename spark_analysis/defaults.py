"""What is used unless something else is asked for; apart from what uses it, which takes seconds to load."""

from __future__ import annotations

from typing import Final

__all__ = ["LOCAL_MASTER", "MAX_WITNESSES_DEFAULT"]

LOCAL_MASTER: Final = "local[*]"
MAX_WITNESSES_DEFAULT: Final = 100
