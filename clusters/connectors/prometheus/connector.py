"""Usage of one Kubernetes cluster from the Prometheus that watches it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Self

from clusters.connectors.base import Reading, Row
from clusters.connectors.http import Endpoint
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.coverage import incomplete_hours
from clusters.connectors.prometheus.login import PrometheusLogin
from clusters.connectors.prometheus.options import PrometheusOptions
from clusters.connectors.prometheus.queries import Queries
from clusters.connectors.prometheus.sweep import Sweep

if TYPE_CHECKING:
    from types import TracebackType


class PrometheusConnector:
    """A `Connector`. `clock` gives epoch seconds, for signatures alone: windows end by Prometheus's own time.

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

        The last ten minutes of Prometheus's own time are left for a later pass. Of the rows, those of one day are held
        in memory, and those of the pods that run.
        """
        self.reading = Reading()
        sweep = Sweep(self.client, Queries(self.options))
        try:
            yield from sweep.rows(since=since, until=until, open_keys=open_keys)
            through = sweep.complete_through
            self.reading.complete_through = through
            self.reading.missing, self.reading.unasked = sweep.missing, sweep.unasked
            self.reading.nodes = sweep.nodes
            if through is not None:
                self.reading.incomplete = incomplete_hours(sweep.gaps, since, through)
        finally:
            self.reading.notes = sweep.notes.sentences(
                sweep.gaps, label=self.options.account.label, remarks=self.client.remarks
            )
            self.client.close()

    def close(self) -> None:
        self.client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
