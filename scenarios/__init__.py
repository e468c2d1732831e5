"""Fault scenarios: the shipped client in the simulated world, recorded, checked, and replayable from a seed."""
