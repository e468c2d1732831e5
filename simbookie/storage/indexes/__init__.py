"""Indexes: where in the entry logs an entry is, and what is known of a ledger."""
