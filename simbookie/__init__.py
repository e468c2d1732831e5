"""Simulated bookies: the same bookie over TCP in real time, or in a simulated world in virtual time."""
