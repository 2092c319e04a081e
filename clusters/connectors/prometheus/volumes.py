"""Persistent volumes: GiB-hours that were requested, as sums of a declared meter by hour of UTC.

Kubernetes holds a claim's storage for as long as the claim is bound, whether or not a pod uses it. kube-state-metrics
tells of claims (its docs/metrics/storage/persistentvolumeclaim-metrics.md): what each requests, its phase, and its
storage class. Each minute of an hour is looked at, and stands for 60 seconds.
*Not yet seen from a live source*: tests push the series into a real Prometheus.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from urllib.parse import quote

from msgspec import structs

from clusters.connectors import sums
from clusters.connectors.base import Rejection, Row
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.coverage import HOUR, MINUTE
from clusters.connectors.prometheus.options import AccountFrom
from clusters.connectors.prometheus.pods import spelled
from clusters.connectors.prometheus.queries import Queries, span
from clusters.connectors.sums import MeterUnits

REQUESTED = "kube_persistentvolumeclaim_resource_requests_storage_bytes"
PHASE = "kube_persistentvolumeclaim_status_phase"
INFO = "kube_persistentvolumeclaim_info"
CLASS = "storage_class"
"""The dimension that a meter may have."""
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
        """A sum for each account, and each class where the meter tells them apart, of the hours that begin there; of
        bytes rounded down to the meter's decimals. Raises `ConnectorError`."""
        for hour in hours:
            for (account, storage_class), byte_seconds in sorted(self._held(hour).items()):
                yield self._row(account, storage_class, hour, byte_seconds)

    def expression(self) -> str:
        """Bytes of bound claims by namespace. Replicas of kube-state-metrics tell of the same claims."""
        claim = f"{self.queries.spellings('namespace')},persistentvolumeclaim"
        # A claim that is gone is told by staleness at once, and after two minutes where a store knows none.
        requested = (
            f"max by ({claim}) (last_over_time({self.queries.selector(REQUESTED)}[{span(2 * MINUTE)}]))"
        )
        bound = self.queries.selector(PHASE, 'phase="Bound"')
        held = f"{requested} * on ({claim}) (max by ({claim}) ({bound}) == 1)"
        by = self.queries.spellings("namespace")
        if self.by_class:
            info = f"max by ({claim},storageclass) ({self.queries.selector(INFO)})"
            held, by = f"{held} * on ({claim}) group_left (storageclass) {info}", f"{by},storageclass"
        return f"sum by ({by}) ({held})"

    def _held(self, hour: int) -> dict[tuple[str, str], int]:
        """Byte-seconds by account and class."""
        accounts = self._accounts(hour)
        held: dict[tuple[str, str], int] = {}
        series = self.client.range(self.expression(), start=hour + MINUTE, end=hour + HOUR, step=MINUTE)
        for one in series:
            namespace = spelled(one, "namespace", self.queries.options.labels)
            account = namespace if accounts is None else accounts.get(namespace, "")
            key = account, one.metric.get("storageclass", "") if self.by_class else ""
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

    def _row(self, account: str, storage_class: str, hour: int, byte_seconds: int) -> Row:
        begin = datetime.fromtimestamp(hour, UTC)
        stamp = f"{begin:%Y-%m-%dT%HZ}"
        parts = byte_seconds * 10**self.decimals // GIB_HOUR
        one = sums.Sum(
            meter=self.meter,
            account=account,
            quantity=f"{Decimal(parts).scaleb(-self.decimals):f}",
            start=begin,
            end=begin + timedelta(hours=1),
            dimensions={CLASS: storage_class or "none"} if self.by_class else {},
        )
        row = sums.fact_of(
            one,
            event_id=f"volumes {stamp}",
            key=f"volumes/{quote(account, safe='')}/{quote(storage_class, safe='')}/{stamp}",
            raw=json.dumps({**structs.asdict(one), "start": stamp, "end": None}, sort_keys=True),
            meters=self.meters,
        )
        return row.row if isinstance(row, Rejection) else row
