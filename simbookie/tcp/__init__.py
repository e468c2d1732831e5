"""What a bookie needs to be served to strangers over TCP: connections, their turns, limits and deadlines, registration."""
