"""Settings of a client: one frozen, validated object, and BookKeeper's own keys and files to make it from."""

from bkclient.config.settings import ClientConfig

__all__ = ["ClientConfig"]
