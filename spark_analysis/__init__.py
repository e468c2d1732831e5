"""Recorded histories as tables, and the protocol's guarantees as questions to them, answered by Spark."""
