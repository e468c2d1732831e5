"""BookKeeper's consistency protocol as synchronous state machines.

Nothing in this package does I/O, reads a clock, draws a random number or logs. A machine takes inputs (an append, a
bookie's answer, a metadata result) as method calls and acts by calling small *ports*: send this to that bookie, run this
metadata update, confirm this entry, fail with this code. The asynchronous shells in :mod:`bkclient` own one machine each
and turn its ports into network and metadata calls.

Duties of a machine's driver:

* inputs of one ledger arrive one at a time and are never nested: a port must not call back into its machine (W-2);
* every request that a port sent is answered exactly once, with a code when nothing better is known;
* a metadata update handed out by a port is driven to its end and handed back.

A machine is a value (:mod:`~bkclient.protocol.value`): it can be copied, compared and pickled between any two inputs, and
bound to other ports. What it hands out never changes: entries, intents, numbers of updates.

Where to find the rules: :mod:`~bkclient.protocol.quorum` (DS), :mod:`~bkclient.protocol.adds`,
:mod:`~bkclient.protocol.writer_state` and :mod:`~bkclient.protocol.append` (W),
:mod:`~bkclient.protocol.ensemble_change` and :mod:`~bkclient.protocol.ensemble` (W-24..W-35),
:mod:`~bkclient.protocol.quorum_timeout` (W-46), :mod:`~bkclient.protocol.force`, :mod:`~bkclient.protocol.deferred_lac`
and :mod:`~bkclient.protocol.explicit_lac` (LAC), :mod:`~bkclient.protocol.reconnect` (W-60),
:mod:`~bkclient.protocol.intents` and :mod:`~bkclient.protocol.update` (W-48), :mod:`~bkclient.protocol.lac` (R-34,
REC-6..REC-10), :mod:`~bkclient.protocol.read` (R-7..R-16, REC-18), :mod:`~bkclient.protocol.batch_read` (R-25..R-32),
:mod:`~bkclient.protocol.long_poll` (R-39..R-45), :mod:`~bkclient.protocol.tail`, :mod:`~bkclient.protocol.recovery` and
:mod:`~bkclient.protocol.read_ahead` (REC).
"""
