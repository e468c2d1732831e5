"""Exhaustive search: every order of everything that may happen to the shipped machines in a small cluster.

A search does not copy machines for each state. Each client is explored once as an *automaton*: its states are numbered by
value, and what a stimulus does in a state is computed once, by the shipped machine. A client together with the messages under
way from and to it is a *conversation*, which is numbered as well. So a state of the whole cluster is a few small numbers,
packed into one integer without loss, and a move adds a constant to it. Two different states never count as one.

Clients, bookies and the local guarantees are those of :mod:`scenarios.machines`. What is new here is the network, as numbers.

=================  ==================================================================================================
``configuration``  what is searched: quorums, bookies, entries, recoveries, and how much may go wrong
``automata``       clients as automata
``bookies``        bookies as an automaton
``conversations``  a client with what is under way from and to it
``moves``          the moves from a state, and which of them suffice
``search``         the search, breadth first, and its limits
``judging``        the clauses that concern a whole state
``verifying``      what the reductions assumed is checked after the search, against the automata
``traces``         the moves to a state, in words
=================  ==================================================================================================
"""
