"""Persistent volumes: GiB-hours that were requested, as sums of a declared meter by hour of UTC.

Kubernetes holds a claim's storage for as long as the claim is bound, whether or not a pod uses it. kube-state-metrics
tells of claims (its docs/metrics/storage/persistentvolumeclaim-metrics.md): what each requests, its phase, its storage
class and its labels. Each minute of an hour is looked at, and stands for 60 seconds.
*Not yet seen from a live source*: tests push the series into a real Prometheus.

Most claims are bound all hour, of one class, and told of by whoever told of them before. Of these, hours tell all. To
join their series in each minute takes Prometheus twenty times as long, so that is done for the others alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial

from msgspec import structs

from clusters.connectors import sums
from clusters.connectors.base import Row
from clusters.connectors.prometheus.allocations import spelled
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.coverage import HOUR, MINUTE
from clusters.connectors.prometheus.options import AccountFrom
from clusters.connectors.prometheus.queries import Queries, alternatives, parts, span
from clusters.connectors.prometheus.responses import Series
from clusters.connectors.prometheus.samples import ByParts
from clusters.connectors.sums import MeterUnits, StoredSums

REQUESTED = "kube_persistentvolumeclaim_resource_requests_storage_bytes"
PHASE = "kube_persistentvolumeclaim_status_phase"
INFO = "kube_persistentvolumeclaim_info"
LABELS = "kube_persistentvolumeclaim_labels"
CLAIM = "persistentvolumeclaim"
CLASS = "storage_class"
"""The dimension that a meter may have."""
NO_CLASS = "none"
GIB_HOUR = (1 << 30) * HOUR  # byte-seconds
PREFIX = "volumes/"

Claim = tuple[str, str]
"""Its namespace and name."""
At = tuple[int, Claim]
"""The begin of an hour, and a claim."""
Accounts = Mapping[int, Mapping[str, str]] | None
"""By the begin of an hour and by namespace; None where the account is the namespace itself."""


@dataclass(frozen=True, slots=True, order=True)
class Group:
    """Claims whose storage is one sum. `label`: the account that they name by themselves; "" where they do not."""

    namespace: str
    storage_class: str
    label: str = ""

    @property
    def key(self) -> str:
        """The same whatever the account of the namespace, and whether or not the meter tells classes apart.

        So an hour that is read again after a change of either is the same sum, and none is billed twice.
        """
        named = (self.label,) if self.label else ()
        return f"{PREFIX}{sums.key_of(self.namespace, self.storage_class, *named)}"


@dataclass(frozen=True, slots=True)
class ClaimHour:
    """What an hour tells of a claim. `bound`: the part of it in which it was bound, 0 to 1.

    `is_whole`: one series tells of each of its minutes, and not one of kube-state-metrics before its rollout and
    another one after.
    """

    claim: Claim
    byte_minutes: int
    bound: Decimal
    classes: Collection[str]
    is_whole: bool

    @property
    def is_even(self) -> bool:
        """Nothing turned, so that the hour alone tells how much it held."""
        return self.bound == 1 and self.is_whole and len(self.classes) < 2


@dataclass(frozen=True, slots=True)
class VolumeHour:
    """Byte-seconds of each group in the hour that begins there; `accounts` of namespaces, None: their names."""

    hour: int
    held: Mapping[Group, int]
    accounts: Mapping[str, str] | None


class VolumeSums:
    """Reads whole hours of UTC. `stored` are the sums of an earlier reading."""

    def __init__(
        self,
        client: PrometheusClient,
        queries: Queries,
        meters: MeterUnits,
        stored: StoredSums = sums.none_stored,
    ) -> None:
        self.client = client
        self.queries = queries
        self.meters = meters
        self.stored = stored
        self.meter = queries.options.volumes
        self.label = queries.options.volume_label
        meter = meters.get(self.meter)
        self.by_class = meter is not None and CLASS in meter.dimensions
        self.decimals = meter.decimals if meter is not None else 0
        self.claim = f"{queries.spellings('namespace')},{CLAIM}"

    def rows(self, hours: range, *, incomplete: Collection[int] = ()) -> Iterator[Row]:
        """A sum for each group of claims of the hours that begin there, rounded down to the meter's decimals.

        What an earlier reading had and this one has not is revised to 0 in hours that were seen whole, not
        `incomplete`, and in which anything is held. Raises `ConnectorError`.
        """
        for several in ByParts(self.client, hours, self._read):
            for one in several:
                rows = list(self._sums(one))
                yield from rows
                if rows and one.hour not in incomplete:
                    keys = {row.source_key for row in rows}
                    for fact in self.stored(PREFIX, one.hour, one.hour + HOUR):
                        if fact.source_key not in keys:
                            yield structs.replace(fact, quantity=0)

    def _sums(self, one: VolumeHour) -> Iterator[Row]:
        for group, byte_seconds in sorted(one.held.items()):
            quantity = Decimal(byte_seconds * 10**self.decimals // GIB_HOUR).scaleb(-self.decimals)
            named = group.namespace if one.accounts is None else one.accounts.get(group.namespace, "")
            yield sums.row_of_hour(
                one.hour,
                meter=self.meter,
                account=group.label or named,
                quantity=f"{quantity:f}",
                key=group.key,
                event=f"volumes of {group.namespace}",
                meters=self.meters,
                dimensions={CLASS: group.storage_class or NO_CLASS} if self.by_class else {},
            )

    def expression(self, names: Collection[str] = ()) -> str:
        """Bytes of bound claims by their class, of all or of those with these names.

        Replicas of kube-state-metrics tell of the same claims.
        """
        named = f'{CLAIM}=~"{alternatives(list(names))}"' if names else ""
        # A claim that is gone is told by staleness at once, and after two minutes where a store knows none.
        requested = (
            f"max by ({self.claim}) "
            f"(last_over_time({self.queries.selector(REQUESTED, named)}[{span(2 * MINUTE)}]))"
        )
        bound = self.queries.selector(PHASE, 'phase="Bound"', named)
        held = f"({requested} * on ({self.claim}) (max by ({self.claim}) ({bound}) == 1))"
        # One class of a claim that was made anew under its name while replicas tell of both.
        info = (
            f"topk by ({self.claim}) "
            f"(1, max by ({self.claim},storageclass) ({self.queries.selector(INFO, named)}))"
        )
        classed = f"{held} * on ({self.claim}) group_left (storageclass) {info}"
        return f"({classed} or {held} unless on ({self.claim}) {info})"

    def _queries(self) -> dict[str, str]:
        """What hours tell, each of all claims at once."""
        each = f"(last_over_time({self.queries.selector(REQUESTED)}[{span(2 * MINUTE)}]))[{span(HOUR)}:1m]"
        bound = self.queries.selector(PHASE, 'phase="Bound"')
        queries = {
            "bytes": f"max by ({self.claim}) (sum_over_time({each}))",
            "minutes": f"max by ({self.claim}) (count_over_time({each}))",
            "bound": f"avg by ({self.claim}) (avg_over_time({bound}[{span(HOUR)}]))",
            "class": self._within(INFO, "storageclass"),
        }
        if self.label:
            named = self.queries.selector(LABELS, f'{self.label}!=""')
            queries["label"] = self._within(LABELS, self.label, f'{self.label}!=""')
            queries["label now"] = f"max by ({self.claim},{self.label}) ({named})"
        if (account := self.queries.options.account).source is AccountFrom.NAMESPACE_LABEL:
            queries["namespace"] = self.queries.namespaces(account.label, HOUR)
        return queries

    def _within(self, metric: str, label: str, *matchers: str) -> str:
        selector = self.queries.selector(metric, *matchers)
        return f"max by ({self.claim},{label}) (max_over_time({selector}[{span(HOUR)}]))"

    def _read(self, hours: range) -> list[VolumeHour]:
        ends = {"start": hours.start + HOUR, "end": hours.stop, "step": HOUR}
        queries = self._queries()
        answers = self.client.together(
            partial(self.client.range, query, **ends) for query in queries.values()
        )
        series = dict(zip(queries, answers, strict=True))
        claims = self._claims(series)
        labels = self._texts(series.get("label", ()), self.label)
        labels |= self._texts(series.get("label now", ()), self.label)
        accounts = self._accounts(series.get("namespace"))
        return [self._hour(hour, claims[hour], labels, accounts) for hour in hours]

    def _hour(
        self, hour: int, claims: Iterable[ClaimHour], labels: Mapping[At, Collection[str]], accounts: Accounts
    ) -> VolumeHour:
        held: dict[tuple[Claim, str], int] = {}
        cut: list[Claim] = []
        for one in claims:
            if one.is_even:
                held[one.claim, next(iter(one.classes), "")] = one.byte_minutes * MINUTE
            elif one.bound:
                cut.append(one.claim)
        held |= self._cut(hour, cut)
        groups: dict[Group, int] = defaultdict(int)
        for (claim, storage_class), byte_seconds in held.items():
            label = max(labels.get((hour, claim), ()), default="")
            groups[Group(claim[0], storage_class, label)] += byte_seconds
        return VolumeHour(hour, groups, None if accounts is None else accounts.get(hour, {}))

    def _claims(self, series: Mapping[str, Iterable[Series]]) -> dict[int, list[ClaimHour]]:
        """By the begin of an hour."""
        minutes, bound = (self._values(series[what]) for what in ("minutes", "bound"))
        classes = self._texts(series["class"], "storageclass")
        claims: dict[int, list[ClaimHour]] = defaultdict(list)
        for at, total in self._values(series["bytes"]).items():
            hour, claim = at
            claims[hour].append(
                ClaimHour(
                    claim,
                    byte_minutes=int(total),
                    bound=bound.get(at, Decimal(0)),
                    classes=classes.get(at, frozenset()),
                    is_whole=minutes.get(at) == HOUR // MINUTE,
                )
            )
        return claims

    def _cut(self, hour: int, claims: Collection[Claim]) -> dict[tuple[Claim, str], int]:
        """Byte-seconds by claim and class, from each minute of the hour."""
        held: dict[tuple[Claim, str], int] = {}
        for names in parts(sorted({name for _, name in claims})):
            series = self.client.range(
                self.expression(names), start=hour + MINUTE, end=hour + HOUR, step=MINUTE
            )
            for one in series:
                if (claim := self._claim(one)) in claims:
                    key = claim, one.metric.get("storageclass", "")
                    total = sum(int(value) for _, value in one.values if value.is_finite()) * MINUTE
                    held[key] = held.get(key, 0) + total
        return held

    def _claim(self, series: Series) -> Claim:
        return spelled(series, "namespace", self.queries.options.labels), series.metric.get(CLAIM, "")

    def _values(self, series: Iterable[Series]) -> dict[At, Decimal]:
        """What can be no amount is none."""
        values: dict[At, Decimal] = {}
        for one in series:
            claim = self._claim(one)
            for at, value in one.values:
                if value.is_finite() and value >= 0:
                    key = int(at) - HOUR, claim
                    values[key] = max(value, values.get(key, value))
        return values

    def _texts(self, series: Iterable[Series], label: str) -> dict[At, set[str]]:
        texts: dict[At, set[str]] = defaultdict(set)
        for one in series:
            claim, text = self._claim(one), one.metric.get(label, "")
            for at, _ in one.values:
                texts[int(at) - HOUR, claim].add(text)
        return texts

    def _accounts(self, series: Iterable[Series] | None) -> Accounts:
        """What the labels of namespaces said.

        Volumes have no pod, so its labels and queue tell nothing of them.
        """
        if series is None:
            return None
        options = self.queries.options
        accounts: dict[int, dict[str, str]] = defaultdict(dict)
        for one in series:
            for at, _ in one.values:
                of_hour = accounts[int(at) - HOUR]
                of_hour[spelled(one, "namespace", options.labels)] = one.metric.get(options.account.label, "")
        return accounts
