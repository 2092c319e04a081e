"""One look at a Prometheus: what has been answered so far, and what was found."""

from __future__ import annotations

from dataclasses import dataclass, field

from clusters.connectors.findings import Finding, Findings
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.coverage import watch
from clusters.connectors.prometheus.lifecycle import Window
from clusters.connectors.prometheus.queries import Queries

CHECK_WINDOW = 3600  # seconds before the present that are looked at


@dataclass
class CheckSession(Findings):
    client: PrometheusClient
    queries: Queries
    ours: int  # our clock, epoch seconds
    now: int = 0  # Prometheus's own
    findings: list[Finding] = field(default_factory=list)

    def count(self, selector: str) -> int:
        """Series of the selector in the time that is looked at."""
        series = self.client.instant(f"count(count_over_time({selector}[{CHECK_WINDOW}s]))", self.now)
        return int(series[0].value[1]) if series and series[0].value else 0

    @property
    def window(self) -> Window:
        since = self.now - CHECK_WINDOW
        return Window(
            since, self.now, self.now, watch(self.client, self.queries, since=since, until=self.now)
        )
