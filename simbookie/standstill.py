"""Stopping a child process for a while.

The kernel delivers SIGSTOP to one thread after the other, so a process may still answer after the signal was sent. What is
asked of a process that was stopped here is not answered before it is continued.
"""

from __future__ import annotations

import os
import signal
import subprocess

__all__ = ["stop"]


def stop(process: subprocess.Popen[bytes]) -> None:
    """Send SIGSTOP and return when all threads of the process have stopped, or when it has ended instead."""
    process.send_signal(signal.SIGSTOP)
    if process.returncode is None and hasattr(os, "waitid"):  # macOS has none before Python 3.13
        # WNOWAIT leaves the status of a process that has ended to those who wait for it.
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
