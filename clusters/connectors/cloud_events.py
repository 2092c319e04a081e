"""Usage that programs push: an event of CloudEvents 1.0 as a fact, with the time by which the newest of a run is known.

`source` and `id` name a run for ever; another event of both says how the run stands later, or corrects it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import msgspec
from msgspec import Meta, structs

from clusters.connectors import sums
from clusters.connectors.base import BadRow, ConnectorError, Rejection, UsageFact
from clusters.connectors.sums import MeterUnits

if TYPE_CHECKING:
    from clusters.connectors.sacct.single_rows import SingleRows

RUN: Final = "org.clustertab.usage.run"  # it has ended
OPEN: Final = "org.clustertab.usage.open"  # it waits, or runs and was seen at `time`: a heartbeat
SACCT: Final = "org.clustertab.usage.sacct"  # a job as sacct printed it, at `time`
SUM: Final = "org.clustertab.usage.sum"  # what was used of a declared meter in an hour or a day
COMPLETE: Final = "org.clustertab.usage.complete"  # everything up to `through` was sent
TYPES = (RUN, OPEN, SACCT, SUM, COMPLETE)

LONGEST = timedelta(days=400)
LONGEST_KEY = 255  # of source and id together
MOST_GPUS = 1_000_000
LONGEST_ROW = 1 << 20  # characters

_SECOND = timedelta(seconds=1)

Text = Annotated[str, Meta(max_length=4096)]
Name = Annotated[str, Meta(max_length=255)]
Count = Annotated[int, Meta(ge=0, le=2**62)]
Moment = Annotated[datetime, Meta(tz=True)]


class Shape(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`data` of a run: as `UsageFact`, with times as texts of RFC 3339, cut to whole seconds."""

    account: Name
    user: Name = ""
    job_id: Name | None = None  # by default the event's id
    name: Text = ""
    queue: Name = ""
    qos: Name = ""
    priority_class: Name = ""
    gpus: Annotated[int, Meta(ge=0, le=MOST_GPUS)] = 0
    gpu_model: Name = ""
    mig_profile: Name = ""
    gpu_share: Annotated[str, Meta(pattern=r"^[1-9]\d{0,8}/[1-9]\d{0,8}$")] = "1/1"
    cpu_milli: Count = 0
    memory_mib: Count = 0
    gpu_memory_mib: Count = 0
    nodes: Annotated[int, Meta(ge=0, le=10_000_000)] = 0
    node_list: Text = ""
    requested: Text = ""
    time_limit: Count | None = None
    submitted: Moment | None = None
    eligible: Moment | None = None
    suspended: Count = 0
    state: Name = ""
    exit_code: Name = ""
    weight: Count = 0


class EndedRun(Shape):
    """It held its shape in [started, ended)."""

    started: Moment
    ended: Moment


class OpenRun(Shape):
    """It waits where it has no start, and else held its shape from then until the event's time."""

    started: Moment | None = None


class SacctRow(msgspec.Struct, forbid_unknown_fields=True):
    """A row of `sacct --parsable2`, and the line of its export that names the columns."""

    header: Annotated[str, Meta(max_length=4096)]
    row: Annotated[str, Meta(min_length=1, max_length=LONGEST_ROW)]  # with its line break


class Completeness(msgspec.Struct, forbid_unknown_fields=True):
    """What the watermark of the cluster may stand on: nothing before it comes any more."""

    through: Moment


class Envelope(msgspec.Struct, kw_only=True):
    """The attributes of an event. Others, as of tracing, are allowed and not read."""

    specversion: Annotated[str, Meta(pattern=r"^1\.0$")]
    id: Annotated[str, Meta(min_length=1, max_length=200)]
    source: Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[!-~]+$")]
    type: str
    time: Moment
    data: dict[str, Any]
    sequence: Annotated[str, Meta(max_length=64)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event that could be read. Either `fact` or `complete_through` is there."""

    id: str
    key: str  # the run's, unique for ever in its cluster
    time: datetime
    sequence: str
    digest: bytes  # of all that counts: SHA-256
    raw: str
    pointer: str = ""  # to what describes the run, where that is one text
    fact: UsageFact | None = None
    complete_through: datetime | None = None  # to the second

    @property
    def is_sum(self) -> bool:
        """Whether it is of a declared meter, rather than of a run."""
        return self.fact is not None and self.fact.meter != ""

    @property
    def turn(self) -> tuple[datetime, str, bytes]:
        """Of two events of a run the greater one is the newer, in whatever order they come."""
        return self.time, self.sequence, self.digest


def read(value: object, rows: SingleRows, meters: MeterUnits = MappingProxyType({})) -> Event | Rejection:
    """One event as JSON has it, whatever it is. `rows` reads those of sacct; `meters` are those that sums are of."""
    raw = json.dumps(value, sort_keys=True, ensure_ascii=False)
    try:
        event = msgspec.convert(value, Envelope)
    except msgspec.ValidationError as error:
        return _rejection("", error, raw)
    key = f"{event.source} {event.id}"
    if len(key) > LONGEST_KEY:
        row = BadRow(code="too-long-name", values={"most": LONGEST_KEY}, raw=raw)
        return Rejection("/id", row)
    if event.type not in TYPES:
        values = {"type": event.type, "types": ", ".join(TYPES)}
        return Rejection("/type", BadRow(code="event-type", values=values, raw=raw, source_key=key))
    try:
        if event.type == SACCT:
            return _sacct(event, key, raw, rows)
        return _sum(event, key, raw, meters) if event.type == SUM else _event(event, key, raw)
    except msgspec.ValidationError as error:
        return _rejection("/data", error, raw, key)


def _event(event: Envelope, key: str, raw: str) -> Event | Rejection:
    if event.type == COMPLETE:
        through = msgspec.convert(event.data, Completeness).through
        return Event(
            **_base(event, key, raw), complete_through=through.astimezone(UTC).replace(microsecond=0)
        )
    shape = (
        msgspec.convert(event.data, EndedRun) if event.type == RUN else msgspec.convert(event.data, OpenRun)
    )
    return _run(event, _fact(event, key, shape), raw)


def _sacct(event: Envelope, key: str, raw: str, rows: SingleRows) -> Event | Rejection:
    data = msgspec.convert(event.data, SacctRow)
    try:
        row = rows.read(data.header, data.row)
    except ConnectorError as error:
        values = {"pointer": "/data/header", "reason": str(error).rstrip(".")}
        return Rejection("/data/header", BadRow(code="event-field", values=values, raw=raw, source_key=key))
    if isinstance(row, UsageFact):
        return _run(event, structs.replace(row, source_key=key), raw, "/data/row")
    return Rejection("/data/row", replace(cast("BadRow", row), raw=raw, source_key=key))


def _sum(event: Envelope, key: str, raw: str, meters: MeterUnits) -> Event | Rejection:
    data = msgspec.convert(event.data, sums.Sum)
    total = sums.fact_of(data, event_id=event.id, key=key, raw=raw, meters=meters)
    return total if isinstance(total, Rejection) else Event(**_base(event, key, raw), fact=total)


def _run(event: Envelope, fact: UsageFact, raw: str, pointer: str = "") -> Event | Rejection:
    key = fact.source_key
    finish = fact.ended if fact.ended is not None else fact.seen_until
    if fact.started is not None and finish is not None and finish - fact.started > LONGEST // _SECOND:
        row = BadRow(code="too-long-run", values={"days": LONGEST.days}, raw=raw, source_key=key)
        return Rejection(pointer or "/data/started", row)
    return Event(**_base(event, key, raw), pointer=pointer, fact=fact)


def _base(event: Envelope, key: str, raw: str) -> dict[str, Any]:
    content = {name: getattr(event, name) for name in ("type", "data", "sequence")}
    text = json.dumps(content | {"time": event.time.isoformat()}, sort_keys=True)
    return {
        "id": event.id,
        "key": key,
        "time": event.time,
        "sequence": event.sequence,
        "digest": hashlib.sha256(text.encode()).digest(),
        "raw": raw,
    }


def _fact(event: Envelope, key: str, shape: EndedRun | OpenRun) -> UsageFact:
    num, den = shape.gpu_share.split("/")
    started = None if shape.started is None else sums.second(shape.started)
    is_open = isinstance(shape, OpenRun)
    same = (
        *("account", "user", "name", "queue", "qos", "priority_class", "gpus", "gpu_model", "mig_profile"),
        *("cpu_milli", "memory_mib", "gpu_memory_mib", "nodes", "node_list", "requested", "time_limit"),
        *("suspended", "state", "exit_code"),
    )
    return UsageFact(
        key,
        **{name: getattr(shape, name) for name in same},
        job_id=event.id if shape.job_id is None else shape.job_id,
        gpu_share=(int(num), int(den)),
        submitted=None if shape.submitted is None else sums.second(shape.submitted),
        eligible=None if shape.eligible is None else sums.second(shape.eligible),
        started=started,
        ended=None if isinstance(shape, OpenRun) else sums.second(shape.ended),
        seen_until=sums.second(event.time) if is_open and started is not None else None,
        billing=shape.weight,
    )


def _rejection(base: str, error: msgspec.ValidationError, raw: str, key: str = "") -> Rejection:
    """msgspec names the place as `$.data.gpus`."""
    reason, _, place = str(error).partition(" - at `")
    pointer = base + place.removesuffix("`").removeprefix("$").replace(".", "/")
    values = {"pointer": pointer or "/", "reason": reason}
    return Rejection(pointer or "/", BadRow(code="event-field", values=values, raw=raw, source_key=key))


def binary(attributes: Mapping[str, str], data: object) -> dict[str, object]:
    """An event in binary mode: its attributes come as headers `ce-…`, and its data as the body."""
    return {**attributes, "data": data}
