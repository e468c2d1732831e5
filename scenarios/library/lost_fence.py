"""Fencing reads of a recovery do not reach every bookie, and the old writer's last adds arrive late.

The fencing reads to some bookies are lost; the other bookies suffice for the recovery to continue. The last adds of the writer
to those same bookies are held back until the recovery has decided. If a recovery read does not fence the bookie that denies the
entry, the late add completes an ack quorum afterwards, and an entry is acknowledged that the closed ledger does not have.
"""

from __future__ import annotations

from typing import Final

import anyio

from bkclient import BookKeeper
from bkclient.errors import BookKeeperError
from bkclient.wire.messages import LAST_ENTRY, AddRequest, ReadRequest
from scenarios.history import Event, Kind
from scenarios.model import Scenario
from scenarios.stage import LedgerSlot, Stage

__all__ = ["LOST_FENCE"]

#: How long the writer is idle before it closes: otherwise it often closes before the recovery begins.
_IDLE_S: Final = 0.1


async def play(stage: Stage) -> None:
    """Fences to some bookies are lost; adds to them arrive after the recovery's decision."""
    rng = stage.rng
    entries = rng.randint(3, 20)
    ledger = stage.ledger()

    async def write(client: BookKeeper) -> None:
        writer = await ledger.create(client)
        await stage.append_entries(writer, entries, window=rng.randint(1, 6))
        await anyio.sleep(_IDLE_S)
        await stage.finish(writer)

    async def recover(client: BookKeeper) -> None:
        try:
            await client.open_ledger(await ledger.id(), recover=True)
        except BookKeeperError:
            return

    writer = stage.client("writer", write)
    await stage.until_acknowledged(ledger, rng.randint(0, entries - 1))
    deaf = _choose_deaf(stage, ledger)
    held = stage.hold("writer", deaf, lambda message: isinstance(message, AddRequest))
    stage.drop("recoverer", deaf, _is_fence)
    stage.on_event(_is_decided, lambda: stage.later(rng.uniform(0.0, 0.02), held.release))
    await stage.sleep(0.0, 0.03)
    recoverer = stage.client("recoverer", recover)
    await recoverer.ended()
    held.release()
    stage.heal()
    await writer.ended()
    await stage.settle(ledger)


def _choose_deaf(stage: Stage, ledger: LedgerSlot) -> list[str]:
    """One or more bookies, but fewer than Qa of any write set: otherwise the recovery would fail for lack of coverage."""
    members = stage.ensemble(ledger)
    write_quorum_size, ack_quorum_size = stage.conditions.write_quorum_size, stage.conditions.ack_quorum_size
    deaf: dict[str, None] = {}
    for candidate in stage.rng.sample(members, len(members)):
        chosen = {**deaf, candidate: None}
        write_sets = ([members[(i + j) % len(members)] for j in range(write_quorum_size)] for i in range(len(members)))
        is_covered = all(sum(bookie in chosen for bookie in write_set) < ack_quorum_size for write_set in write_sets)
        if is_covered and (not deaf or stage.rng.random() < 0.6):
            deaf = chosen
    return list(deaf)


def _is_fence(message: object) -> bool:
    return isinstance(message, ReadRequest) and message.entry_id == LAST_ENTRY and message.fence_key is not None


def _is_decided(event: Event) -> bool:
    return event.kind == Kind.REC_DECIDE and event.fields["verdict"] != "positive"


LOST_FENCE = Scenario(
    name="lost-fence",
    summary="fencing reads of a recovery are lost, and the old writer's adds to the same bookies arrive late",
    expected="bookies refuse the late adds, because recovery reads have fenced them; nothing is acknowledged above the end",
    play=play,
)
