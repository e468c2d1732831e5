"""``bk log read --pulsar``: what the ledgers of a Pulsar topic hold."""

from __future__ import annotations

import base64
import json
from typing import Any

import typer

from bkclient import BookKeeper
from bkclient.cli.access import ClusterAccess
from bkclient.cli.running import Ending, run_with_client
from bkclient.cli.streams import ByteSink
from bkclient.log import MessageId, NoSuchLog
from bkclient.log.pulsar import PulsarMessage, PulsarReader

__all__ = ["read_pulsar"]


def read_pulsar(topic: str, start: MessageId, count: int | None, connection: ClusterAccess, *, as_json: bool) -> None:
    """Print the messages of a topic."""
    sink = ByteSink(typer.get_binary_stream("stdout"))

    async def work(client: BookKeeper) -> None:
        done = 0
        try:
            if count == 0:
                return
            async for message in PulsarReader(client, topic).messages(start):
                sink.write(_as_json(message) if as_json else _as_line(message))
                done += 1
                if sink.is_full:
                    await sink.drain()
                if done == count:
                    break
        except NoSuchLog as error:
            raise Ending(error.message) from error
        finally:
            await sink.drain()  # what came before an entry that cannot be read

    run_with_client(connection, work, as_json=as_json)


def _as_line(message: PulsarMessage) -> bytes:
    """The payload, or in its place a word for what is none."""
    if message.marker is not None:
        return f"({message.id}: marker {message.marker} of a broker)\n".encode()
    if message.encryption_keys:
        return f"({message.id}: encrypted by {', '.join(message.encryption_keys)})\n".encode()
    if message.chunks > 1:
        return f"({message.id}: chunk {message.chunk} of {message.chunks} of message {message.chunked_id})\n".encode()
    return message.payload + b"\n"


def _as_json(message: PulsarMessage) -> bytes:
    value: dict[str, Any] = {
        "id": str(message.id),
        "payload": base64.b64encode(message.payload).decode(),
        "key": message.key,
        "properties": dict(message.properties),
        "eventMs": message.event_ms,
        "publishMs": message.publish_ms,
        "producer": message.producer,
        "sequenceId": message.sequence_id,
    }
    others: dict[str, Any] = {
        "brokerMs": message.broker_ms,
        "index": message.index,
        "keyIsBase64": message.is_key_base64 or None,
        "orderingKey": None if message.ordering_key is None else base64.b64encode(message.ordering_key).decode(),
        "isNull": message.is_null or None,
        "isCompactedOut": message.is_compacted_out or None,
        "encryptionKeys": list(message.encryption_keys) or None,
        "compression": message.compression or None,
        "marker": message.marker,
        "transaction": message.transaction,
    }
    if message.chunks > 1:
        others["chunk"] = {"number": message.chunk, "of": message.chunks, "message": message.chunked_id}
    value |= {name: found for name, found in others.items() if found is not None}
    return json.dumps(value).encode() + b"\n"
