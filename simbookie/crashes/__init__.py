"""Killing a bookie on a simulated disk at every step, again and again, and holding it to what it promised."""
