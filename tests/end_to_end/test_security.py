"""What an application notices of TLS and authentication: nothing while all is well, and the reason when it is not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bkclient.errors import (
    BookKeeperError,
    LedgerFenced,
    LedgerRecoveryFailed,
    NotEnoughBookies,
    SecurityError,
    UnauthorizedAccess,
)
from bkclient.security.auth import SharedSecret
from simbookie.security import BookieSecurity, SharedSecretBookie
from simbookie.server import ServerConfig
from tests.end_to_end.loopback import NewLoopback
from tests.tls import MUTUAL, TRUSTING, offering

SECRET = b"a secret of enough bytes"
THREE: dict[str, Any] = {"ensemble_size": 3, "write_quorum_size": 3, "ack_quorum_size": 2}
versions = pytest.mark.parametrize("version", [2, 3])


def demanding() -> ServerConfig:
    """Everything at once."""
    auth = SharedSecretBookie(SECRET)
    return ServerConfig(security=offering(requires_certificate=True, requires_tls=True, auth=auth))


def causes_of(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


@versions
def test_ledgers_live_their_lives_inside_tls(
    new_loopback: NewLoopback, version: int, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def life() -> None:
        async with new_loopback(4, server=demanding()) as loopback:
            options = {"connections": {"protocol_version": version, "channels_per_bookie": 2}, "tls": MUTUAL}
            one = await loopback.client(auth=SharedSecret(SECRET), **options)
            two = await loopback.client(auth=SharedSecret(SECRET), **options)
            writer = await one.create_ledger(**THREE)
            for number in range(50):
                await writer.append(b"%d" % number)
            await loopback.cluster.kill(writer.metadata.fragments[-1].ensemble[0])
            for number in range(50, 60):
                await writer.append(b"%d" % number)
            reader = await two.open_ledger(writer.ledger_id, recover=True)
            assert [entry.payload async for entry in reader] == [b"%d" % number for number in range(60)]
            with pytest.raises(LedgerFenced):
                await writer.append(b"too late")

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(life())


BAD = {
    "stranger": ServerConfig(security=offering("stranger")),
    "no TLS": ServerConfig(),
    "secret": ServerConfig(security=offering(auth=SharedSecretBookie(SECRET[::-1]))),
}


@versions
@pytest.mark.parametrize("kind", BAD)
@pytest.mark.rule("W-24")
async def test_a_bookie_that_cannot_be_trusted_is_a_failed_bookie(
    new_loopback: NewLoopback, version: int, kind: str
) -> None:
    """It is replaced, whatever it lacks; not even one that refuses our secret ends the writer."""
    good = ServerConfig(security=offering(auth=SharedSecretBookie(SECRET)))
    async with new_loopback(2, server=good) as loopback:
        bad = await loopback.cluster.add(server=BAD[kind])
        client = await loopback.client(
            auth=SharedSecret(SECRET), connections={"protocol_version": version}, tls=TRUSTING
        )
        writer = await client.create_ledger(**THREE)
        assert bad in writer.metadata.fragments[0].ensemble
        spare = await loopback.cluster.add()
        for number in range(20):
            await writer.append(b"%d" % number)
        assert writer.metadata.fragments[-1].ensemble.count(spare) == 1
        assert bad not in writer.metadata.fragments[-1].ensemble
        await writer.close()
        reader = await client.open_ledger(writer.ledger_id, recover=True)
        assert len([entry async for entry in reader]) == 20


@versions
@pytest.mark.parametrize("kind", BAD)
@pytest.mark.rule("REC-9")
async def test_a_bookie_that_cannot_be_trusted_does_not_hinder_recovery(
    new_loopback: NewLoopback, version: int, kind: str
) -> None:
    """Other than a wrong password, which ends a recovery at once."""
    good = ServerConfig(security=offering(auth=SharedSecretBookie(SECRET)))
    async with new_loopback(3, server=good) as loopback:
        options = {"connections": {"protocol_version": version}, "tls": TRUSTING}
        client = await loopback.client(auth=SharedSecret(SECRET), **options)
        writer = await client.create_ledger(**THREE)
        for number in range(10):
            await writer.append(b"%d" % number)
        first = loopback.cluster.server(writer.metadata.fragments[0].ensemble[0])
        await first.aclose()
        first.config = BAD[kind]
        await first.start()
        other = await loopback.client(auth=SharedSecret(SECRET), **options)
        reader = await other.open_ledger(writer.ledger_id, recover=True)
        assert len([entry async for entry in reader]) == 10


@versions
@pytest.mark.parametrize(
    ("kind", "error", "reason"),
    [
        ("stranger", SecurityError, "certificate is not accepted"),
        ("no TLS", SecurityError, "refuses TLS"),
        ("secret", UnauthorizedAccess, "does not know the shared secret"),
    ],
)
async def test_where_no_bookie_can_be_trusted_the_error_says_why(
    new_loopback: NewLoopback,
    caplog: pytest.LogCaptureFixture,
    version: int,
    kind: str,
    error: type[BookKeeperError],
    reason: str,
) -> None:
    caplog.set_level(logging.WARNING, "bkclient.transport")
    good = ServerConfig(security=offering(auth=SharedSecretBookie(SECRET)))
    async with new_loopback(3, server=good) as loopback:
        options = {"connections": {"protocol_version": version}, "tls": TRUSTING}
        client = await loopback.client(auth=SharedSecret(SECRET), **options)
        closed = await client.create_ledger(**THREE)
        await closed.append(b"stored")
        await closed.close()
        left = await client.create_ledger(**THREE)
        await left.append(b"stored")
        for bookie_id in loopback.cluster.bookie_ids:
            server = loopback.cluster.server(bookie_id)
            await server.aclose()
            server.config = BAD[kind]
            await server.start()

        other = await loopback.client(auth=SharedSecret(SECRET), **options)
        reader = await other.open_ledger(closed.ledger_id, recover=True)
        with pytest.raises(error, match=reason) as unread:
            await reader.read(0)
        assert unread.value.bookie_id in loopback.cluster.bookie_ids
        with pytest.raises((LedgerRecoveryFailed, UnauthorizedAccess)) as unopened:
            await other.open_ledger(left.ledger_id, recover=True)
        writer = await other.create_ledger(**THREE)
        with pytest.raises(NotEnoughBookies) as unwritten:
            await writer.append(b"refused")
        # Nobody has to look further than the error itself: what to do is about certificates and secrets, not about bookies.
        assert isinstance(unwritten.value.__cause__, error)
        assert reason in unwritten.value.message
        assert unwritten.value.advice == error.advice
        with pytest.raises(NotEnoughBookies, match=reason) as refused:
            writer.append_nowait(b"refused")
        assert isinstance(refused.value.__cause__, error)
        for raised in (unopened, unwritten):
            told = [cause for cause in causes_of(raised.value) if isinstance(cause, error)]
            assert told
            assert reason in str(told[-1])
        lines = [record for record in caplog.records if record.__dict__.get("event") == "bookie_unavailable"]
        assert any(reason in record.getMessage() for record in lines)


async def test_an_unauthenticated_client_learns_that_from_its_first_append(new_loopback: NewLoopback) -> None:
    async with new_loopback(
        3, server=ServerConfig(security=BookieSecurity(auth=SharedSecretBookie(SECRET)))
    ) as loopback:
        client = await loopback.client()
        writer = await client.create_ledger(**THREE)
        with pytest.raises(UnauthorizedAccess, match="authenticate if bookies demand it"):
            await writer.append(b"refused")
