"""The rules of a log as values and machines: sans-I/O, as :mod:`bkclient.protocol` is for a ledger.

:mod:`~bkclient.log.machine.manifest` is what the metadata store holds about a log, :mod:`~bkclient.log.machine.changes` are the
changes of it, :mod:`~bkclient.log.machine.update` brings one about, and :mod:`~bkclient.log.machine.owner` is the owner of a log.
``docs/inside/log.md`` tells why it is right.
"""
