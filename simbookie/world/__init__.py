"""The simulated world: hosts, a network and a metadata service in virtual time, decided by one seed.

Here the shipped client runs unchanged against the same bookies that TCP clients meet, while everything around them breaks on
purpose, and every run can be repeated exactly. See :mod:`simbookie.world.hosts` for how to make one.
"""
