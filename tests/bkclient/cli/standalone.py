"""``bk`` as a process of its own that needs no ZooKeeper: bookies in a thread, and a metadata service in memory, come with it.

``python -m tests.bkclient.cli.standalone ENTRIES BYTES ARGUMENTS...`` makes ledger 0 of so many entries, of so many bytes at
least, closed, and ledger 1 of the same, open; then it runs the command line. A negative number of entries makes neither.
"""

from __future__ import annotations

import os
import sys

from bkclient.cli import main
from tests.bkclient.cli.cluster import ThreadedCluster

if __name__ == "__main__":
    entries, size = map(int, sys.argv[1:3])
    with ThreadedCluster() as cluster:
        if entries >= 0:
            payloads = [(b"entry %d" % number).ljust(size) for number in range(entries)]
            cluster.ledger(*payloads)
            cluster.ledger(*payloads, close=False)
        os.environ["BK_METADATA_URI"] = cluster.uri
        sys.argv[1:] = sys.argv[3:]
        main()
