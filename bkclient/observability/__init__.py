"""Ready-made ways of watching a client: counts in memory, Prometheus, OpenTelemetry.

All of them are optional and cost nothing while they are not used: a client without them makes no call into this package.
:mod:`bkclient.observability.memory_stats` needs nothing; :mod:`~bkclient.observability.prometheus` and
:mod:`~bkclient.observability.tracing` need the extras ``prometheus`` and ``opentelemetry``. ``docs/using/observability.md`` lists
what there is to see.
"""
