"""Writing a ledger: the public writers, the shell between them and the writer's machine, and what a shell works with.

``writer`` and ``advanced`` are the two public faces, with ``base`` as what they share. ``shell`` owns the
:class:`~bkclient.protocol.append.AppendMachine`; ``measured`` and ``traced`` are shells that pay for being watched.
"""
