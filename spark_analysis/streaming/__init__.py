"""Judging histories while they are written: what came to a folder, how far each was judged, and a source for Spark."""
