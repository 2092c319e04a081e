"""One pull: windows in order of time, then the open runs that none of them had."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from clusters.connectors.base import ConnectorError, NodeSeen, Row, UsageFact
from clusters.connectors.http import TooLargeError
from clusters.connectors.prometheus import nodes
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.coverage import HOUR, Coverage, utc, watch, whole_hours
from clusters.connectors.prometheus.facts import Facts, Notes
from clusters.connectors.prometheus.lifecycle import Window
from clusters.connectors.prometheus.options import Scope
from clusters.connectors.prometheus.pods import pod_groups
from clusters.connectors.prometheus.queries import NODE_INFO, Queries
from clusters.connectors.prometheus.responses import TooMuchError

SETTLE = (
    600  # seconds up to Prometheus's present that are left to settle: scrapes and remote writes come late
)
LONGEST = 24 * HOUR  # of a window that is read at once
SHORTEST = HOUR // 4  # into which it is cut where the server refuses more
BRIDGED = 3 * LONGEST  # of an outage that ends after a window: the pods on both sides of it are held together
DEEP = 31 * 24 * HOUR  # how far back an open run that no window has is looked for
AT_ONCE = 100  # of those


@dataclass(slots=True)
class _PullState:
    """What a pull has come to know. Keys are source keys, times epoch seconds."""

    since: int
    open_keys: Collection[str]
    now: int  # Prometheus's own present
    closed: dict[str, Row] = field(default_factory=dict)
    running: dict[str, Row] = field(default_factory=dict)  # the newest row of each
    last: Window | None = None  # the newest window that kube-state-metrics was seen in
    through: int | None = None  # up to where all was read that there is
    gaps: list[tuple[int, int]] = field(default_factory=list)


class UsageFetch:
    """Reads what held devices in a time. After `rows` the rest of it stands in its attributes."""

    def __init__(self, client: PrometheusClient, queries: Queries) -> None:
        self.client = client
        self.queries = queries
        self.notes = Notes()
        self.complete_through: int | None = None
        self.gaps: list[tuple[int, int]] = []
        self.missing: list[str] = []
        self.unasked: list[str] = []
        self.nodes: list[NodeSeen] | None = None
        self.earlier: list[UsageFact] = []
        self.running: list[Row] = []

    def rows(self, *, since: int, until: int, open_keys: Collection[str], now: int) -> Iterator[Row]:
        """Ended pods as their window is read, running ones last. Raises `ConnectorError`."""
        yield from self.ended(since=since, until=until, open_keys=open_keys, now=now)
        yield from self.running

    def ended(self, *, since: int, until: int, open_keys: Collection[str], now: int) -> Iterator[Row]:
        """Ended pods as their window is read; those that run are left in `running`. Raises `ConnectorError`.

        `now` is Prometheus's own present.

        With utilisation, energy or use, the hour in which `since` lies is read from its begin; what ended before
        `since` is not given but kept in `earlier`.
        """
        end = min(until, now - SETTLE)
        work = _PullState(since, frozenset(open_keys), now)
        options = self.queries.options
        by_hour = options.energy or options.use is not None or options.utilisation.scope is not Scope.OFF
        whole = whole_hours(since, end) if by_hour else None
        yield from self._windows(work, min(whole.start if whole else since, end - SETTLE), end)
        if work.through is None:
            raise ConnectorError(
                "prometheus-no-kube-state-metrics",
                retry=True,
                address=self.client.http.address,
                since=utc(since),
                until=utc(end),
            )
        if work.last is not None:
            unseen = self._unseen_runs(work, work.last)
            yield from self._find_unseen(unseen, work, work.last)
            self.running = list(work.running.values())
            labels = nodes.labels_in(self.client, self.queries, work.last)
            self.nodes = nodes.seen(self.client, self.queries, work.last, labels)
        else:  # all of it was a hole, which says nothing of any run
            self.unasked = sorted(work.open_keys)
        self.complete_through = work.through
        self.gaps = [gap for gap in work.gaps if gap[0] < work.through]

    def _windows(self, work: _PullState, since: int, end: int) -> Iterator[Row]:
        """A window that is too much for the server is cut in halves, then all that follow are as short."""
        length = LONGEST
        while since < end:
            until = min(since + length, end)
            try:
                rows = list(self._window(work, since, until))
            except (TooMuchError, TooLargeError):
                length = (until - since) // 2
                if length < SHORTEST:
                    raise
                continue
            yield from rows
            since = until

    def _window(self, work: _PullState, since: int, until: int) -> Iterator[Row]:
        coverage = watch(self.client, self.queries, since=since, until=until + SETTLE)
        window = _settled(since, until, coverage)
        passed = window is not None and window.edge == until
        if not passed:
            window, passed = self._beyond(window, since, until, coverage, work.now)
        if window is None:
            if until > work.since:  # else all of it is before what was asked for
                _join(work.gaps, [(max(since, work.since), until)])
            work.through = until if passed else work.through
            return
        rows = self._read(window, self.queries)
        edge = until if passed else window.edge
        _join(work.gaps, window.coverage.gaps(max(since, work.since), edge))
        work.through = edge
        for key, row in rows:
            if isinstance(row, UsageFact) and row.ended is None:
                work.running[key] = row
            else:
                work.running.pop(key, None)
                previous, work.closed[key] = work.closed.get(key), row
                if (
                    isinstance(row, UsageFact)
                    and (row.ended or 0) <= work.since
                    and key not in work.open_keys
                ):
                    self.earlier.append(row)
                elif row != previous:
                    yield row
        work.last = window

    def _beyond(
        self, window: Window | None, since: int, until: int, coverage: Coverage, now: int
    ) -> tuple[Window | None, bool]:
        """What to read where kube-state-metrics was not seen at the window's end, and whether it was seen later.

        If it was soon, what stood on both sides of the outage stood in it; if that was long after, it is a hole that
        nothing will fill.
        """
        begin, end = until + SETTLE, min(until + SETTLE + BRIDGED, now)
        if begin >= end:
            return window, False
        after = watch(self.client, self.queries, since=begin, until=end)
        if after.scrapes:
            settled = -(-after.scrapes[0] // 1000) + SETTLE
            if settled > now:
                return window, False
            scrapes = (*coverage.scrapes, *(at for at in after.scrapes if at <= settled * 1000))
            return Window(since, until, settled, Coverage(scrapes, after.interval)), True
        seconds = min(now - end, HOUR)
        return window, seconds > 0 and bool(self.client.instant(self.queries.any(NODE_INFO, seconds), now))

    def _read(self, window: Window, queries: Queries) -> list[tuple[str, Row]]:
        """All of a window, or nothing: rows with their keys. What began after its edge is for the next."""
        facts = Facts(queries.options, nodes.labels_in(self.client, self.queries, window), self.notes)
        rows = []
        for group in pod_groups(self.client, queries, window):
            left = dict(group.requests)  # what a pod asks for stands in the first of its rows
            for allocation in group.allocations:
                life = group.lives.get(allocation.uid)
                if life is not None and life.started < window.edge:
                    row = facts.row(allocation, life, group.owners, group.attributes, left, edge=window.edge)
                    rows.append((allocation.key, row))
        return rows

    def _unseen_runs(self, work: _PullState, last: Window) -> dict[str, Row | None]:
        """Runs that were open, and that the last window does not have: with the row that an earlier one gave."""
        unseen: dict[str, Row | None] = {
            key: None for key in work.open_keys if key not in work.closed and key not in work.running
        }
        for key, row in list(work.running.items()):
            if isinstance(row, UsageFact) and row.seen_until != max(last.edge, row.started or 0):
                unseen[key] = work.running.pop(key)
        return unseen

    def _find_unseen(self, unseen: dict[str, Row | None], work: _PullState, last: Window) -> Iterator[Row]:
        """Each of them from wherever it lies; what lies nowhere is missing."""
        if not unseen:
            return
        rows = self._deep(sorted({key.partition("/")[0] for key in unseen}), last)
        for key, before in unseen.items():
            if key in rows:
                yield rows[key]
                continue
            if key in work.open_keys:
                self.missing.append(key)
            if before is not None:
                yield before

    def _deep(self, uids: Sequence[str], last: Window) -> dict[str, Row]:
        """Rows of these pods by key, from as far back as the server lets us look."""
        depth = DEEP
        while True:
            try:
                since = last.at - depth
                coverage = watch(self.client, self.queries, since=since, until=last.at)
                window = Window(since, last.edge, last.at, coverage)
                rows: dict[str, Row] = {}
                for begin in range(0, len(uids), AT_ONCE):
                    rows |= self._read(window, self.queries.of(uids[begin : begin + AT_ONCE]))
                return rows
            except (TooMuchError, TooLargeError):
                depth //= 2
                if depth < LONGEST:
                    raise


def _settled(since: int, until: int, coverage: Coverage) -> Window | None:
    """The window as far as kube-state-metrics was seen: what is not seen after its edge is gone. None: not at all.

    Where it was not seen in the time to settle, the edge lies before its last scrape.
    """
    last = coverage.last(until + SETTLE)
    if last is None:
        return None
    if last > until * 1000:
        return Window(since, until, until + SETTLE, coverage)
    at = -(-last // 1000)
    edge = (last - coverage.interval * 3 // 2) // 1000
    return Window(since, edge, at, coverage) if edge > since else None


def _join(gaps: list[tuple[int, int]], more: list[tuple[int, int]]) -> None:
    """Appends; a gap over the border of two windows stays one."""
    for begin, end in more:
        if gaps and begin <= gaps[-1][1]:
            gaps[-1] = gaps[-1][0], end
        else:
            gaps.append((begin, end))
