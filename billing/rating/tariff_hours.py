"""Prices for hours of the week, laid over the time that a batch of usage spans."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo

from billing.rating import tariff_hours_sql as sql
from billing.rules.hours import LONGEST, Hours, HoursZone, of_terms, slices
from clusters import temp_tables, usage


@dataclass(frozen=True, slots=True)
class _Price:
    pk: int
    tenant: int | None
    hours: Hours


@dataclass(frozen=True, slots=True)
class _Span:
    """An account's time under one version of a plan."""

    version: int
    tenant: int
    zone: str
    account: int
    since: int
    until: int


Key = tuple[tuple[int, ...], str, str]
"""What a calendar follows from: the prices that can be open, and the clocks of tenant and cluster that they read."""


@dataclass(slots=True)
class _Calendar:
    spans: list[_Span] = field(default_factory=list)

    @property
    def reach(self) -> tuple[int, int]:
        return min(span.since for span in self.spans), max(span.until for span in self.spans)


def lay(cursor: Any) -> None:
    """Number the spans whose version has such prices by their calendar, and write the calendars' slices."""
    cursor.execute(sql.PREPARE)
    temp_tables.empty(cursor, *sql.TABLES)
    cursor.execute(sql.PRICES)
    prices: dict[int, list[_Price]] = {}
    for version, pk, tenant, terms in cursor.fetchall():
        if (hours := of_terms(json.loads(terms))) is not None:
            prices.setdefault(version, []).append(_Price(pk, tenant, hours))
    cursor.execute(sql.SPANS, [list(prices)])
    calendars = _calendars([_Span(*row) for row in cursor.fetchall()], prices)
    known = {price.pk: price.hours for each in prices.values() for price in each}
    opened: list[str] = []
    laid: list[str] = []
    for number, (key, calendar) in enumerate(calendars.items(), 1):
        _write(number, key, calendar, known, opened, laid)
    for statement, lines in ((sql.COPY_OPEN, opened), (sql.COPY_SLICES, laid)):
        with cursor.copy(statement) as copy:
            copy.write("".join(lines).encode())
    numbered = [(span, place) for place, each in enumerate(calendars.values(), 1) for span in each.spans]
    cursor.execute(
        sql.NUMBER,
        [
            *(
                [getattr(span, name) for span, _ in numbered]
                for name in ("version", "tenant", "zone", "account")
            ),
            [place for _, place in numbered],
        ],
    )
    cursor.execute(sql.ANALYZE)


def _calendars(spans: Sequence[_Span], prices: Mapping[int, Sequence[_Price]]) -> dict[Key, _Calendar]:
    zones = usage.zones({span.account for span in spans})
    found: dict[Key, _Calendar] = {}
    for span in spans:
        own = [price for price in prices[span.version] if price.tenant in (None, span.tenant)]
        clocks = {price.hours.zone for price in own}
        key = (
            tuple(price.pk for price in own),
            span.zone if HoursZone.TENANT in clocks else "",
            zones[span.account] if HoursZone.CLUSTER in clocks else "",
        )
        if own:
            found.setdefault(key, _Calendar()).spans.append(span)
    return found


def _write(
    number: int,
    key: Key,
    calendar: _Calendar,
    known: Mapping[int, Hours],
    opened: list[str],
    laid: list[str],
) -> None:
    """The calendar's lines of COPY. Nothing is open before the first of its spans or after the last."""
    ids, of_tenant, of_cluster = key
    since, until = calendar.reach
    hours = {pk: known[pk] for pk in ids}
    clocks = {HoursZone.TENANT: of_tenant, HoursZone.CLUSTER: of_cluster}
    found = slices(
        {pk: each.between(since, until, zone=ZoneInfo(clocks[each.zone])) for pk, each in hours.items()},
        since,
        until,
    )
    patterns: dict[tuple[int, ...], int] = {}
    for start, end, standing in _short(found):
        place = patterns.setdefault(standing, len(patterns) + 1)
        laid.append(f"{number}\t{start}\t{end}\t{place}\n")
    opened += [
        f"{number}\t{place}\t{{{','.join(map(str, standing))}}}\n" for standing, place in patterns.items()
    ]


def _short(
    found: Sequence[tuple[int, int, tuple[int, ...]]],
) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """None longer than a record looks back for: hours that are never open, or always, are one slice otherwise."""
    for start, end, standing in found:
        for begins in range(start, end, LONGEST):
            yield begins, min(begins + LONGEST, end), standing
