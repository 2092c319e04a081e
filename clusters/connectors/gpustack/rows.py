"""Rows of GPUStack's breakdowns as sums of declared meters: by hour of an instance or volume, by day of a key.

GPUStack gives hours to two decimals. Grouped by type before instance, an hour has a row for each type and number of
cards that it had; grouped by instance alone, all hours would have the newest type. An hour's label may begin between
two hours of UTC where its zone is a half hour off; the hour that it stands for is the next whole one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from clusters.connectors import sums
from clusters.connectors.base import BadRow, Rejection, Row, UnreadableError
from clusters.connectors.gpustack.client import Item
from clusters.connectors.gpustack.options import GpuStackOptions
from clusters.connectors.sums import MeterUnits
from portal.excerpt import quoted

HOUR = timedelta(hours=1)
UNKNOWN = "unknown"  # the model of tokens without a route
LONGEST_PARTS = 200  # characters of a key
LONGEST_NAME = 255
MOST = 10**15  # that a number may be
DIRECTIONS = ("input", "cached", "output")

Interval = tuple[datetime, datetime]


@dataclass(slots=True)
class _Hours:
    sum: sums.Sum
    name: str
    raw: list[Item]


@dataclass(slots=True)
class _Tokens:
    """Of one key, model and day: rows that differ in nothing that GPUStack shows are one."""

    account: str
    user: str
    key_name: str
    model: str
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(DIRECTIONS, 0))
    raw: list[Item] = field(default_factory=list)


class RowReader:
    """Makes facts, or bad rows with the reason; `steps` counts rows that say that nothing was used."""

    def __init__(self, options: GpuStackOptions, meters: MeterUnits) -> None:
        self.options = options
        self.meters = meters
        self.steps = 0
        self.unread = 0  # rows of which not even the key is known
        self.first: datetime | None = (
            None  # the earliest hour, or midnight of a day, of which any row was listed
        )
        self.offsets: set[timedelta] = set()  # of the hours' labels

    def hours(self, kind: str, items: Sequence[Item], *, begin: datetime, end: datetime) -> Iterator[Row]:
        """Those in [begin, end) of `kind`, "instance" or "volume"."""
        by_key: dict[str, _Hours] = {}
        for item in items:
            try:
                hour = self._hour(item)
                if begin <= hour < end:
                    self._add_hours(by_key, kind, item, hour)
            except UnreadableError as error:
                self.unread += 1
                yield _bad(error, item, f"gpustack/{kind}")
        for key, hours in by_key.items():
            yield self._fact(hours.sum, name=hours.name, key=key, item={"rows": hours.raw})

    def _hour(self, item: Item) -> datetime:
        text = _text(_mapping(item, "item"), "date")
        try:
            label = datetime.fromisoformat(text)
            offset = label.utcoffset()
            if offset is None:
                raise UnreadableError("log-field", field="date", text=quoted(text))
            hour = label.astimezone(UTC)
        except (ValueError, OverflowError):
            raise UnreadableError("log-field", field="date", text=quoted(text)) from None
        self.offsets.add(offset)
        whole = hour.replace(minute=0, second=0, microsecond=0)
        whole = whole if whole == hour else whole + HOUR
        self.first = min(self.first or whole, whole)
        return whole

    def _add_hours(self, by_key: dict[str, _Hours], kind: str, item: Item, hour: datetime) -> None:
        """One that was renamed within an hour has two rows of it."""
        meter, quantity = self._measured(kind, _mapping(item.get("metrics"), "metrics"))
        if not quantity:
            self.steps += 1
            return
        if not meter:
            return
        sku, name = _optional(item, "sku"), f"{kind} {_whole(item, 'id')}"
        shape = () if kind == "volume" else (f"{_number(item, 'sku_count').normalize():f}",)
        key = _key(kind, str(_whole(item, "id")), sku, *shape, f"{hour:%Y-%m-%dT%HZ}")
        one = sums.Sum(
            meter=meter,
            account="" if item.get("organization_id") is None else _text(item, "organization_name"),
            user=_optional(item, "creator_name"),
            quantity=f"{quantity:f}",
            start=hour,
            end=hour + HOUR,
            dimensions=self._declared(
                meter, {"type": _optional(item, "instance_type_name") or sku or UNKNOWN}
            ),
        )
        earlier = by_key.get(key)
        if earlier is None:
            by_key[key] = _Hours(one, name, [item])
            return
        earlier.sum.quantity = f"{Decimal(earlier.sum.quantity) + quantity:f}"
        earlier.raw.append(item)

    def _measured(self, kind: str, metrics: Mapping[str, Any]) -> tuple[str, Decimal]:
        """The meter, "" where none is read, and how much. An instance has GPUs if it has GPU-hours."""
        if kind == "volume":
            return self.options.storage, _number(metrics, "gb_hours")
        gpu_hours, unit_hours = _number(metrics, "gpu_hours"), _number(metrics, "unit_hours")
        return (self.options.gpu, gpu_hours) if gpu_hours else (self.options.cpu, unit_hours)

    def tokens(self, items: Sequence[Item], day: date, interval: Interval) -> Iterator[Row]:
        """Of one day of GPUStack's calendar, which is the `interval`."""
        by_key: dict[str, _Tokens] = {}
        for item in items:
            try:
                self._add_tokens(by_key, item, day)
                self.first = min(self.first or interval[0], interval[0])
            except UnreadableError as error:
                self.unread += 1
                yield _bad(error, item, "gpustack/tokens")
        for key, tokens in by_key.items():
            if not any(tokens.counts.values()):
                self.steps += 1
                continue
            for direction in DIRECTIONS:
                yield self._direction(tokens, direction, f"{key}/{direction}", day, interval)

    def _add_tokens(self, by_key: dict[str, _Tokens], item: Item, day: date) -> None:
        label = _text(_mapping(_mapping(item, "item").get("date"), "date"), "value")
        if label != day.isoformat():
            raise UnreadableError("log-field", field="date", text=quoted(label))
        read, cached, written = (
            _whole(item, f"{name}_tokens") for name in ("input", "input_cached", "output")
        )
        cached = min(cached, read)
        user, key, route, organization = (
            _identity(item, dimension) for dimension in ("user", "api_key", "route", "organization")
        )
        identity = json.dumps([user, key, route, organization.get("organization_id")], sort_keys=True)
        parts = _key("tokens", sha256(identity.encode("utf-8", "replace")).hexdigest(), day.isoformat())
        tokens = by_key.setdefault(
            parts,
            _Tokens(
                account=_optional(organization, "organization_name"),
                user=_optional(user, "user_name") or _optional(key, "user_name"),
                key_name=_optional(key, "api_key_name") or "none",
                model=_optional(route, "route_name") or UNKNOWN,
            ),
        )
        for direction, count in zip(DIRECTIONS, (read - cached, cached, written), strict=True):
            tokens.counts[direction] += count
        tokens.raw.append(item)

    def _direction(self, tokens: _Tokens, direction: str, key: str, day: date, interval: Interval) -> Row:
        dimensions = {"model": tokens.model, "direction": direction, "key": tokens.key_name}
        one = sums.Sum(
            meter=self.options.tokens,
            account=tokens.account,
            user=tokens.user,
            quantity=tokens.counts[direction],
            start=interval[0],
            end=interval[1],
            dimensions=self._declared(self.options.tokens, dimensions),
        )
        return self._fact(one, name=f"{tokens.model} {day}", key=key, item={"rows": tokens.raw})

    def _declared(self, meter: str, dimensions: Mapping[str, str]) -> dict[str, str]:
        """Those that the meter has; of tokens, model and direction always, so that a meter without them is told of."""
        declared = self.meters[meter].dimensions if meter in self.meters else ()
        return {
            name: value
            for name, value in dimensions.items()
            if name in declared or name in {"model", "direction"}
        }

    def _fact(self, one: sums.Sum, *, name: str, key: str, item: Item) -> Row:
        fact = sums.fact_of(one, event_id=name, key=key, raw=_raw(item), meters=self.meters)
        return fact.row if isinstance(fact, Rejection) else fact


def _key(*parts: str) -> str:
    text = "/".join(quote(part, safe=":", errors="replace") for part in parts)
    return f"gpustack/{text if len(text) <= LONGEST_PARTS else sha256(text.encode()).hexdigest()}"


def _bad(error: UnreadableError, item: object, key: str) -> BadRow:
    raw = _raw(item)
    digest = sha256(raw.encode("utf-8", "replace")).hexdigest()
    return BadRow(code=error.code, values=error.values, raw=raw, source_key=f"{key}/{digest}")


def _raw(item: object) -> str:
    return json.dumps(item, default=str, sort_keys=True)


def _mapping(value: object, field: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise UnreadableError("log-field-missing", field=field)
    return value


def _identity(item: Item, dimension: str) -> Mapping[str, Any]:
    """Names and ids of whom a row is of; empty where GPUStack knows none. Whether it still exists is left out."""
    identity = _mapping(item.get(dimension), dimension).get("identity")
    if identity is None:
        return {}
    identity = _mapping(identity, dimension)
    current = identity.get("current")
    ids = {} if current is None else _mapping(current, dimension)
    return {**ids, **_mapping(identity.get("value"), dimension)}


def _text(item: Mapping[str, Any], field: str) -> str:
    value = item.get(field)
    if value is None:
        raise UnreadableError("log-field-missing", field=field)
    if not isinstance(value, str) or not value or len(value) > LONGEST_NAME:
        raise UnreadableError("log-field", field=field, text=quoted(str(value)))
    return value


def _optional(item: Mapping[str, Any], field: str) -> str:
    value = item.get(field)
    return "" if value is None or value == "" else _text(item, field)


def _number(item: Mapping[str, Any], field: str) -> Decimal:
    """Zero or more, to nine decimals."""
    value = item.get(field)
    if value is None:
        raise UnreadableError("log-field-missing", field=field)
    number = value if isinstance(value, Decimal) else Decimal(value) if type(value) is int else None
    if number is None or not number.is_finite() or not 0 <= number <= MOST:
        raise UnreadableError("log-field", field=field, text=quoted(str(value)))
    return number


def _whole(item: Mapping[str, Any], field: str) -> int:
    number = _number(item, field)
    if number != int(number):
        raise UnreadableError("log-field", field=field, text=quoted(str(number)))
    return int(number)
