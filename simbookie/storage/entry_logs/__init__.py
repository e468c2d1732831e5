"""Entry logs: the files in which entries of all ledgers are kept, one after the other."""
