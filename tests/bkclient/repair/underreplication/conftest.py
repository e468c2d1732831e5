"""What auto-recovery's programs agree by is told over every driver, as the stores themselves are."""

from tests.bkclient.metadata.conftest import OpenSession, open_session

__all__ = ["OpenSession", "open_session"]
