"""Playing the program of one client."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final

import anyio
import anyio.lowlevel

from bkclient import AdvancedLedgerWriter, AppendFuture, LedgerReader, LedgerWriter
from bkclient.errors import BookKeeperError
from bkclient.repair import RepairAdmin, RepairConfig
from bkclient.repair.service import AutoRecovery
from scenarios.conditions import Conditions
from scenarios.plan import operations as ops
from scenarios.plan.model import Program
from scenarios.plan.triggers import Trigger
from scenarios.playing.ledgers import PlayedLedgers
from scenarios.playing.log_programs import PlayedLogs
from scenarios.playing.outcomes import MissingError, all_ended
from scenarios.recording.client import RecordedClient

__all__ = ["PlayedProgram"]

#: After what time a reader that follows a ledger asks again when it was refused.
_REFUSED_PAUSE_S: Final = 0.5
#: How often auto-recovery looks for marks, and who decommissions a bookie for ledgers that are left on it.
_AUTO_RECOVERY_POLL_S: Final = 1.0
_DECOMMISSION_POLL_S: Final = 2.0

Writer = LedgerWriter | AdvancedLedgerWriter


class PlayedProgram:
    """One program and what became of it.

    ``until`` waits for a trigger, ``rng`` makes payloads, ``on_change`` is called whenever another operation begins.
    """

    def __init__(
        self,
        program: Program,
        ledgers: PlayedLedgers,
        conditions: Conditions,
        rng: Random,
        until: Callable[[Trigger], Awaitable[None]],
        on_change: Callable[[], None],
    ) -> None:
        self.program = program
        #: The operations that were refused.
        self.failed: list[str] = []
        #: What became of operations and should not have.
        self.problems: list[str] = []
        #: The operation it is at, None before the first and after the last.
        self.current: ops.ClientOperation | None = None
        self.has_ended = False
        self._ledgers = ledgers
        self._conditions = conditions
        self._rng = rng
        self._until = until
        self._on_change = on_change
        self._writers: dict[str, Writer] = {}
        self._readers: dict[str, LedgerReader] = {}
        self._appends: dict[str, dict[int, AppendFuture]] = {}
        self._forces: list[asyncio.Future[None]] = []
        self._client: RecordedClient | None = None
        self._logs: PlayedLogs | None = None
        #: How each operation is played.
        self._players: Final[dict[type[ops.ClientOperation], Callable[[Any], Awaitable[None]]]] = {
            ops.CreateLedger: self._create,
            ops.Append: self._append,
            ops.AppendAll: self._append_all,
            ops.AppendAt: self._append_at,
            ops.CancelAppends: self._cancel,
            ops.Flush: lambda operation: self._writer(operation).flush(),
            ops.ForceLedger: self._force,
            ops.TellLac: self._tell_lac,
            ops.Close: lambda operation: self._writer(operation).close(),
            ops.DeleteLedger: self._delete,
            ops.Open: self._open,
            ops.Read: self._read,
            ops.ReadInBatches: self._read_batch,
            ops.AskLac: self._ask_lac,
            ops.PollEntry: self._long_poll,
            ops.Follow: self._follow,
            ops.TailLedger: self._tail,
            ops.RecoverBookie: self._recover_bookie,
            ops.Decommission: self._decommission,
            ops.RunAutoRecovery: self._run_auto_recovery,
            ops.Sleep: lambda operation: anyio.sleep(operation.time_s),
            ops.Stay: lambda _: anyio.sleep_forever(),
            ops.Until: lambda operation: self._until(operation.trigger),
        }

    @property
    def has_begun(self) -> bool:
        """Whether its client has come up."""
        return self._client is not None

    @property
    def is_staying(self) -> bool:
        """Whether it does nothing more, and its process lives on."""
        return isinstance(self.current, ops.Stay | ops.RunAutoRecovery)

    async def run(self, client: RecordedClient) -> None:
        """Play it; the program of the client process."""
        self._client = client
        for call in self.program.calls:
            self.current = call.operation
            self._on_change()
            refusal = await self._refusal(call)
            if refusal:
                self.failed.append(f"{call.operation.verb}: {refusal}")
            if refusal and call.wanted is ops.Wanted.MUST:
                self.problems.append(f"{call.operation.verb} of {self.program.name} was refused: {refusal}")
            if not refusal and call.wanted is ops.Wanted.FAILS:
                self.problems.append(f"{call.operation.verb} of {self.program.name} was not refused")
        if self._forces:
            await asyncio.gather(*self._forces, return_exceptions=True)
        self.current = None
        self.has_ended = True
        self._on_change()

    async def _refusal(self, call: ops.Call) -> str:
        """Carry out an operation; why it was refused, if it was."""
        try:
            with anyio.move_on_after(call.limit_s):
                await self._play(call.operation)
        except (BookKeeperError, MissingError) as error:
            return str(error)
        return ""

    async def _play(self, operation: ops.ClientOperation) -> None:
        player = self._players.get(type(operation), self._play_log)
        await player(operation)

    async def _play_log(self, operation: ops.ClientOperation) -> None:
        if self._logs is None:
            rng = Random(self._rng.getrandbits(64))  # noqa: S311 - drawn from the run's seed
            self._logs = PlayedLogs(self._made, self._ledgers, self._conditions, rng)
        await self._logs.play(operation)

    # Writing -----------------------------------------------------------------------------------------------------

    async def _create(self, operation: ops.CreateLedger) -> None:
        conditions, sizes = self._conditions, operation.sizes
        options = {
            "ensemble_size": sizes.ensemble if sizes else conditions.ensemble_size,
            "write_quorum_size": sizes.write_quorum if sizes else conditions.write_quorum_size,
            "ack_quorum_size": sizes.ack_quorum if sizes else conditions.ack_quorum_size,
            "digest_type": operation.digest or conditions.digest_type,
            "deferred_sync": operation.deferred,
        }
        client = self._made
        create = client.create_advanced_ledger if operation.advanced else client.create_ledger
        writer: Writer = await create(**options)
        self._writers[operation.ledger] = writer
        self._ledgers.created(operation.ledger, writer.ledger_id)

    async def _append(self, operation: ops.Append) -> None:
        writer = self._writer(operation)
        if not isinstance(writer, LedgerWriter):
            raise MissingError(f"entries of {operation.ledger} have given ids")
        window = min(operation.window, self._conditions.client.limits.max_in_flight_entries)
        started: deque[AppendFuture] = deque()
        for _ in range(operation.count):
            while len(started) >= window:
                await started.popleft()
            if operation.pause_s:
                await anyio.sleep(operation.pause_s)
            await writer.wait_for_room()
            entry_id = writer.last_add_pushed + 1
            future = writer.append_nowait(self._rng.randbytes(operation.size))
            self._note(operation.ledger, entry_id, future)
            started.append(future)
        if not operation.nowait:
            await all_ended(started)

    async def _append_all(self, operation: ops.AppendAll) -> None:
        writer = self._writer(operation)
        if not isinstance(writer, LedgerWriter):
            raise MissingError(f"entries of {operation.ledger} have given ids")
        await writer.append_all(self._rng.randbytes(operation.size) for _ in range(operation.count))

    async def _append_at(self, operation: ops.AppendAt) -> None:
        writer = self._writer(operation)
        if not isinstance(writer, AdvancedLedgerWriter):
            raise MissingError(f"entries of {operation.ledger} have no given ids")
        started = []
        for entry_id in operation.entries:
            await writer.wait_for_room(entry_id)
            future = writer.append_nowait(entry_id, self._rng.randbytes(operation.size))
            self._note(operation.ledger, entry_id, future)
            started.append(future)
        if not operation.nowait:
            await all_ended(started)

    async def _cancel(self, operation: ops.CancelAppends) -> None:
        pending = self._appends.get(operation.ledger, {})
        for entry_id in operation.entries:
            if entry_id in pending:
                pending.pop(entry_id).cancel()
        await anyio.lowlevel.checkpoint()  # tasks that wait for the outcomes run first

    async def _force(self, operation: ops.ForceLedger) -> None:
        forcing = self._writer(operation).force()
        if not operation.nowait:
            await forcing
            return
        self._forces.append(asyncio.ensure_future(forcing))
        await anyio.lowlevel.checkpoint()  # so that it has begun

    async def _tell_lac(self, operation: ops.TellLac) -> None:
        await self._writer(operation).write_explicit_lac()

    async def _delete(self, operation: ops.DeleteLedger) -> None:
        await self._made.delete_ledger(await self._ledgers.id_of(operation.ledger))

    def _note(self, ledger: str, entry_id: int, future: AppendFuture) -> None:
        pending = self._appends.setdefault(ledger, {})
        pending[entry_id] = future
        future.add_done_callback(lambda _: pending.pop(entry_id, None))

    # Reading -----------------------------------------------------------------------------------------------------

    async def _open(self, operation: ops.Open) -> None:
        ledger_id = await self._ledgers.id_of(operation.ledger)
        for attempt in range(1, operation.attempts + 1):
            try:
                reader = await self._made.open_ledger(ledger_id, recover=operation.recover)
            except BookKeeperError:
                if attempt == operation.attempts:
                    raise
                await anyio.sleep(operation.pause_s)
            else:
                self._readers[operation.handle or operation.ledger] = reader
                return

    async def _read(self, operation: ops.Read) -> None:
        reader = self._reader(operation)
        last = reader.last_add_confirmed if operation.last is None else operation.last
        for entry_id in range(operation.first, last + 1):
            await reader.read(entry_id, unconfirmed=operation.unconfirmed)

    async def _read_batch(self, operation: ops.ReadInBatches) -> None:
        reader, first = self._reader(operation), operation.first
        while first <= reader.last_add_confirmed:
            first += len(await reader.read_batch(first, operation.count))

    async def _ask_lac(self, operation: ops.AskLac) -> None:
        await self._reader(operation).read_last_add_confirmed()

    async def _long_poll(self, operation: ops.PollEntry) -> None:
        await self._reader(operation).read_last_add_confirmed_and_entry(operation.entry, operation.wait_s)

    async def _follow(self, operation: ops.Follow) -> None:
        reader, entry_id = self._reader(operation), 0
        while True:
            try:
                while entry_id <= reader.last_add_confirmed:
                    await reader.read(entry_id)
                    entry_id += 1
                if reader.is_closed or reader.is_deleted:
                    return
                await anyio.sleep(operation.pause_s)
                await reader.read_last_add_confirmed()
            except BookKeeperError:
                await anyio.sleep(_REFUSED_PAUSE_S)

    async def _tail(self, operation: ops.TailLedger) -> None:
        async with self._reader(operation).tail() as entries:
            async for _ in entries:
                pass

    async def _recover_bookie(self, operation: ops.RecoverBookie) -> None:
        bookie = self._ledgers.place(operation.bookie)
        await RepairAdmin(self._made, rng=self._rng).recover_bookie([bookie])

    async def _decommission(self, operation: ops.Decommission) -> None:
        bookie = self._ledgers.place(operation.bookie)
        await RepairAdmin(self._made, rng=self._rng).decommission(bookie, poll_s=_DECOMMISSION_POLL_S)

    async def _run_auto_recovery(self, operation: ops.RunAutoRecovery) -> None:
        client, clock = self._made, self._made.wall_clock
        assert clock is not None, "clients of plans have one"
        config = RepairConfig(open_ledger_grace_s=operation.grace_s, idle_poll_s=_AUTO_RECOVERY_POLL_S)
        await AutoRecovery(
            client, config, name=self.program.name, wall_clock_ms=lambda: int(clock() * 1000), rng=self._rng
        ).run()

    # What there is -----------------------------------------------------------------------------------------------

    @property
    def _made(self) -> RecordedClient:
        assert self._client is not None, "the program runs"
        return self._client

    def _writer(self, operation: Any) -> Writer:
        found = self._writers.get(operation.ledger)
        if found is None:
            raise MissingError(f"ledger {operation.ledger} has no writer here")
        return found

    def _reader(self, operation: Any) -> LedgerReader:
        found = self._readers.get(operation.handle)
        if found is None:
            raise MissingError(f"there is no handle {operation.handle}")
        return found
