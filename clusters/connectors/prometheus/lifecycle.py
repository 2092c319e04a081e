"""From when to when each pod held its devices: by its own times, not by counting samples."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from clusters.connectors.base import UNKNOWN_OUTCOME, ConnectorError
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.coverage import HOUR, Coverage
from clusters.connectors.prometheus.options import ChargeFrom
from clusters.connectors.prometheus.queries import (
    HOLDING,
    PHASE,
    SCHEDULED,
    STARTED,
    Queries,
    most,
    parts,
    span,
)
from clusters.connectors.prometheus.responses import Series, whole

LONGEST_RAW = 2 * HOUR  # of a longer window, the hour that matters is found first
LOOK_BACK = 31 * 24 * HOUR  # how far the first sight of a pod without a scheduled time is looked for
SUCCEEDED, FAILED = "Succeeded", "Failed"
ESTIMATED = " (estimated end)"


@dataclass(frozen=True, slots=True)
class Window:
    """Pods are looked for in (since, at]. Those of them that are seen in (edge, at] held until `edge`. Seconds."""

    since: int
    edge: int
    at: int
    coverage: Coverage

    @property
    def length(self) -> int:
        return self.at - self.since


Ask = Callable[[Queries, str, int], str]
"""A query about the pods that a gate has, over so many seconds."""


def ask_of_pods(
    client: PrometheusClient,
    queries: Queries,
    window: Window,
    gate: str,
    ask: Ask,
    rest: Callable[[Collection[str]], Sequence[str]],
) -> list[Series]:
    """What is told of the pods that are there while the window settles, then over all of it of those in `rest`.

    So what was read of a pod once need not be looked for in each sample of the day: it stays what it is. `rest` is
    given the uids that were told of.
    """
    series = client.instant(ask(queries, gate, window.at - window.edge), window.at)
    left = rest({one.metric.get("uid", "") for one in series})
    asking = [
        partial(client.instant, ask(queries.of(some), "", window.length), window.at) for some in parts(left)
    ]
    return [*series, *chain.from_iterable(client.together(asking))]


def read_of_pods(
    client: PrometheusClient,
    queries: Queries,
    window: Window,
    gate: str,
    lives: Mapping[str, Life],
    metric: str,
    ask: Ask,
) -> list[Series]:
    """`ask_of_pods`, of those that have ended too. A metric that nobody keeps is looked for once, not pod by pod."""

    def rest(uids: Collection[str]) -> Sequence[str]:
        left = [uid for uid, life in lives.items() if life.ended is not None and uid not in uids]
        is_exported = uids or not left or client.instant(queries.any(metric, window.length), window.at)
        return left if is_exported else ()

    return ask_of_pods(client, queries, window, gate, ask, rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One pod's time. `ended is None`: it held its devices at the window's edge."""

    started: int
    ended: int | None
    state: str  # its phase, or a word for how it ended
    is_estimated: bool = False  # its end lies somewhere in the seconds unseen
    unseen: int = 0  # seconds after `ended` in which nobody looked, so that it may have held on
    start_seen: bool = False  # the start is its first sample, for want of a time of its own

    @property
    def outcome(self) -> str:
        """As the ledger has it: no price of a state holds for an end that is estimated."""
        return self.state + ESTIMATED if self.is_estimated else self.state


class Lifecycle:
    """Reads lives of pods that hold devices; `holder` as `Queries.presence` has it."""

    def __init__(
        self, client: PrometheusClient, queries: Queries, window: Window, *, holder: str = ""
    ) -> None:
        self.client = client
        self.queries = queries
        self.window = window
        self.holder = holder
        self.gate = queries.gate(holder)

    def read(self, pods: Collection[str]) -> dict[str, Life]:
        """By uid. A pod that ended at a moment before the window, so that it is not known, is left out."""
        if not pods:
            return {}
        present = self._present()
        starts = self._starts(pods)
        over = self._over([uid for uid in pods if uid not in present])
        ended = self._seconds(Queries.completed, lambda uids: [uid for uid in over if uid not in uids])
        # A finished sidecar gives a running pod a completion time too: only a pod that is over has ended.
        gone = [uid for uid in pods if uid not in over and uid not in present]
        quiet = [uid for uid in pods if uid in over and uid not in ended]
        last = self._last(gone, lambda queries: queries.presence(self.holder))
        last |= self._last(quiet, lambda queries: queries.pod(PHASE, HOLDING))
        firsts = self._firsts([uid for uid in pods if uid not in starts]) if self._all_count else {}
        lives = {}
        for uid in pods:
            start = starts.get(uid, firsts.get(uid))
            if start is None:
                continue
            if uid in over and uid in ended:
                life = Life(started=start, ended=max(ended[uid], start), state=over[uid])
            elif uid in last:
                life = self._estimated(start, last[uid], over.get(uid, UNKNOWN_OUTCOME))
            elif uid in present and uid not in over:
                life = Life(started=start, ended=None, state="Running")
            else:
                continue
            lives[uid] = life if uid in starts else replace(life, start_seen=True)
        return lives

    @property
    def _all_count(self) -> bool:
        """Whether a pod without a time of its own counts from its first sample: not where it has yet to start."""
        return self.queries.options.charge_from is ChargeFrom.SCHEDULED

    def _estimated(self, start: int, last: int, state: str) -> Life:
        """An end at the last sample: within one scrape of the truth, but where the next scrapes are missing."""
        unseen = self.window.coverage.unseen_after(last)
        ended = -(-last // 1000)
        return Life(
            started=start,
            ended=max(ended, start),
            state=state,
            is_estimated=unseen is not None,
            unseen=unseen or 0,
        )

    def _starts(self, pods: Collection[str]) -> dict[str, int]:
        metrics = [SCHEDULED, STARTED]
        if self.queries.options.charge_from is ChargeFrom.STARTED:
            metrics.reverse()
        for metric in metrics:
            ask = partial(_first, metric)
            if starts := self._seconds(ask, lambda uids: [uid for uid in pods if uid not in uids]):
                return starts
        return {}

    def _over(self, gone: Sequence[str]) -> dict[str, str]:
        """Phase of the pods that have ended. Raises `ConnectorError` where phases are not kept at all."""
        series = self._pod_series(Queries.over, lambda _: gone)
        settling = self.window.at - self.window.edge  # short, since it looks at all pods of the cluster
        if not series and not any(
            self._at(self.queries.any(PHASE, seconds)) for seconds in (settling, self.window.length)
        ):
            raise ConnectorError(
                "prometheus-no-phases", retry=False, address=self.client.http.address, metric=PHASE
            )
        return {one.metric.get("uid", ""): one.metric.get("phase", "") for one in series}

    def _present(self) -> set[str]:
        window = self.window
        query = self.queries.present(self.queries.presence(self.holder), window.at - window.edge)
        return {one.metric.get("uid", "") for one in self._at(query)}

    def _last(self, uids: Sequence[str], series: Callable[[Queries], str]) -> dict[str, int]:
        """The last sample above zero that each has in the window, in milliseconds."""
        return self._instants(uids, series, self.window.length, -1)

    def _firsts(self, uids: Sequence[str]) -> dict[str, int]:
        """The first sample that each ever had, in whole seconds."""
        instants = self._instants(uids, lambda queries: queries.presence(self.holder), LOOK_BACK, 0)
        return {uid: at // 1000 for uid, at in instants.items()}

    def _instants(
        self, uids: Sequence[str], series: Callable[[Queries], str], seconds: int, which: int
    ) -> dict[str, int]:
        """By uid, the instant of its first (`which` 0) or last (-1) sample above zero: of the hour that has it."""
        places = [(self.window.at, list(uids))]
        if seconds > LONGEST_RAW:
            places, seconds = self._hours(uids, series, seconds, which), HOUR
        asking = [
            partial(self._raw, series(self.queries.of(some)), seconds, at, which)
            for at, those in places
            for some in parts(those)
        ]
        instants: dict[str, int] = {}
        for uid, instant in chain.from_iterable(self.client.together(asking)):
            best = (min, max)[which](instants.get(uid, instant), instant)
            instants[uid] = best
        return instants

    def _hours(
        self, uids: Sequence[str], series: Callable[[Queries], str], seconds: int, which: int
    ) -> list[tuple[int, list[str]]]:
        """Ends of hours, each with the pods whose first or last samples lie in it."""
        end, steps = self.window.at, -(-seconds // HOUR) - 1

        def ask(some: Sequence[str]) -> list[tuple[str, int]]:
            query = most("uid", series(self.queries.of(some)), HOUR)
            rows = self.client.range(query, start=end - steps * HOUR, end=end, step=HOUR)
            samples = [
                (one.metric.get("uid", ""), [at for at, value in one.values if value > 0]) for one in rows
            ]
            return [(uid, int(instants[which])) for uid, instants in samples if instants]

        hours: dict[int, list[str]] = {}
        for uid, hour in chain.from_iterable(
            self.client.together(partial(ask, some) for some in parts(uids))
        ):
            hours.setdefault(hour, []).append(uid)
        return sorted(hours.items())

    def _raw(self, selector: str, seconds: int, at: int, which: int) -> list[tuple[str, int]]:
        """By series."""
        rows = []
        for one in self.client.instant(f"{selector}[{span(seconds)}]", at):
            instants = [when for when, value in one.values if value > 0]
            if instants:
                rows.append((one.metric.get("uid", ""), int(instants[which] * 1000)))
        return rows

    def _at(self, query: str) -> list[Series]:
        return self.client.instant(query, self.window.at)

    def _pod_series(self, ask: Ask, rest: Callable[[Collection[str]], Sequence[str]]) -> list[Series]:
        return ask_of_pods(self.client, self.queries, self.window, self.gate, ask, rest)

    def _seconds(self, ask: Ask, rest: Callable[[Collection[str]], Sequence[str]]) -> dict[str, int]:
        """By uid, a value that is an epoch second."""
        seconds = {}
        for one in self._pod_series(ask, rest):
            second = whole(one.value[1]) if one.value else None
            if second is not None and second > 0:
                seconds[one.metric.get("uid", "")] = second
        return seconds


def _first(metric: str, queries: Queries, gate: str, seconds: int) -> str:
    return queries.first(metric, gate, seconds)
