"""What applications coordinate by a client's session with the metadata service, under names of their own.

:class:`VersionedRegister` is a value that changes by compare-and-set, :class:`LeaderElection` has one of several programs go
ahead. ``docs/using/coordination.md`` explains both.
"""

from bkclient.coordination.election import LeaderElection
from bkclient.coordination.register import RegisterValue, VersionedRegister

__all__ = ["LeaderElection", "RegisterValue", "VersionedRegister"]
