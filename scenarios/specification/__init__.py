"""The published TLA+ specification of BookKeeper's protocol, and what the shipped machines do, action by action.

The specification (Jack Vanlightly's ``BookKeeperProtocol.tla``) describes the protocol as actions: each says when it may happen,
and what is different afterwards. Its actions are stated here anew, as checks of one step: the client before, what it heard,
what it sent, the client after. The steps are those that an exhaustive search makes of the shipped machines, which is all that
they can do in a cluster of that size.

The names of actions are those of the specification. What ours does in another way, and why it may, is in
``docs/inside/specification.md``.

================  ==========================================================================
``values``        a client as the specification sees it, and how ours is seen so
``writing``       the actions of the writer, and what writer and recovery have in common
``recovering``    the actions of a recovery
``storing``       the actions of bookies
``conformance``   all steps of a search, each with the actions that it consists of
``histories``     the same for recorded histories, whose clients are only seen from outside
================  ==========================================================================
"""
