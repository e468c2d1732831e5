"""Messages, their ids, and the bytes of the entries that hold them; sans-I/O. ``docs/reference/log-format.md`` has the bytes."""
