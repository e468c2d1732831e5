"""What Apache Pulsar keeps in BookKeeper: the ledgers of a topic and the messages in them, read without a broker."""

from bkclient.log.pulsar.ledgers import PulsarLedger, PulsarTopic
from bkclient.log.pulsar.message import PulsarMessage
from bkclient.log.pulsar.reader import PulsarReader

__all__ = ["PulsarLedger", "PulsarMessage", "PulsarReader", "PulsarTopic"]
