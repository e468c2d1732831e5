"""Parts that several help texts share. The help text of a command stands before the command."""

from __future__ import annotations

from typing import Final

__all__ = ["NO_LEDGER", "WRONG_PASSWORD", "exit_codes"]

NO_LEDGER: Final = "there is no such ledger"
WRONG_PASSWORD: Final = "wrong password"  # noqa: S105 - it is the meaning of an exit code


def exit_codes(ok: str, no: str | None = None, refused: str | None = None) -> str:
    """The line of a help text that says what the exit codes of a command mean; None for codes that it does not have."""
    parts = [f"0 {ok}", f"1 {no}", "2 wrong usage or input", "3 the metadata store or bookies are not available"]
    if no is None:
        del parts[1]
    if refused is not None:
        parts.append(f"4 {refused}")
    return f"Exit codes: {'; '.join(parts)}."
