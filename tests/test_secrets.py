"""No secret is shown: not by ``repr`` of anything that can hold one, and not by any log at any level.

What a secret looks like does not matter, only where it can be: every field that holds bytes of the wire, of a ledger or of the
metadata store, and every field with the name of a secret. So all records of the packages are made with secrets in these fields.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import inspect
import io
import logging
import pkgutil
from collections.abc import Iterator
from random import Random

import pytest

import bkclient
import simbookie
from bkclient import AdminSettings, ClientConfig, ConnectionSettings, DigestType
from bkclient.errors import LedgerFenced, UnauthorizedAccess
from bkclient.metadata.opening import open_store
from bkclient.security.auth import SharedSecret
from bkclient.wire.digest import mac_key, master_key
from simbookie.cluster import LocalCluster
from tests.zookeepers import AnyZooKeeper

PASSWORD = b"correct-horse-battery-staple"
WRONG_PASSWORD = b"wrong-mule-capacitor-nail"
PAYLOAD = b"what-nobody-but-the-application-may-read"
AUTH_SECRET = b"the-word-between-client-and-bookies"

#: What an application reads and shows at its own discretion, and what is no secret although it is made of bytes.
SHOWN = {
    ("Entry", "payload"),
    ("LedgerMetadata", "custom_metadata"),
    ("NewLedger", "custom_metadata"),
    ("LedgerShape", "custom_metadata"),
    ("EncodedRequest", "match"),  # the ids of a request, encoded
    ("EncodedRequest", "acknowledgement"),
    # Kinds, numbers and names of files.
    ("LedgerMetadata", "has_password"),
    ("LedgerMetadata", "creator_token"),
    ("TlsSettings", "key_file"),
    ("TlsSettings", "key_password_file"),
    ("SecurityOptions", "key"),
    ("SecurityOptions", "key_password"),
    ("SecurityOptions", "secret"),
    ("Setting", "key"),
}
SECRET_NAMES = ("password", "secret", "key", "token")


def records() -> Iterator[type]:
    for package in (bkclient, simbookie):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.endswith("__main__"):
                continue
            for value in vars(importlib.import_module(module.name)).values():
                is_record = inspect.isclass(value) and (dataclasses.is_dataclass(value) or hasattr(value, "_fields"))
                if is_record and value.__module__ == module.name:
                    yield value


def annotations_of(record: type) -> dict[str, str]:
    if dataclasses.is_dataclass(record):
        return {field.name: str(field.type) for field in dataclasses.fields(record)}
    return {name: str(kind) for name, kind in record.__annotations__.items()}


def can_be_secret(record: type, name: str, kind: str) -> bool:
    if (record.__name__, name) in SHOWN:
        return False
    is_number = kind in {"int", "bool", "float", "int | None"}
    return "bytes" in kind or (not is_number and any(word in name.lower() for word in SECRET_NAMES))


def holding(record: type, secret: bytes) -> object:
    """A record with ``secret`` wherever one can be; it need not make sense otherwise."""
    fields = {
        name: secret if can_be_secret(record, name, kind) else None for name, kind in annotations_of(record).items()
    }
    if hasattr(record, "_make"):
        made: object = record._make(fields.values())
        return made
    value: object = object.__new__(record)
    for name, held in fields.items():
        object.__setattr__(value, name, held)
    return value


RECORDS = [
    record
    for record in records()
    if any(can_be_secret(record, name, kind) for name, kind in annotations_of(record).items())
]


def test_there_are_records_that_can_hold_secrets() -> None:
    assert {
        "AddRequest",
        "ReadRequest",
        "Credentials",
        "NewLedger",
        "LedgerKeys",
        "LedgerMetadata",
        "AdminSettings",
    } <= {record.__name__ for record in RECORDS}


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: f"{record.__module__}.{record.__name__}")
def test_no_repr_shows_what_can_be_secret(record: type) -> None:
    assert PASSWORD.decode() not in repr(holding(record, PASSWORD))


def test_a_repr_that_shows_a_secret_would_be_noticed() -> None:
    @dataclasses.dataclass
    class Careless:
        password: bytes

    assert PASSWORD.decode() in repr(holding(Careless, PASSWORD))


def test_objects_that_hold_secrets_do_not_show_them() -> None:
    assert AUTH_SECRET.decode() not in repr(SharedSecret(AUTH_SECRET))
    assert PASSWORD.decode() not in repr(ClientConfig(admin=AdminSettings(password=PASSWORD)))


# Logs ------------------------------------------------------------------------------------------------------------------


class Everything(logging.Handler):
    """Formats every record as any handler might: the message, the traceback, and whatever else the record carries."""

    def __init__(self) -> None:
        super().__init__(level=1)
        self.text = io.StringIO()
        self.loggers: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        self.loggers.add(record.name)
        self.text.write(f"{self.format(record)}\n{record.__dict__!r}\n")


@pytest.fixture
def log() -> Iterator[Everything]:
    """All that is logged, at every level."""
    handler = Everything()
    root = logging.getLogger()
    level = root.level
    root.setLevel(1)
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)
    root.setLevel(level)


def forms_of(secret: bytes) -> list[str]:
    """How a secret may be written."""
    return [repr(secret)[2:-1], secret.hex(), str(list(secret))[1:-1]]


def test_what_is_logged_holds_no_secret(log: Everything, zookeeper_server: AnyZooKeeper, zookeeper_root: str) -> None:
    """A conversation in which everything happens that involves a secret, with asyncio telling of every single callback."""
    uri = zookeeper_server.metadata_uri(zookeeper_root)
    loop = asyncio.new_event_loop()
    loop.set_debug(True)
    loop.slow_callback_duration = 0  # every callback is slow, and is shown with its arguments
    try:
        loop.run_until_complete(conversation(uri))
    finally:
        loop.close()
    text = log.text.getvalue()
    secrets = [PASSWORD, WRONG_PASSWORD, PAYLOAD, AUTH_SECRET]
    secrets += [key(password) for password in (PASSWORD, WRONG_PASSWORD) for key in (master_key, mac_key)]
    leaked = [form for secret in secrets for form in forms_of(secret) if form in text]
    assert leaked == []
    assert {"asyncio", "bkclient.metadata.zookeeper.library", "bkclient.recovery"} <= log.loggers
    assert "Sending request" in text


async def conversation(uri: str) -> None:
    store = await open_store(uri, rng=Random(7), connect_timeout_s=30.0, initialise=True)
    async with LocalCluster(store, 3):
        for wire in (2, 3):
            config = ClientConfig(
                connections=ConnectionSettings(protocol_version=wire), admin=AdminSettings(password=PASSWORD)
            )
            async with (
                bkclient.connect(uri, config=config) as writer_side,
                bkclient.connect(uri, config=config) as reader_side,
            ):
                for digest_type in (DigestType.CRC32C, DigestType.HMAC):
                    await one_ledger(writer_side, reader_side, digest_type)
    await store.aclose()


async def one_ledger(
    writer_side: bkclient.BookKeeper,
    reader_side: bkclient.BookKeeper,
    digest_type: DigestType,
) -> None:
    writer = await writer_side.create_ledger(password=PASSWORD, digest_type=digest_type)
    for _ in range(3):
        await writer.append(PAYLOAD)
    with pytest.raises(UnauthorizedAccess) as refused:
        await reader_side.open_ledger(writer.ledger_id, password=WRONG_PASSWORD, digest_type=digest_type, recover=True)
    logging.getLogger("application").debug("refused", exc_info=refused.value)
    reader = await reader_side.open_ledger(writer.ledger_id, password=PASSWORD, recover=True)
    assert [entry.payload async for entry in reader] == [PAYLOAD] * 3
    with pytest.raises(LedgerFenced) as fenced:
        await writer.append(PAYLOAD)
    logging.getLogger("application").debug("fenced", exc_info=fenced.value)
    await writer_side.delete_ledger(writer.ledger_id)
