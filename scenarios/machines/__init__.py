"""A small world of protocol machines: one writer, some recoveries, bookies as dicts, and a network that may do anything.

Everything here is a value, moved by *moves*, each the smallest step there is: one request reaches its bookie, one answer its
client, one action of the store is carried out, something crashes. Who drives the world chooses the moves; nothing happens in
between, and after each the guarantees are checked. So a schedule is a list of moves, a world can be copied in the middle of
anything, and all orders of a few events can be tried (:mod:`~scenarios.machines.explore`), or very many random ones
(:mod:`~scenarios.machines.walks`). ``bk-chaos explore`` does both.

There is no shell, no wire, no loop and no clock here: what is explored are the machines of :mod:`bkclient.protocol` alone.
:mod:`scenarios.stage` runs whole clients. Defects of :mod:`scenarios.mutants` can be planted into either.

=================  ==================================================================================================
``world``          the world and its moves; ``clients`` its writer and recoveries, ``bookies``, ``store`` the rest
``guarantees``     what must hold in it, clause by clause, from what was sent, stored and told
``options_world``  with a writer that uses its options: given ids, deferred sync, delayed and disabled ensemble changes
``storage_world``  with disks that sync, forget and are lost, readers, and re-replication; judged by the reference model
``model``          the reference model: a ledger as applications see it, a list with a fence
``worlds``         worlds with names, some of them prepared for a search
``explore``        every order of some moves
``walks``          random moves; and the least part of a schedule that still breaks a clause
=================  ==================================================================================================
"""
