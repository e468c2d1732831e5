"""Giving space back: entry logs of deleted ledgers go, and what is alive in nearly dead ones moves."""
