"""The operators' interface of a bookie: HTTP endpoints, metrics, and what they read."""
