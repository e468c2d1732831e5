"""ZooKeeper for development clusters, tests and experiments, in two forms with one protocol.

:class:`EmbeddedZooKeeper` is a small server of our own, in the event loop of the program: no Java, nothing on disk.
:class:`ZooKeeperServer` runs ZooKeeper itself, from the jars that PySpark brings along, where there is Java.
"""

from simbookie.zookeeper.connection import ConnectionLimits
from simbookie.zookeeper.embedded import EmbeddedZooKeeper
from simbookie.zookeeper.java_server import (
    HOST,
    ZooKeeperServer,
    ZooKeeperStartError,
    serve_zookeeper,
    zookeeper_class_path,
)
from simbookie.zookeeper.service import Limits

__all__ = [
    "HOST",
    "ConnectionLimits",
    "EmbeddedZooKeeper",
    "Limits",
    "ZooKeeperServer",
    "ZooKeeperStartError",
    "serve_zookeeper",
    "zookeeper_class_path",
]
