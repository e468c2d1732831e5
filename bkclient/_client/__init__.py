"""The client and its handles: private, reached by the names that :mod:`bkclient` exports."""
