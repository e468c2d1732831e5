"""A development cluster that can be looked at and broken while it runs: by commands of its terminal, and by a page."""
