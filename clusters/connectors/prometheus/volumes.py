"""Persistent volumes: GiB-hours that were requested, as sums of a declared meter by hour of UTC.

Kubernetes holds a claim's storage for as long as the claim is bound, whether or not a pod uses it. kube-state-metrics
tells of claims (its docs/metrics/storage/persistentvolumeclaim-metrics.md): what each requests, its phase, and its
storage class. Each minute of an hour is looked at, and stands for 60 seconds.
*Not yet seen from a live source*: tests push the series into a real Prometheus.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from clusters.connectors import sums
from clusters.connectors.base import Row
from clusters.connectors.prometheus.allocations import spelled
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.coverage import HOUR, MINUTE
from clusters.connectors.prometheus.options import AccountFrom
from clusters.connectors.prometheus.queries import Queries, span
from clusters.connectors.sums import MeterUnits

REQUESTED = "kube_persistentvolumeclaim_resource_requests_storage_bytes"
PHASE = "kube_persistentvolumeclaim_status_phase"
INFO = "kube_persistentvolumeclaim_info"
CLASS = "storage_class"
"""The dimension that a meter may have."""
NO_CLASS = "none"
GIB_HOUR = (1 << 30) * HOUR  # byte-seconds


class VolumeSums:
    """Reads whole hours of UTC."""

    def __init__(self, client: PrometheusClient, queries: Queries, meters: MeterUnits) -> None:
        self.client = client
        self.queries = queries
        self.meters = meters
        self.meter = queries.options.volumes
        meter = meters.get(self.meter)
        self.by_class = meter is not None and CLASS in meter.dimensions
        self.decimals = meter.decimals if meter is not None else 0

    def rows(self, hours: range) -> Iterator[Row]:
        """A sum for each namespace and storage class of the hours that begin there, rounded down to the meter's
        decimals. Raises `ConnectorError`.

        Its key is the same whatever the account of the namespace, and whether or not the meter tells classes apart:
        when either is changed, an hour that is read again is the same sum, and none is billed twice.
        """
        for hour in hours:
            accounts = self._accounts(hour)
            for (namespace, storage_class), byte_seconds in sorted(self._held(hour).items()):
                parts = byte_seconds * 10**self.decimals // GIB_HOUR
                yield sums.row_of_hour(
                    hour,
                    meter=self.meter,
                    account=namespace if accounts is None else accounts.get(namespace, ""),
                    quantity=f"{Decimal(parts).scaleb(-self.decimals):f}",
                    key=f"volumes/{sums.key_of(namespace, storage_class)}",
                    event=f"volumes of {namespace}",
                    meters=self.meters,
                    dimensions={CLASS: storage_class or NO_CLASS} if self.by_class else {},
                )

    def expression(self) -> str:
        """Bytes of bound claims by namespace and class. Replicas of kube-state-metrics tell of the same claims."""
        claim = f"{self.queries.spellings('namespace')},persistentvolumeclaim"
        # A claim that is gone is told by staleness at once, and after two minutes where a store knows none.
        requested = (
            f"max by ({claim}) (last_over_time({self.queries.selector(REQUESTED)}[{span(2 * MINUTE)}]))"
        )
        bound = self.queries.selector(PHASE, 'phase="Bound"')
        held = f"({requested} * on ({claim}) (max by ({claim}) ({bound}) == 1))"
        # One class of a claim that was made anew under its name while replicas tell of both.
        info = f"topk by ({claim}) (1, max by ({claim},storageclass) ({self.queries.selector(INFO)}))"
        classed = f"{held} * on ({claim}) group_left (storageclass) {info}"
        return (
            f"sum by ({self.queries.spellings('namespace')},storageclass) "
            f"({classed} or {held} unless on ({claim}) {info})"
        )

    def _held(self, hour: int) -> dict[tuple[str, str], int]:
        """Byte-seconds by namespace and class."""
        held: dict[tuple[str, str], int] = {}
        for one in self.client.range(self.expression(), start=hour + MINUTE, end=hour + HOUR, step=MINUTE):
            namespace = spelled(one, "namespace", self.queries.options.labels)
            key = namespace, one.metric.get("storageclass", "")
            total = sum(int(value) for _, value in one.values if value.is_finite()) * MINUTE
            held[key] = held.get(key, 0) + total
        return held

    def _accounts(self, hour: int) -> dict[str, str] | None:
        """By namespace what its label said at the hour's end; None where the account is the namespace itself.

        Volumes have no pod, so its labels and queue tell nothing of them.
        """
        account = self.queries.options.account
        if account.source is not AccountFrom.NAMESPACE_LABEL:
            return None
        series = self.client.instant(self.queries.namespaces(account.label, HOUR), hour + HOUR)
        labels = self.queries.options.labels
        return {spelled(one, "namespace", labels): one.metric.get(account.label, "") for one in series}
