"""How the tests read a Prometheus, and set what they read beside what really was."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from clusters.connectors.base import BusyHour, UsageFact
from clusters.connectors.findings import Finding
from clusters.connectors.http import Endpoint, Http
from clusters.connectors.prometheus import PrometheusConnector, PrometheusLogin, PrometheusOptions
from clusters.connectors.prometheus.check import examine
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.option_parsing import options_from
from clusters.connectors.sums import MeterUnits
from tests.fakes.prometheus import Reply, Request, StandIn

HOUR = 3600
ADMITTED = 1_772_600_000  # what our own clock says; a connector decides nothing by it


def connector(
    url: str,
    *,
    clock: Callable[[], int] = lambda: ADMITTED,
    meters: MeterUnits = MappingProxyType({}),
    stored: Collection[UsageFact] = (),
    **options: Any,
) -> PrometheusConnector:
    return PrometheusConnector(
        Endpoint(base_url=url),
        login=PrometheusLogin(),
        options=PrometheusOptions(**options),
        clock=clock,
        meters=meters,
        stored=lambda prefix, begin, end: [
            one
            for one in stored
            if begin <= (one.started or 0) < end and one.quantity and one.source_key.startswith(prefix)
        ],
    )


def read(
    url: str, since: int, until: int, open_keys: Collection[str] = (), **options: Any
) -> tuple[list[UsageFact], PrometheusConnector]:
    """All facts of one pass; there are no bad rows."""
    facts, _, source = read_all(url, since, until, open_keys, **options)
    return facts, source


def read_all(
    url: str, since: int, until: int, open_keys: Collection[str] = (), **options: Any
) -> tuple[list[UsageFact], list[BusyHour], PrometheusConnector]:
    """All facts of one pass and then how busy they were; there are no bad rows."""
    source = connector(url, **options)
    rows = list(source.usage(since=since, until=until, open_keys=open_keys))
    facts = [row for row in rows if isinstance(row, UsageFact)]
    busy = [row for row in rows if isinstance(row, BusyHour)]
    assert [*facts, *busy] == rows
    return facts, busy, source


def findings_of(url: str, now: int, options: dict[str, Any]) -> dict[str, Finding]:
    """What "Test connection" says at `now`, by subject."""
    with PrometheusClient(Endpoint(base_url=url), PrometheusLogin(), clock=lambda: now) as client:
        return {finding.subject: finding for finding in examine(client, options_from(options), now=now)}


def through(real: Http, request: Request) -> Reply:
    """What a real server answers."""
    headers = PrometheusLogin().headers("", b"", clock=lambda: ADMITTED)
    response = real.call("POST", f"/api/v1/{request.what}", content=request.body, headers=headers)
    return Reply(response.status, response.body)


@contextmanager
def present(url: str, now: int) -> Iterator[str]:
    """The address of a real server at a moment: it tells that as its time, and nobody asks after later ones."""

    def answer(request: Request) -> Reply:
        assert max(int(request.form[name][0]) for name in ("time", "end") if name in request.form) <= now
        return through(real, request)

    with Http(Endpoint(base_url=url)) as real, StandIn(answer, now=now) as prometheus:
        yield prometheus.url


def billable(truth: dict[str, Any]) -> list[dict[str, Any]]:
    """The pods that held devices, or parts of them, for somebody."""
    return [
        pod
        for pod in truth["pods"]
        if pod["scheduled"] is not None and pod["namespace"] != "kai-resource-reservation"
    ]


def uid_of(fact: UsageFact) -> str:
    return fact.source_key.partition("/")[0]


def until_of(fact: UsageFact) -> int:
    """The second up to which it is billed."""
    until = fact.ended if fact.ended is not None else fact.seen_until
    assert until is not None
    return until


def gpu_seconds(fact: UsageFact) -> Fraction:
    """In devices, or parts of whole GPUs for fractions by annotation."""
    assert fact.started is not None
    share = Fraction(*fact.gpu_share) if fact.requested.startswith("gpu-") else Fraction(1)
    return (until_of(fact) - fact.started) * fact.gpus * share
