"""Getting rid of suspended coroutines once their world has ended.

Python cannot destroy a suspended coroutine without unwinding it: ``finally`` blocks run, whatever they do. During a run that
would be the revival of a killed process, so the loop keeps what is suspended until the end. Then it is unwound here, silently.
"""

from __future__ import annotations

import logging
import sys
import warnings
from asyncio.events import _get_running_loop, _set_running_loop
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

__all__ = ["dead_silence", "unwind"]

#: How often an unwinding coroutine may wait for something before it is abandoned.
_UNWINDING_AWAITS_MAX: Final = 100


def unwind(coroutine: Any) -> None:
    """Close ``coroutine``, whatever it raises and however often it tries to wait for something on its way."""
    for _ in range(_UNWINDING_AWAITS_MAX):
        try:
            coroutine.close()
        except RuntimeError as error:
            if "ignored GeneratorExit" in str(error):
                continue  # it waits for something once more
        except BaseException:  # noqa: BLE001, S110  there is nothing left to tell it to
            pass
        return


@contextmanager
def dead_silence() -> Iterator[None]:
    """No running event loop, for what is unwound must not find that of the caller; no warning, no log, no complaint."""
    running = _get_running_loop()
    disabled = logging.root.manager.disable
    logging.disable()
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    _set_running_loop(None)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        _set_running_loop(running)
        sys.unraisablehook = hook
        logging.disable(disabled)
