"""From when to when each pod held its devices: by its own times, not by counting samples."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from clusters.connectors.base import ConnectorError
from clusters.connectors.prometheus.answers import Series, whole
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.coverage import HOUR, Coverage
from clusters.connectors.prometheus.options import ChargeFrom
from clusters.connectors.prometheus.queries import HOLDING, PHASE, SCHEDULED, STARTED, Queries, most, span

AT_ONCE = 250  # pods whose samples one query asks for
LONGEST_RAW = 2 * HOUR  # of a longer window, the hour that matters is found first
LOOK_BACK = 31 * 24 * HOUR  # how far the first sight of a pod without a scheduled time is looked for
DELETED = "Deleted"  # a pod that went without having ended: Kubernetes has no word for it
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One pod's time. `ended is None`: it held its devices at the window's edge."""

    started: int
    ended: int | None
    state: str
    unseen: int = 0  # seconds after `ended` in which nobody looked, so that it may have held on
    start_seen: bool = False  # the start is its first sample, for want of a time of its own


class Lifecycle:
    """Reads lives of pods that hold devices by request, or in part by an annotation named `holder`."""

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
        starts, over = self._starts(), self._over()
        ended = self._seconds(self.queries.completed(self.gate, self.window.length))
        present = self._present()
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
                life = self._estimated(start, last[uid], over.get(uid, DELETED))
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
            state=state if unseen is None else state + ESTIMATED,
            unseen=unseen or 0,
        )

    def _starts(self) -> dict[str, int]:
        metrics = [SCHEDULED, STARTED]
        if self.queries.options.charge_from is ChargeFrom.STARTED:
            metrics.reverse()
        first = self._seconds(self.queries.first(metrics[0], self.gate, self.window.length))
        if first:
            return first
        return self._seconds(self.queries.first(metrics[1], self.gate, self.window.length))

    def _over(self) -> dict[str, str]:
        """Phase of the pods that have ended. Raises `ConnectorError` where phases are not kept at all."""
        found = self._at(self.queries.over(self.gate, self.window.length))
        settling = self.window.at - self.window.edge  # short, since it looks at all pods of the cluster
        if not found and not any(
            self._at(self.queries.any(PHASE, seconds)) for seconds in (settling, self.window.length)
        ):
            raise ConnectorError(
                f"{self.client.http.address} has no {PHASE}: without it, pods that have ended cannot be told from "
                "running ones. Let kube-state-metrics export it and Prometheus keep it.",
                retry=False,
            )
        return {one.metric.get("uid", ""): one.metric.get("phase", "") for one in found}

    def _present(self) -> set[str]:
        window = self.window
        query = self.queries.present(self.queries.presence(self.holder), window.at - window.edge)
        return {one.metric.get("uid", "") for one in self._at(query)}

    def _last(self, uids: Sequence[str], series: Callable[[Queries], str]) -> dict[str, int]:
        """The last sample above zero that each has in the window, in milliseconds."""
        found: dict[str, int] = {}
        for some in _parts(uids):
            selector = series(self.queries.of(some))
            for uid, instants in self._instants(selector, self.window.length, newest=True):
                found[uid] = max(found.get(uid, 0), instants[-1])
        return found

    def _firsts(self, uids: Sequence[str]) -> dict[str, int]:
        """The first sample that each ever had, in whole seconds."""
        found: dict[str, int] = {}
        for some in _parts(uids):
            selector = self.queries.of(some).presence(self.holder)
            for uid, instants in self._instants(selector, LOOK_BACK, newest=False):
                found[uid] = min(found.get(uid, instants[0]), instants[0])
        return {uid: at // 1000 for uid, at in found.items()}

    def _instants(self, selector: str, seconds: int, *, newest: bool) -> Iterator[tuple[str, list[int]]]:
        """By series, the instants of its samples above zero, in the newest or the oldest hour that has any."""
        if seconds <= LONGEST_RAW:
            yield from self._raw(selector, seconds, self.window.at)
            return
        hours: dict[int, set[str]] = {}
        steps = -(-seconds // HOUR) - 1
        found = self.client.range(
            most("uid", selector, HOUR), start=self.window.at - steps * HOUR, end=self.window.at, step=HOUR
        )
        for one in found:
            held = [int(at) for at, value in one.values if value > 0]
            if held:
                hours.setdefault(held[-1 if newest else 0], set()).add(one.metric.get("uid", ""))
        for hour, those in hours.items():
            for uid, instants in self._raw(selector, HOUR, hour):
                if uid in those:
                    yield uid, instants

    def _raw(self, selector: str, seconds: int, at: int) -> Iterator[tuple[str, list[int]]]:
        for one in self.client.instant(f"{selector}[{span(seconds)}]", at):
            instants = [int(when * 1000) for when, value in one.values if value > 0]
            if instants:
                yield one.metric.get("uid", ""), instants

    def _at(self, query: str) -> list[Series]:
        return self.client.instant(query, self.window.at)

    def _seconds(self, query: str) -> dict[str, int]:
        """By uid, a value that is an epoch second."""
        found = {}
        for one in self._at(query):
            second = whole(one.value[1]) if one.value else None
            if second is not None and second > 0:
                found[one.metric.get("uid", "")] = second
        return found


def _parts(uids: Sequence[str]) -> Iterator[Sequence[str]]:
    for begin in range(0, len(uids), AT_ONCE):
        yield uids[begin : begin + AT_ONCE]
