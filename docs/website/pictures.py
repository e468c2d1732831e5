"""The pictures of the page on concepts.

    python -m docs.website.pictures     # writes them into docs/pictures

A test holds the files to this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from docs.website.canvas import Canvas

__all__ = ["FOLDER", "PICTURES", "main"]

FOLDER: Final = Path(__file__).resolve().parent.parent / "pictures"


def ledger() -> str:
    """Entries in a row, what is in flight, and a closed ledger."""
    canvas = Canvas("ledger", "A ledger that is being written, and one that is closed", 560, 200)
    canvas.text(10, 22, "ledger 7, open", kind="strong", anchor="start")
    for entry in range(8):
        canvas.box(10 + entry * 56, 34, 48, 36, str(entry), kind="green" if entry < 6 else "amber")
    canvas.box(10 + 8 * 56, 34, 48, 36, "", kind="ghost")
    canvas.text(10 + 5 * 56 + 24, 90, "acknowledged up to 5", kind="soft")
    canvas.text(10 + 7 * 56 + 4, 90, "in flight", kind="soft", anchor="start")
    canvas.text(10, 128, "ledger 6, closed", kind="strong", anchor="start")
    for entry in range(5):
        canvas.box(10 + entry * 56, 140, 48, 36, str(entry), kind="blue")
    canvas.line(10 + 5 * 56, 132, 10 + 5 * 56, 184, kind="")
    canvas.text(10 + 5 * 56 + 12, 163, "the end, for every reader", kind="soft", anchor="start")
    return canvas.svg()


def quorums() -> str:
    """One entry, three copies, two answers."""
    canvas = Canvas("quorums", "An entry is sent to three bookies and acknowledged when two have stored it", 560, 262)
    canvas.box(10, 92, 110, 56, "writer", kind="blue")
    canvas.text(65, 170, "append(entry 4)", kind="soft")
    for row, (name, answer) in enumerate([("bookie A", "stored"), ("bookie B", "stored"), ("bookie C", "slow")]):
        y = 20 + row * 78
        canvas.box(350, y, 110, 48, name, kind="green" if answer == "stored" else "amber")
        canvas.arrow(124, 112 + row * 6, 346, y + 16)
        if answer == "stored":
            canvas.arrow(346, y + 32, 126, 126 + row * 8, kind="dashed")
        canvas.text(472, y + 29, answer, kind="soft", anchor="start")
    canvas.text(280, 252, "write quorum 3: sent to three.  ack quorum 2: two answers acknowledge it", kind="soft")
    return canvas.svg()


def striping() -> str:
    """Which of four bookies has which entry, at a write quorum of two."""
    canvas = Canvas("striping", "Entries striped over an ensemble of four bookies, two copies each", 520, 282)
    for column, name in enumerate("ABCD"):
        canvas.box(110 + column * 100, 10, 84, 34, f"bookie {name}", kind="blue")
    for entry in range(6):
        y = 56 + entry * 34
        canvas.text(12, y + 20, f"entry {entry}", anchor="start")
        for column in range(4):
            has_copy = column in {entry % 4, (entry + 1) % 4}
            canvas.box(
                110 + column * 100, y, 84, 28, str(entry) if has_copy else "", kind="green" if has_copy else "ghost"
            )
    canvas.text(260, 276, "ensemble 4, write quorum 2: every bookie holds half of the entries", kind="soft")
    return canvas.svg()


def lac() -> str:
    """What writer and reader know."""
    canvas = Canvas("lac", "An entry carries the last add confirmed that its writer knew", 560, 216)
    canvas.text(10, 30, "writer", kind="strong", anchor="start")
    for entry in range(6):
        canvas.box(90 + entry * 74, 12, 62, 44, "", kind="green" if entry < 5 else "amber")
        canvas.text(90 + entry * 74 + 31, 31, str(entry))
        canvas.text(90 + entry * 74 + 31, 49, f"LAC {entry - 1}" if entry else "no LAC", kind="soft")
    canvas.text(90 + 4 * 74 + 62, 76, "acknowledged", kind="soft", anchor="end")
    canvas.text(90 + 5 * 74 + 2, 76, "in flight", kind="soft", anchor="start")
    canvas.text(10, 142, "reader", kind="strong", anchor="start")
    for entry in range(6):
        kind = "blue" if entry < 4 else "ghost"
        canvas.box(90 + entry * 74, 120, 62, 34, str(entry) if entry < 4 else "", kind=kind)
    canvas.arrow(90 + 4 * 74 + 31, 86, 90 + 3 * 74 + 40, 117, kind="dashed")
    canvas.text(
        10, 184, "The reader has heard of entry 4, which says LAC 3: it may read up to 3.", kind="soft", anchor="start"
    )
    canvas.text(
        10, 206, "Entry 5, or a message of the writer when it pauses, will tell it of 4.", kind="soft", anchor="start"
    )
    return canvas.svg()


def ensemble_change() -> str:
    """Two fragments of a ledger."""
    canvas = Canvas("ensemble-change", "A bookie fails and another one takes its place in a new fragment", 560, 262)
    canvas.text(96 + 2.5 * 56, 20, "fragment from entry 0", kind="soft")
    canvas.text(96 + 6.5 * 56, 20, "from entry 5", kind="soft")
    canvas.line(96 + 5 * 56 - 4, 8, 96 + 5 * 56 - 4, 226, kind="dashed")
    for row, name in enumerate("ABCD"):
        y = 34 + row * 50
        canvas.text(10, y + 23, f"bookie {name}", anchor="start")
        for entry in range(8 if name != "B" else 5):
            if name == "D" and entry < 5:
                continue
            canvas.box(
                96 + entry * 56 - (4 if entry < 5 else -4),
                y,
                52,
                36,
                str(entry),
                kind="green" if name != "D" else "blue",
            )
        if name == "B":
            canvas.text(96 + 5 * 56 + 12, y + 23, "failed", kind="soft", anchor="start")
    canvas.text(280, 252, "The metadata says: {0: (A, B, C), 5: (A, D, C)}", kind="soft")
    return canvas.svg()


def fencing() -> str:
    """A takeover in six steps."""
    canvas = Canvas(
        "fencing", "A second client fences the ledger, recovers it and closes it; the first writer is refused", 560, 342
    )
    lanes = {"old writer": 80, "bookies": 280, "new client": 470}
    for name, x in lanes.items():
        canvas.box(x - 62, 8, 124, 34, name, kind="blue" if name == "bookies" else "")
        canvas.line(x, 42, x, 330)
    canvas.arrow(80, 70, 276, 78)
    canvas.text(178, 64, "add 0 to 4", kind="soft")
    canvas.text(80, 106, "paused", kind="strong")
    canvas.arrow(470, 118, 284, 126)
    canvas.text(378, 112, "fence, and tell your LAC", kind="soft")
    canvas.arrow(284, 152, 466, 160, kind="dashed")
    canvas.text(378, 147, "fenced; LAC 3", kind="soft")
    canvas.arrow(470, 184, 284, 192)
    canvas.text(378, 179, "read 4, 5; store 4 again", kind="soft")
    canvas.box(410, 206, 120, 34, "CLOSED at 4", kind="green")
    canvas.text(470, 258, "in the metadata", kind="soft")
    canvas.text(80, 262, "wakes up", kind="strong")
    canvas.arrow(80, 278, 276, 286)
    canvas.text(178, 272, "add 5", kind="soft")
    canvas.arrow(276, 304, 84, 312, kind="bad")
    canvas.text(178, 328, "refused: fenced", kind="soft")
    return canvas.svg()


def log() -> str:
    """A log is a list of ledgers."""
    canvas = Canvas("log", "A log is a list of ledgers, of which the last one is open", 560, 250)
    canvas.box(10, 10, 540, 40, "metadata of the log “orders”:  3, 8, 12", kind="amber")
    for column, (number, count, kind) in enumerate([(3, 4, "blue"), (8, 3, "blue"), (12, 2, "green")]):
        x = 10 + column * 184
        canvas.arrow(x + 80, 50, x + 80, 84)
        state = "open" if kind == "green" else "closed"
        canvas.text(x + 80, 102, f"ledger {number}, {state}", kind="soft")
        for entry in range(count):
            canvas.box(x + entry * 41, 112, 35, 36, str(entry), kind=kind)
    canvas.text(10, 182, "oldest message", kind="soft", anchor="start")
    canvas.arrow(28, 168, 28, 152)
    canvas.text(252, 182, "a reader, at 8:1", kind="soft")
    canvas.arrow(252, 166, 252, 152)
    canvas.text(552, 182, "the owner appends here", kind="soft", anchor="end")
    canvas.arrow(480, 168, 480, 152)
    canvas.text(280, 212, "A new owner fences and closes ledger 12, and lists one of its own.", kind="soft")
    canvas.text(280, 234, "The list changes by compare-and-set: there is one owner.", kind="soft")
    return canvas.svg()


PICTURES: Final[Mapping[str, Callable[[], str]]] = {
    "ledger": ledger,
    "quorums": quorums,
    "striping": striping,
    "lac": lac,
    "ensemble-change": ensemble_change,
    "fencing": fencing,
    "log": log,
}
"""The pictures by name."""


def main() -> None:
    """Write them all."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(f"{draw()}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
