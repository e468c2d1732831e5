"""Bytes: BookKeeper's entry packets and wire protocol, versions 2 and 3, without any I/O."""
