"""The metrics in the form that a scrape asks for."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from django.conf import settings
from django.db import transaction
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from portal.core.tenants.scope import limit_queries
from portal.ops.metrics.families import families, queues, replication, requests

LONGEST_QUERY = "10s"  # a scrape is given up by then, and the next one is on its way


class Tables(Collector):
    """Reads the database, so that every web process answers alike. Of the process itself it says nothing:
    behind one address there are several, and each scrape would meet another."""

    def __init__(self, moment: datetime) -> None:
        self.moment = moment

    def collect(self) -> Iterable[Metric]:
        with transaction.atomic():
            limit_queries(LONGEST_QUERY)
            yield from families(moment=self.moment, most=settings.CLUSTERTAB_METRICS_SERIES)
        yield from replication()
        yield from queues()
        yield from requests()


def exposed(*, accept: str, moment: datetime) -> tuple[bytes, str]:
    """The metrics as they are at `moment`, and their content type: OpenMetrics where `accept` wants it, else text.

    Raises DatabaseError.
    """
    registry = CollectorRegistry()
    registry.register(Tables(moment))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type
