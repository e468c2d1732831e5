"""Reading the messages of a Pulsar topic from its ledgers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from bkclient import BookKeeper
from bkclient.errors import NoSuchLedger
from bkclient.log.errors import NoSuchLog
from bkclient.log.format.message_id import MessageId
from bkclient.log.pulsar.entry import decode_pulsar_entry
from bkclient.log.pulsar.ledgers import PulsarLedger, PulsarTopic, decode_topic, node_of, partition_of
from bkclient.log.pulsar.message import PulsarMessage

__all__ = ["PulsarReader"]


class PulsarReader:
    """What the ledgers of a Pulsar topic hold, without a broker.

    ::

        reader = PulsarReader(bk, "persistent://public/default/orders")
        async for message in reader.messages():
            print(message.id, message.payload)

    Nothing is fenced, recovered or changed, so a broker may write meanwhile; what is in the log when a ledger is opened is read.
    Subscriptions are not asked: what is there is shown, acknowledged or not, and so is what a transaction may have aborted. Of a
    topic with partitions each has a reader of its own, by its name, ``orders-partition-0`` and so on. The cluster is the one of
    the brokers, its metadata in ZooKeeper; the lists of ledgers are beside its root, where brokers keep them.
    """

    def __init__(self, client: BookKeeper, topic: str, *, password: bytes = b"") -> None:
        """Raises :class:`~bkclient.errors.ArgumentError` for a name that is none of a topic's. ``password`` is the brokers'."""
        self._client: Final = client
        self._topic: Final = topic
        self._node: Final = node_of(topic)
        self._password: Final = password

    async def topic(self) -> PulsarTopic:
        """Its ledgers now.

        Raises :class:`~bkclient.log.NoSuchLog` if there is none, and :class:`~bkclient.errors.MetadataSerializationError` if what
        the broker stored cannot be understood.
        """
        node = await self._client.parent_tree().get(self._node)
        if node is None:
            raise NoSuchLog(
                f"there is no Pulsar topic {self._topic!r}",
                advice=f"Its ledgers would be in {self._node}; names of partitions end with -partition-0 and so on.",
            )
        return decode_topic(self._topic, node.data)

    async def messages(
        self, start: MessageId = MessageId.EARLIEST, *, inclusive: bool = True
    ) -> AsyncIterator[PulsarMessage]:
        """The messages from ``start`` to the end, oldest first.

        Raises :class:`~bkclient.errors.NoSuchLedger` for a ledger that is not in BookKeeper any more, and
        :class:`~bkclient.errors.DigestMismatch` for an entry that is no message.
        """
        topic = await self.topic()
        start = start._replace(partition=-1)
        for ledger in topic.ledgers:
            if ledger.ledger_id < start.ledger_id:
                continue
            first = max(start.entry_id, 0) if ledger.ledger_id == start.ledger_id else 0
            async for message in self._of_ledger(ledger, first):
                place = message.id._replace(partition=-1)
                if place > start or (inclusive and place[:2] == start[:2] and place[3] >= start[3]):
                    yield message

    async def _of_ledger(self, ledger: PulsarLedger, first: int) -> AsyncIterator[PulsarMessage]:
        if ledger.is_gone:
            raise NoSuchLedger(
                "it was moved to tiered storage", ledger_id=ledger.ledger_id, advice="Begin after it, or ask a broker."
            )
        partition = partition_of(self._topic)
        async with await self._client.open_ledger(ledger.ledger_id, recover=False, password=self._password) as reader:
            last = await reader.read_last_add_confirmed()
            if last < first:
                return
            async for entry in reader.read_range(first, last):
                for message in decode_pulsar_entry(entry.payload, ledger.ledger_id, entry.entry_id, partition):
                    yield message
