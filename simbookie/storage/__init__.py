"""What bookies keep, and how it survives crashes."""
