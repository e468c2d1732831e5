"""Disks under a bookie's storage: the interface, one in memory that fails as real ones do, one over a folder."""
