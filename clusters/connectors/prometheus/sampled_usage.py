"""Usage of machines without a scheduler, from a gauge of what each user holds: netdata's and Genv's.

Nothing tells when a use began or ended, so samples are all there is: each stands for the interval before it. There is
one fact for each host, user and hour of UTC, under a key of those three, made when the hour has settled. So a pull may
read any hours in any order, and again: the same samples make the same fact, and late ones a revision of it.

What was held in an hour is a whole number of units × seconds. Where it stayed the same, the fact holds that many units
for the seconds in which it was seen, and the rest of the hour is suspended. Where it changed, the fact holds the mean,
rounded down, and a second fact under the key with `/rest` holds one unit for the seconds that are left over: together
they are what the samples say, to the second. The second one is left out where one series told the same all along: an
hour of which that was ever untrue stays so whatever comes late, and otherwise it may be of no length, so it never has
to be taken back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal

from clusters.connectors.base import BadRow, ConnectorError, IncompleteHour, Row, UsageFact
from clusters.connectors.http import TooLargeError
from clusters.connectors.prometheus.catalog import SampledSeries
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.coverage import HOUR, MISSED, utc
from clusters.connectors.prometheus.options import PrometheusOptions
from clusters.connectors.prometheus.queries import Queries, alternatives, span
from clusters.connectors.prometheus.responses import Series, TooMuchError, first, usual_step

SETTLE = 600  # seconds after an hour in which its last samples come
AT_ONCE = 6 * HOUR  # read in one query
FAR = 72 * HOUR  # after what is read in which a sign is looked for that the source went on
USUAL = 60  # seconds between two samples, where none tell
STATE = "SAMPLED"

Slots = dict[int, Decimal]
"""Of an hour: value by the number of the interval in it."""


@dataclass(slots=True)
class _Use:
    """What one user held at one host, by hour and part. Of one interval the largest value counts: replicas agree."""

    hours: dict[int, dict[str, Slots]] = field(default_factory=dict)
    series: dict[int, set[int]] = field(default_factory=dict)  # of each hour, by number

    def add(self, series: int, hour: int, part: str, slot: int, value: Decimal) -> None:
        slots = self.hours.setdefault(hour, {}).setdefault(part, {})
        slots[slot] = max(value, slots.get(slot, value))
        self.series.setdefault(hour, set()).add(series)

    def total(self, hour: int) -> Slots:
        """Of all parts."""
        totals: Slots = {}
        for slots in self.hours[hour].values():
            for slot, value in slots.items():
                totals[slot] = totals.get(slot, Decimal(0)) + value
        return totals


class SampledUsage:
    """Reads whole hours of UTC. After `rows` the rest of it stands in its attributes."""

    def __init__(self, client: PrometheusClient, options: PrometheusOptions, series: SampledSeries) -> None:
        self.client = client
        self.options = options
        self.series = series
        self.queries = Queries(options)
        self.complete_through: int | None = None
        self.incomplete: list[IncompleteHour] = []

    def rows(self, *, since: int, until: int, now: int) -> Iterator[Row]:
        """The hours that touch [since, until) and have settled by `now`, Prometheus's own time.

        Raises `ConnectorError`.
        """
        begin, end = since - since % HOUR, min(until, now - SETTLE)
        end -= end % HOUR
        looked = min(now, max(end, begin) + FAR)
        scrapes = self._scrapes(begin, looked, now)
        through = self._seen_through(scrapes, begin, end, looked, now)
        length, at = AT_ONCE, begin
        while at < through:
            upto = min(at + length, through)
            try:
                rows = self._window(scrapes, at, upto)
            except (TooMuchError, TooLargeError):
                if length == HOUR:
                    raise
                length = HOUR
                continue
            yield from rows
            at = upto
        self.complete_through = through if through > begin else None

    def notes(self) -> list[str]:
        """What an operator should know of the pull."""
        unseen = sum(hour.read - hour.covered for hour in self.incomplete)
        if not unseen:
            return []
        hours = "1 hour" if len(self.incomplete) == 1 else f"{len(self.incomplete)} hours"
        begins = utc(self.incomplete[0].begins)
        sentence = f"{self.series.metric} was not seen for {unseen} s in {hours} from {begins} on"
        return [f"{sentence}: what was held then is not known, and not billed."]

    def _scrapes(self, begin: int, looked: int, now: int) -> str:
        """A selector of series that stand while the source is read: its `up`, else what it always tells.

        They are looked for up to the epoch second `looked`, and where there were none by then, now.
        """
        for seconds, at in ((looked - begin, looked), (HOUR, now)):
            jobs: set[str] = set()
            last = ""
            for metric in (self.series.metric, self.series.always):
                selector = self.queries.selector(metric)
                series = self._seen(f"count by (job) (count_over_time({selector}[{span(seconds)}]))", at)
                jobs |= {one.metric.get("job", "") for one in series}
                last = selector if series else last
            if jobs:
                up = self.queries.selector("up", f'job=~"{alternatives(sorted(jobs))}"')
                there = "" not in jobs and self._any(up, seconds, at)
                return up if there else last
        raise ConnectorError(
            "prometheus-no-samples",
            retry=True,
            address=self.client.http.address,
            metric=self.series.metric,
            since=utc(begin),
        )

    def _seen_through(self, scrapes: str, begin: int, end: int, looked: int, now: int) -> int:
        """Up to which hour's end the source had looked: something was seen after it, soon or now."""
        after = end
        while after > begin and not self._any(scrapes, looked - after, looked):
            after -= HOUR
        if after < end and looked < now and self._any(scrapes, HOUR, now):
            return end  # a hole that nothing will fill
        return max(after, begin)

    def _any(self, selector: str, seconds: int, at: int) -> bool:
        return bool(self._seen(f"count(count_over_time({selector}[{span(seconds)}]))", at))

    def _seen(self, query: str, at: int) -> list[Series]:
        return self.client.instant(query, at)

    def _window(self, scrapes: str, begin: int, end: int) -> list[Row]:
        looked = self.client.instant(f"{scrapes}[{span(end - begin)}]", end)
        series = self.client.instant(f"{self.queries.selector(self.series.metric)}[{span(end - begin)}]", end)
        interval = _interval([*looked, *series])
        self.incomplete += _incomplete(looked, begin, end, interval, of_up=scrapes.startswith("up{"))
        uses: dict[tuple[str, str], _Use] = {}
        for number, one in enumerate(series):
            self._take(number, one, interval, uses)
        rows: list[Row] = []
        for (host, user), use in sorted(uses.items()):
            for hour in sorted(use.hours):
                rows += self._facts(host, user, hour, use, interval)
        return rows

    def _take(self, number: int, one: Series, interval: int, uses: dict[tuple[str, str], _Use]) -> None:
        labels = one.metric
        host = first(labels, self.series.hosts)
        user = labels.get(self.series.user, "")
        part = "/".join(labels.get(name, "") for name in self.series.parts)
        use = uses.setdefault((host, user), _Use())
        for at, value in one.values:
            if value.is_finite():
                hour, slot = _place(int(at * 1000), int(one.values[0][0] * 1000), interval)
                use.add(number, hour, part, slot, value)

    def _facts(self, host: str, user: str, hour: int, use: _Use, interval: int) -> list[Row]:
        slots = use.total(hour)
        key = f"{host}/{user}/{datetime.fromtimestamp(hour, UTC):%Y-%m-%dT%HZ}"
        if any(value < 0 for value in slots.values()):
            payload = {
                "host": host,
                "user": user,
                "hour": hour,
                "values": [str(v) for _, v in sorted(slots.items())],
            }
            values = {"metric": self.series.metric}
            return [BadRow(code="negative-use", values=values, raw=json.dumps(payload), source_key=key)]
        sampled_seconds = min(sum(1 for value in slots.values() if value) * interval // 1000, HOUR)
        exact = sum(slots.values(), Decimal(0)) * interval / 1000
        above, below = exact.as_integer_ratio()
        total = (2 * above + below) // (2 * below)  # whole unit-seconds; values may be averages
        if not sampled_seconds or not total:
            return []
        units, rest = divmod(total, sampled_seconds)
        steady = len(use.series[hour]) == 1 and len({value for value in slots.values() if value}) == 1
        rows: list[Row] = (
            [self._fact(key, host, user, units, hour, HOUR, HOUR - sampled_seconds)] if units else []
        )
        if not steady or rest:
            rows.append(self._fact(f"{key}/rest", host, user, 1, hour, rest, 0))
        return rows

    def _fact(
        self, key: str, host: str, user: str, units: int, hour: int, lasted: int, suspended: int
    ) -> UsageFact:
        of_memory = self.series.of_memory
        return UsageFact(
            source_key=key,
            account=user,
            user=user,
            job_id=f"{user}@{host}",
            queue=host,
            gpus=0 if of_memory else units,
            gpu_model=self.options.models.get(host, ""),
            nodes=1,
            node_list=host,
            started=hour,
            ended=hour + lasted,
            suspended=suspended,
            state=STATE,
            gpu_memory_mib=units if of_memory else 0,
        )


def _place(at: int, first: int, interval: int) -> tuple[int, int]:
    """The hour of a sample and its interval there. Milliseconds; `first` is a sample of the same scraper.

    Counted from the scraper's own phase, so that some milliseconds of jitter move no sample into its neighbour's place.
    """
    hour = (at - 1) // (HOUR * 1000) * HOUR  # what was seen at its end belongs to it
    since = at - hour * 1000
    phase = (first - hour * 1000) % interval
    slots = -(-HOUR * 1000 // interval)
    return hour, min(max((since - phase + interval // 2) // interval, 0), slots - 1)


def _interval(series: Sequence[Series]) -> int:
    """The usual distance of two samples, in milliseconds, to the second."""
    return 1000 * (usual_step(one.values for one in series) or USUAL)


def _incomplete(
    looked: Sequence[Series], begin: int, end: int, interval: int, *, of_up: bool
) -> list[IncompleteHour]:
    """Hours that no scraper saw all of, or in which a host did not answer. Up to three samples may be late."""
    good: dict[int, dict[int, int]] = {}  # by hour and series
    down: dict[int, dict[int, int]] = {}
    for number, one in enumerate(looked):
        for at, value in one.values:
            hour = (int(at * 1000) - 1) // (HOUR * 1000) * HOUR
            target = down if of_up and value != 1 else good
            counts = target.setdefault(hour, {})
            counts[number] = counts.get(number, 0) + 1
    hours = []
    for hour in range(begin, end, HOUR):
        unseen = HOUR * 1000 // interval - _most(good, hour) - _most(down, hour)
        missed = (unseen if unseen > MISSED else 0) + (_most(down, hour) if _most(down, hour) > MISSED else 0)
        gap = min(missed * interval // 1000, HOUR)
        if gap:
            hours.append(IncompleteHour(hour, HOUR, HOUR - gap))
    return hours


def _most(counts: Mapping[int, Mapping[int, int]], hour: int) -> int:
    return max(counts.get(hour, {}).values(), default=0)
