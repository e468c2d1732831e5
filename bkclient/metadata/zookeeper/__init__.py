"""The ``zk://`` driver: BookKeeper's own layout in ZooKeeper. Needs the ``zookeeper`` extra."""

from bkclient.metadata.zookeeper.store import ZooKeeperMetadataStore, connect_zookeeper

__all__ = ["ZooKeeperMetadataStore", "connect_zookeeper"]
