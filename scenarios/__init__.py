"""Fault scenarios: the shipped client in the simulated world, recorded, judged, and replayable from a seed."""
