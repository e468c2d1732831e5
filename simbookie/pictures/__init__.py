"""Pictures of a bookie under load: what its queues, caches, disks and collectors do over time."""
