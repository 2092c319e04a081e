"""Tokens that models read and wrote, from counters of vLLM and LiteLLM: sums of a declared meter by hour of UTC.

A counter is read sample by sample, so that sums are exact: what it grew by from one sample to the next belongs to the
hour of the later one. Where it fell, its process began anew and the new value is what it counted since. So each token
is in one hour, whatever hours are read together or again, and an hour that is read again gives the same sums, or a
revision of them where samples came late.

A counter without a sample in the hours before is one of three things. A new process, or a new label set of a process
that was being read: it began at 0, and its first value counts. Anything else, as a server that was up before
Prometheus looked at it, or one whose labels were changed: what it counted before is not known, or was counted under
other labels, so that counting begins with the first sample.

Not yet seen from a live vLLM: its input is made from its published definitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from clusters.connectors import sums
from clusters.connectors.base import IncompleteHour, Row
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.counters import Counter, Counters, Samples, Scraped
from clusters.connectors.prometheus.coverage import HOUR, Coverage, of_minutes, utc
from clusters.connectors.prometheus.options import PrometheusOptions
from clusters.connectors.prometheus.queries import alternatives, span
from clusters.connectors.prometheus.responses import Labels
from clusters.connectors.prometheus.token_options import Direction, TokenOptions
from clusters.connectors.sums import MeterUnits

SETTLE = 600  # seconds after an hour in which its last samples come
PROCESS = "process_start_time_seconds"
UNKNOWN = "unknown"  # the model of a counter without its label
BEFORE = 2  # hours before those that are asked for in which a counter's last sample is looked for

Group = tuple[str, str, str]
"""Account, user and model."""


@dataclass(slots=True)
class _Hour:
    """What an hour came to: tokens by group and direction, and how many counters began in the dark."""

    grown: dict[Group, dict[Direction, int]] = field(default_factory=dict)
    unknown: int = 0
    scraped: Scraped = field(default_factory=Scraped)


class TokenSums:
    """Reads whole hours of UTC. After `rows` the rest of it stands in its attributes."""

    def __init__(
        self, client: PrometheusClient, options: PrometheusOptions, tokens: TokenOptions, meters: MeterUnits
    ) -> None:
        self.client = client
        self.tokens = tokens
        self.meters = meters
        self.matcher = options.matcher if tokens.matcher is None else tokens.matcher
        self.complete_through: int | None = None
        self.incomplete: list[IncompleteHour] = []
        self.unknown = 0  # counters whose first value was not counted
        self._counters = {direction: Counters(self._labels) for direction in tokens.metrics}

    def selector(self, metric: str, *matchers: str) -> str:
        """All series of it that are read."""
        return f"{metric}{{{','.join(filter(None, (*matchers, self.matcher)))}}}"

    def rows(self, *, since: int, until: int, now: int) -> Iterator[Row]:
        """The hours that touch [since, until) and have settled by `now`, Prometheus's own time, none before the first.

        Raises `ConnectorError`.
        """
        begin = max(since - since % HOUR, self.tokens.first_hour)
        end = min(until, now - SETTLE)
        end -= end % HOUR
        if end <= begin:
            self.complete_through = max(since - since % HOUR, end)
            return
        seen, end = self._seen(begin, end, now)
        gaps = seen.gaps(begin, end) if end > begin else []
        before: _Hour | None = None
        for hour in range(begin - BEFORE * HOUR, end, HOUR):
            read = self._read(hour, is_counted=hour >= begin)
            if hour >= begin:
                self.unknown += read.unknown
                yield from self._rows(hour, read, before or _Hour())
                self._look(hour, read.scraped, gaps)
            before = read
        self.complete_through = end

    def notes(self) -> list[str]:
        """What an operator should know of the pull."""
        notes = []
        if self.unknown:
            notes.append(
                f"{self.unknown} counters of tokens were there before Prometheus looked at them, or changed their "
                "labels: they count from their first sample on."
            )
        if self.incomplete:
            unseen = sum(hour.read - hour.covered for hour in self.incomplete)
            hours = f"{len(self.incomplete)} hours from {utc(self.incomplete[0].begins)} on"
            notes.append(
                f"Counters of tokens were not seen for {unseen} s in {hours}: what a server counted "
                "then comes with its next sample, unless it was restarted meanwhile."
            )
        return notes

    def _seen(self, begin: int, end: int, now: int) -> tuple[Coverage, int]:
        """When Prometheus looked at anything, and up to which hour's end it has: the rest may come late."""
        for metric in ("up", self.tokens.metrics[Direction.INPUT]):
            seen = of_minutes(self.client, self.selector(metric), begin, min(now, end + HOUR))
            if seen.scrapes:
                break
        last = (seen.last(now) or 0) // 1000
        if last >= end or self.client.instant(
            f"count(count_over_time({self.selector(metric)}[{span(HOUR)}]))", now
        ):
            return seen, end  # a hole before what it sees now is one that nothing will fill
        return seen, max(begin, last - last % HOUR)

    def _read(self, hour: int, *, is_counted: bool) -> _Hour:
        """Read all counters of the hour, and remember where they stand."""
        answers = self.client.together(
            partial(self.client.instant, f"{self.selector(metric)}[{span(HOUR)}]", hour + HOUR)
            for metric in self.tokens.metrics.values()
        )
        taken = []
        for counters, series in zip(self._counters.values(), answers, strict=True):
            counters.forget(before=hour - BEFORE * HOUR)
            taken.append(counters.take(series))
        result = _Hour(scraped=self._scraped(hour, taken) if is_counted else Scraped())
        for direction, samples in zip(self.tokens.metrics, taken, strict=True):
            for counter, grown, in_the_dark in self._counters[direction].grow(samples, result.scraped):
                account, user, model = counter.named
                by = result.grown.setdefault((account, user, model), {})
                by[direction] = by.get(direction, 0) + grown
                result.unknown += in_the_dark
        return result

    def _scraped(self, hour: int, taken: Sequence[Mapping[Counter, Samples]]) -> Scraped:
        """When servers of tokens were read in this hour and the one before, and when new ones of them began."""
        jobs = {one.observer[0] for samples in taken for one in samples.values()}
        jobs = jobs.union(*(counters.jobs for counters in self._counters.values()))
        if not jobs:
            return Scraped()
        fresh = {
            counter.instance
            for counters, samples in zip(self._counters.values(), taken, strict=True)
            for counter in counters.fresh(samples)
        }
        selectors = [self.selector("up", f'job=~"{alternatives(sorted(jobs))}"')]
        if fresh:
            selectors.append(self.selector(PROCESS, f'instance=~"{alternatives(sorted(fresh))}"'))
        answers = self.client.together(
            partial(self.client.instant, f"{selector}[{span(2 * HOUR)}]", hour + HOUR)
            for selector in selectors
        )
        return Scraped.of(*answers)

    def _look(self, hour: int, scraped: Scraped, gaps: Sequence[tuple[int, int]]) -> None:
        """Keep the hour as incomplete where Prometheus did not look, or a server did not answer it."""
        unseen = sum(max(min(end, hour + HOUR) - max(begin, hour), 0) for begin, end in gaps)
        servers = set().union(*(counters.instances for counters in self._counters.values()))
        unseen = min(max(unseen, scraped.unanswered(servers, hour)), HOUR)
        if unseen:
            self.incomplete.append(IncompleteHour(hour, HOUR, HOUR - unseen))

    def _labels(self, labels: Labels) -> tuple[str, ...]:
        names = (self.tokens.account, self.tokens.user, self.tokens.model)
        texts = (labels.get(name, "") if name else "" for name in names)
        return tuple("" if text == self.tokens.empty else text for text in texts)

    def _rows(self, hour: int, read: _Hour, before: _Hour) -> Iterator[Row]:
        """One row for each group and direction that has tokens, or had some in the hour before: what came late may have
        moved them there."""
        for group, grown in sorted(read.grown.items()):
            split, earlier = _split(grown), _split(before.grown.get(group, {}))
            for direction in self.tokens.metrics:
                if split.get(direction) or earlier.get(direction):
                    yield self._row(group, direction, hour, split.get(direction, 0))

    def _row(self, group: Group, direction: Direction, hour: int, quantity: int) -> Row:
        account, user, model = group
        return sums.row_of_hour(
            hour,
            meter=self.tokens.meter,
            account=account,
            user=user,
            quantity=quantity,
            key=f"tokens/{sums.key_of(*group)}/{direction}",
            event=model or UNKNOWN,
            meters=self.meters,
            dimensions={"model": model or UNKNOWN, "direction": direction.value},
        )


def _split(grown: Mapping[Direction, int]) -> dict[Direction, int]:
    """Each token in one direction: a prompt's count has those in it that were cached.

    The two are counted at different moments of a request, so that what is cached is at most what was read.
    """
    read = grown.get(Direction.INPUT, 0)
    cached = min(grown.get(Direction.CACHED, 0), read)
    return {**grown, Direction.INPUT: read - cached, Direction.CACHED: cached}
