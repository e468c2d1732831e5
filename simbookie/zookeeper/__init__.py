"""ZooKeeper for development clusters, tests and experiments, in two forms with one protocol.

:class:`EmbeddedZooKeeper` is a small server of our own, in the event loop of the program: no Java, nothing on disk.
:class:`ZooKeeperServer` runs ZooKeeper itself, from the jars that PySpark brings along, where there is Java.
:func:`running_zookeeper` starts the one or the other.
"""

from simbookie.zookeeper.choosing import RunningZooKeeper, ZooKeeperKind, running_zookeeper
from simbookie.zookeeper.connection import ConnectionLimits
from simbookie.zookeeper.embedded import EmbeddedZooKeeper
from simbookie.zookeeper.java_server import HOST, ZooKeeperServer, ZooKeeperStartError, zookeeper_class_path
from simbookie.zookeeper.service import Limits

__all__ = [
    "HOST",
    "ConnectionLimits",
    "EmbeddedZooKeeper",
    "Limits",
    "RunningZooKeeper",
    "ZooKeeperKind",
    "ZooKeeperServer",
    "ZooKeeperStartError",
    "running_zookeeper",
    "zookeeper_class_path",
]
