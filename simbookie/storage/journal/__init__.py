"""The journal of a bookie: the log that every add goes through before it is acknowledged, byte for byte BookKeeper's."""
