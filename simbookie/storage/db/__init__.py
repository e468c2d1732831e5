"""The ledger store that BookKeeper calls ``DbLedgerStorage``: caches, and an index in a database."""
