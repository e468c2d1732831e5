"""How a writer behaves, as its client is configured: one object for all writers that behave alike."""

from __future__ import annotations

from functools import lru_cache

from bkclient._client.core import ClientCore
from bkclient.protocol.append_options import AppendOptions

__all__ = ["options_of"]


def options_of(core: ClientCore, *, deferred_sync: bool, entry_ids_given: bool) -> AppendOptions:
    """The options of a writer of ``core``."""
    config, settings = core.config, core.config.writing
    return _shared(
        AppendOptions(
            max_ensemble_changes=settings.max_ensemble_changes,
            delay_ensemble_change=settings.delay_ensemble_change,
            deferred_sync=deferred_sync,
            entry_ids_given=entry_ids_given,
            enforce_fault_domains=settings.enforce_min_fault_domains,
            quorum_timeout_s=config.timeouts.add_quorum_s,
            first_resend_s=settings.resend_first_s,
            max_resend_s=settings.resend_max_s,
            max_resends=settings.max_resends,
            placement_policy=type(core.watcher.policy).__name__,
        )
    )


@lru_cache(maxsize=64)
def _shared(options: AppendOptions) -> AppendOptions:
    return options
