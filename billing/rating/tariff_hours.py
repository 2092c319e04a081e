"""Prices for hours of the week, laid over the time that a batch of usage spans."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo

from billing.rules.hours import LONGEST, Hours, HoursZone, of_terms, slices
from clusters import usage
from portal.sql_files import Statements

sql = Statements(__file__, "tariff_hours.sql")


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
    cursor.execute(sql.PRICES)
    prices: dict[int, list[_Price]] = {}
    for version, pk, tenant, terms in cursor.fetchall():
        if (hours := of_terms(json.loads(terms))) is not None:
            prices.setdefault(version, []).append(_Price(pk, tenant, hours))
    cursor.execute(sql.SPANS, {"versions": list(prices)})
    calendars = _calendars([_Span(*row) for row in cursor.fetchall()], prices)
    hours_of = {price.pk: price.hours for version in prices.values() for price in version}
    opened: list[str] = []
    laid: list[str] = []
    for number, (key, calendar) in enumerate(calendars.items(), 1):
        _write(number, key, calendar, hours_of, opened, laid)
    for statement, lines in ((sql.COPY_OPEN, opened), (sql.COPY_SLICES, laid)):
        with cursor.copy(statement) as copy:
            copy.write("".join(lines).encode())
    spans = [
        (span, number) for number, calendar in enumerate(calendars.values(), 1) for span in calendar.spans
    ]
    cursor.execute(
        sql.NUMBER,
        {
            "versions": [span.version for span, _ in spans],
            "tenants": [span.tenant for span, _ in spans],
            "zones": [span.zone for span, _ in spans],
            "accounts": [span.account for span, _ in spans],
            "calendars": [number for _, number in spans],
        },
    )
    cursor.execute(sql.ANALYZE_SLICES)


def _calendars(spans: Sequence[_Span], prices: Mapping[int, Sequence[_Price]]) -> dict[Key, _Calendar]:
    zones = usage.zones({span.account for span in spans})
    calendars: dict[Key, _Calendar] = {}
    for span in spans:
        own = [price for price in prices[span.version] if price.tenant in (None, span.tenant)]
        clocks = {price.hours.zone for price in own}
        key = (
            tuple(price.pk for price in own),
            span.zone if HoursZone.TENANT in clocks else "",
            zones[span.account] if HoursZone.CLUSTER in clocks else "",
        )
        if own:
            calendars.setdefault(key, _Calendar()).spans.append(span)
    return calendars


def _write(
    number: int,
    key: Key,
    calendar: _Calendar,
    hours: Mapping[int, Hours],
    opened: list[str],
    laid: list[str],
) -> None:
    """The calendar's lines of COPY. Nothing is open before the first of its spans or after the last."""
    ids, of_tenant, of_cluster = key
    since, until = calendar.reach
    clocks = {HoursZone.TENANT: of_tenant, HoursZone.CLUSTER: of_cluster}
    open_hours = {pk: hours[pk].between(since, until, zone=ZoneInfo(clocks[hours[pk].zone])) for pk in ids}
    patterns: dict[tuple[int, ...], int] = {}
    for start, end, prices in _short(slices(open_hours, since, until)):
        place = patterns.setdefault(prices, len(patterns) + 1)
        laid.append(f"{number}\t{start}\t{end}\t{place}\n")
    opened += [f"{number}\t{place}\t{{{','.join(map(str, prices))}}}\n" for prices, place in patterns.items()]


def _short(
    whole: Iterable[tuple[int, int, tuple[int, ...]]],
) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """None longer than a record looks back for: hours that are never open, or always, are one slice otherwise."""
    for start, end, prices in whole:
        for begins in range(start, end, LONGEST):
            yield begins, min(begins + LONGEST, end), prices
