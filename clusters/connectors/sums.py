"""Sums of declared meters, as `data` of an event has them: how many tokens, kWh or GB-hours in an hour or a day."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from hashlib import sha256
from types import MappingProxyType
from typing import Annotated
from urllib.parse import quote

import msgspec
from msgspec import Meta, structs

from clusters.connectors.base import BadRow, Rejection, Row, UsageFact

LONGEST = timedelta(hours=25)  # the longest day of any zone
LONGEST_KEY = 200  # characters of names in a key
LONGEST_DIMENSIONS = 255  # characters of all together
MOST_PARTS = 10**12  # of the smallest quantity; an hour's share of a day's total stays far below 63 bits
_SECOND = timedelta(seconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_VALUE = re.compile(r"[^\x00-\x1f\x7f,;=]{1,100}")

Name = Annotated[str, Meta(max_length=255)]
Moment = Annotated[datetime, Meta(tz=True)]
Number = Annotated[str, Meta(pattern=r"^\d{1,18}(\.\d{1,9})?$")]


@dataclass(frozen=True, slots=True)
class MeterUnit:
    """What a sum of a declared meter may say. `parts` of the smallest quantity make one unit."""

    name: str
    decimals: int
    parts: int
    dimensions: Collection[str]


MeterUnits = Mapping[str, MeterUnit]
"""The declared meters by name."""

StoredSums = Callable[[str, int, int], Collection[UsageFact]]
"""Sums above 0 that an earlier reading had of an interval of epoch seconds, whose keys begin so."""


def none_stored(_prefix: str, _begin: int, _end: int) -> Collection[UsageFact]:
    return ()


class Sum(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`data`: what was used in [start, end) of one meter. A quantity is exact: text or a whole number."""

    meter: Name
    account: Name
    quantity: Number | Annotated[int, Meta(ge=0)]
    start: Moment
    end: Moment
    user: Name = ""
    dimensions: dict[str, str] = {}


def fact_of(sum_: Sum, *, event_id: str, key: str, raw: str, meters: MeterUnits) -> UsageFact | Rejection:
    """The sum as a fact, whose `gpu_model` is its dimensions, or what is wrong with it and where."""
    problem = _problem(sum_, meters)
    if problem is not None:
        field, code, values = problem
        return Rejection(f"/data/{field}", BadRow(code=code, values=values, raw=raw, source_key=key))
    meter = meters[sum_.meter]
    started = second(sum_.start)
    return UsageFact(
        key,
        sum_.account,
        sum_.user,
        event_id,
        gpu_model=dimensions_text(sum_.dimensions),
        gpu_share=(1, meter.parts),
        started=started,
        ended=max(second(sum_.end), started + 1),
        meter=meter.name,
        quantity=int(Decimal(sum_.quantity).scaleb(meter.decimals)),
    )


def key_of(*names: str) -> str:
    """Names as a part of a source key: told apart whatever is in them, and never too long."""
    text = "/".join(quote(name, safe="") for name in names)
    return text if len(text) <= LONGEST_KEY else sha256(text.encode()).hexdigest()


def row_of_hour(
    hour: int,
    *,
    meter: str,
    account: str,
    quantity: str | int,
    key: str,
    event: str,
    meters: MeterUnits,
    user: str = "",
    dimensions: Mapping[str, str] = MappingProxyType({}),
) -> Row:
    """What was used in the hour of UTC that begins at this epoch second, under a key that names the hour, too."""
    begin = datetime.fromtimestamp(hour, UTC)
    stamp = f"{begin:%Y-%m-%dT%HZ}"
    one = Sum(
        meter=meter,
        account=account,
        user=user,
        quantity=quantity,
        start=begin,
        end=begin + timedelta(hours=1),
        dimensions=dict(dimensions),
    )
    raw = json.dumps({**structs.asdict(one), "start": stamp, "end": None}, sort_keys=True)
    row = fact_of(one, event_id=f"{event} {stamp}", key=f"{key}/{stamp}", raw=raw, meters=meters)
    return row.row if isinstance(row, Rejection) else row


Problem = tuple[str, str, Mapping[str, object]]
"""The field of `data`, and the code and values of a bad row."""


def _problem(sum_: Sum, meters: MeterUnits) -> Problem | None:
    meter = meters.get(sum_.meter)
    if meter is None:
        return "meter", "meter-not-declared", {"meter": sum_.meter, "meters": ", ".join(meters) or "none"}
    return _quantity(sum_, meter) or _dimensions(sum_, meter) or _interval(sum_)


def _quantity(sum_: Sum, meter: MeterUnit) -> Problem | None:
    quantity = Decimal(sum_.quantity).scaleb(meter.decimals)
    if quantity > MOST_PARTS:
        most = f"{Decimal(MOST_PARTS).scaleb(-meter.decimals):f}"
        return "quantity", "quantity-too-large", {"most": most, "meter": meter.name}
    if quantity != int(quantity):
        values = {"quantity": str(sum_.quantity), "decimals": meter.decimals, "meter": meter.name}
        return "quantity", "quantity-decimals", values
    return None


def _dimensions(sum_: Sum, meter: MeterUnit) -> Problem | None:
    for name, value in sum_.dimensions.items():
        if name not in meter.dimensions:
            listed = ", ".join(meter.dimensions) or "none"
            return (
                "dimensions",
                "dimension-not-declared",
                {"name": name, "meter": meter.name, "dimensions": listed},
            )
        if not _VALUE.fullmatch(value) or value != value.strip():
            return f"dimensions/{name}", "dimension-text", {"name": name}
    if len(dimensions_text(sum_.dimensions)) > LONGEST_DIMENSIONS:
        return "dimensions", "dimensions-too-long", {"most": LONGEST_DIMENSIONS}
    return None


def _interval(sum_: Sum) -> Problem | None:
    if sum_.end <= sum_.start:
        return "end", "sum-without-length", {"start": str(sum_.start), "end": str(sum_.end)}
    return ("start", "sum-too-long", {}) if sum_.end - sum_.start > LONGEST else None


def dimensions_text(dimensions: Mapping[str, str]) -> str:
    """`direction=input, model=large`: the same for the same, in the order of their names."""
    return ", ".join(f"{name}={value}" for name, value in sorted(dimensions.items()))


def dimensions_of(text: str) -> dict[str, str]:
    """What `dimensions_text` wrote."""
    pairs = (pair.partition("=") for pair in text.split(", ") if pair)
    return {name: value for name, _, value in pairs}


def second(moment: datetime) -> int:
    """The epoch second that it lies in."""
    return (moment - _EPOCH) // _SECOND
