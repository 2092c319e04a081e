"""Series of samples, answered as Prometheus answers the few shapes of queries that counters are read by.

A range is open on its left and closed on its right; what is no such query fails the test that asks it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.prometheus import Reply, Request, success

_SELECTOR = r"(?P<metric>[\w:]+)\{(?P<matchers>.*)\}\[(?P<span>\d+)(?P<unit>ms|s)\]"
_RAW = re.compile(_SELECTOR)
_COUNT = re.compile(rf"count(?: by \((?P<by>[\w,]+)\))?(?: ?)\(count_over_time\({_SELECTOR}\)\)")
_MATCHER = re.compile(r'(\w+)(=~|!=|=)"((?:[^"\\]|\\.)*)"')


@dataclass
class Series:
    """`add` keeps samples; times are epoch seconds."""

    samples: dict[tuple[str, frozenset[tuple[str, str]]], list[tuple[int, str]]] = field(default_factory=dict)

    def add(self, metric: str, labels: Mapping[str, str], at: int, value: int | str) -> None:
        self.samples.setdefault((metric, frozenset(labels.items())), []).append((at, str(value)))

    def answer(self, request: Request) -> Reply:
        query = request.query
        if raw := _RAW.fullmatch(query):
            series = self._in(raw, int(request.form["time"][0]))
            matrix: list[Any] = [
                {"metric": labels | {"__name__": raw["metric"]}, "values": points}
                for labels, points in series
            ]
            return success(matrix, "matrix")
        count = _COUNT.fullmatch(query)
        assert count, query
        if request.what == "query":
            at = int(request.form["time"][0])
            return success([{**one, "value": [at, number]} for one, number in self._counted(count, at)])
        start, end, step = (int(request.form[name][0]) for name in ("start", "end", "step"))
        points = [(at, self._counted(count, at)) for at in range(start, end + 1, step)]
        values = [[at, counted[0][1]] for at, counted in points if counted]
        return success([{"metric": {}, "values": values}] if values else [], "matrix")

    def _counted(self, count: re.Match[str], at: int) -> list[tuple[dict[str, Any], str]]:
        names = (count["by"] or "").split(",") if count["by"] else []
        groups = Counter(
            tuple((name, labels[name]) for name in names if name in labels)
            for labels, _ in self._in(count, at)
        )
        return [({"metric": dict(labels)}, str(number)) for labels, number in groups.items()]

    def _in(self, selector: re.Match[str], at: int) -> list[tuple[dict[str, str], list[list[Any]]]]:
        seconds = int(selector["span"]) / (1000 if selector["unit"] == "ms" else 1)
        matches = []
        for (metric, frozen), points in self.samples.items():
            labels = dict(frozen)
            inside = [[when, value] for when, value in points if at - seconds < when <= at]
            if metric == selector["metric"] and inside and _fits(labels, selector["matchers"]):
                matches.append((labels, inside))
        return matches


def _fits(labels: Mapping[str, str], matchers: str) -> bool:
    for name, operator, text in _MATCHER.findall(matchers):
        value, pattern = labels.get(name, ""), text.replace("\\\\", "\\")
        if operator == "=~" and not re.fullmatch(pattern, value):
            return False
        if operator != "=~" and (value == pattern) is not (operator == "="):
            return False
    return True
