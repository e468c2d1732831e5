"""A data set of recorded histories: decoded once, in columns, placed so that no check moves them."""
