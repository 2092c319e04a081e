"""Usage of one Kubernetes cluster from the Prometheus that watches it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from clusters.connectors.base import Connected, Reading, Row, UsageFact
from clusters.connectors.http import Endpoint
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.coverage import incomplete_hours, whole_hours
from clusters.connectors.prometheus.login import PrometheusLogin
from clusters.connectors.prometheus.options import PrometheusOptions
from clusters.connectors.prometheus.presets import SampledSeries
from clusters.connectors.prometheus.queries import Queries
from clusters.connectors.prometheus.sampled_usage import SampledUsage
from clusters.connectors.prometheus.usage_fetch import UsageFetch
from clusters.connectors.prometheus.utilisation import Telemetry


class PrometheusConnector(Connected):
    """A `Connector`. `clock` gives epoch seconds, to sign and to be compared: windows end by Prometheus's own time.

    `api` is "v1"; `release` stays "", since not every backend tells one.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        login: PrometheusLogin,
        options: PrometheusOptions | None = None,
        clock: Callable[[], int],
    ) -> None:
        self.options = options or PrometheusOptions()
        self.client = PrometheusClient(endpoint, login, clock=clock, parameters=self.options.parameters)
        self.reading = Reading()
        self.api = "v1"
        self.release = ""

    def usage(self, *, since: int, until: int, open_keys: Collection[str]) -> Iterator[Row]:
        """As the protocol says, but for pods that wait for a node: they hold nothing and are not told.

        The last ten minutes of Prometheus's own time are left for a later pass. After the facts comes how busy their
        devices were, for each hour of UTC that ends in the time read: also of pods that ended in it before `since`,
        whose facts an earlier pass gave. Facts are held in memory, and the telemetry of some hours at a time.
        """
        self.reading = Reading()
        self.reading.clocks = clocks = self.client.clocks()
        if self.options.sampled is not None:
            yield from self._sampled(
                self.options.sampled, since=since, until=until, open_keys=open_keys, now=clocks.theirs
            )
            return
        fetch = UsageFetch(self.client, Queries(self.options))
        telemetry = Telemetry(self.client, self.options)
        facts: dict[str, UsageFact] = {}
        try:
            for row in fetch.ended(since=since, until=until, open_keys=open_keys, now=clocks.theirs):
                _keep(facts, row)
                yield row
            for row in fetch.running:
                _keep(facts, row)
            through = fetch.complete_through
            facts = {fact.source_key: fact for fact in fetch.earlier} | facts
            busy = telemetry.rows(facts.values(), whole_hours(since, through) if through else range(0))
            yield from fetch.running
            yield from busy
            self.reading.complete_through = through
            self.reading.missing, self.reading.unasked = fetch.missing, fetch.unasked
            self.reading.nodes = fetch.nodes
            if through is not None:
                self.reading.incomplete = incomplete_hours(fetch.gaps, since, through)
        finally:
            self.reading.notes = fetch.notes.sentences(
                fetch.gaps, label=self.options.account_label, remarks=self.client.remarks
            )
            self.reading.notes += telemetry.gaps.sentences()
            self.client.close()

    def _sampled(
        self, series: SampledSeries, *, since: int, until: int, open_keys: Collection[str], now: int
    ) -> Iterator[Row]:
        """What users held, hour by hour; each has ended. Of open runs, which only pods make, nothing is told."""
        fetch = SampledUsage(self.client, self.options, series)
        try:
            yield from fetch.rows(since=since, until=until, now=now)
            self.reading.complete_through = fetch.complete_through
            self.reading.unasked = sorted(open_keys)
            self.reading.incomplete = fetch.incomplete
        finally:
            self.reading.notes = fetch.notes()
            self.client.close()

    def close(self) -> None:
        self.client.close()


def _keep(facts: dict[str, UsageFact], row: Row) -> None:
    if isinstance(row, UsageFact):
        facts[row.source_key] = row
