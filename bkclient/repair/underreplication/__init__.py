"""What programs of auto-recovery agree by, BookKeeper's own too: marks, locks and an election in the metadata service."""
