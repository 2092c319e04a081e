"""Usage that programs push: stored and rated before it is answered, each event once, whatever order they come in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from zoneinfo import ZoneInfo

from django.db import connection, transaction

from billing.rating import engine
from clusters import ledger, meters, open_runs, validation
from clusters.connectors import cloud_events
from clusters.connectors.base import BadRow, Rejection, UsageFact
from clusters.connectors.cloud_events import LONGEST, Event
from clusters.connectors.mig import own_shares
from clusters.connectors.sacct.single_rows import SingleRows
from clusters.energy import EnergySums
from clusters.models import Cluster, ClusterError, ClusterKind
from portal.sql_files import Statements

sql = Statements(__file__, "pushed_usage.sql")

SOURCE = "pushed"
OLDEST = 2 * LONGEST  # a run may have lasted that long, and be sent as late
_FIELDS_OF_SUMS = {"started": "start", "ended": "end"}  # as events name them
_SEEN = {"new": "accepted", "revised": "changed", "described": "changed", "seen": "changed"}


class Became(StrEnum):
    """What became of an event."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"  # it is there, or a newer one of the same run
    CHANGED = "changed"  # it says something new of a run that is there
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Answer:
    """Of one event, in the order in which they were sent."""

    became: Became
    rejection: Rejection | None = None


@dataclass(frozen=True, slots=True)
class Warnings:
    """How many of the runs and sums that were stored are not billed.

    Without an owner: by account. Without a price: runs by GPU model, sums by meter. Waived are sums that the tenant's
    plan does not charge: by meter.
    """

    unassigned: dict[str, int] = field(default_factory=dict)
    unpriced: dict[str, int] = field(default_factory=dict)
    waived: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pushed:
    """What one request came to."""

    answers: list[Answer]
    warnings: Warnings


@transaction.atomic
def push(*, cluster: Cluster, values: Sequence[object], moment: datetime) -> Pushed:
    """Store and rate all that is new, and keep what cannot be true in quarantine; one transaction, so all or nothing.

    `values` are events as JSON has them. Sent again, in any order and by any number at once, they change nothing.
    Raises ClusterError.
    """
    refuse_other_kinds(cluster)
    ledger.lock(cluster)
    units = meters.load_units()
    rows = SingleRows(ZoneInfo(cluster.timezone), own_shares(cluster.shares, "shares"))
    events = [cloud_events.read(value, rows, units) for value in values]
    answers: dict[int, Answer] = {
        place: Answer(Became.REJECTED, event)
        for place, event in enumerate(events)
        if isinstance(event, Rejection)
    }
    readable = [(place, event) for place, event in enumerate(events) if isinstance(event, Event)]
    newest: dict[str, tuple[int, Event]] = {}
    for place, event in readable:
        before = newest.get(event.key)
        if (refused := _refusal(event, moment)) is not None:
            answers[place] = Answer(Became.REJECTED, refused)
        elif event.fact is None:
            answers[place] = Answer(Became.ACCEPTED)
        elif before is None or before[1].turn < event.turn:
            newest[event.key] = place, event
    with connection.cursor() as cursor:
        fresh, others = _not_known(cursor, cluster, newest)
        answers |= others
        bad = [answer.rejection.row for answer in answers.values() if answer.rejection is not None]
        became, warnings = _store(cursor, cluster, fresh, bad, moment)
        answers |= became
        taken = [
            event for place, event in readable if place not in answers or answers[place].rejection is None
        ]
        _move_watermark(cursor, cluster, taken, moment)
    open_runs.settle(cluster=cluster, keys=[event.key for _, event in readable], missing=[], moment=moment)
    every = [answers.get(place, Answer(Became.DUPLICATE)) for place in range(len(events))]
    return Pushed(every, warnings)


def refuse_other_kinds(cluster: Cluster) -> None:
    """Raise ClusterError for a cluster that is read otherwise: a job that came both ways would be billed twice."""
    if cluster.kind != ClusterKind.PUSH:
        raise ClusterError(
            f"{cluster.name} is read otherwise ({cluster.get_kind_display()}), so usage cannot be pushed to it: a job "
            "that came both ways would be billed twice. Make a cluster of the kind push."
        )


@transaction.atomic
def flag_silent_runs(*, silence: timedelta, moment: datetime) -> int:
    """Flag open runs of which nothing was pushed for so long: they are billed up to their last heartbeat."""
    with connection.cursor() as cursor:
        cursor.execute(sql.SILENT, {"moment": moment, "quiet_before": moment - silence})
        return int(cursor.rowcount)


def _refusal(event: Event, moment: datetime) -> Rejection | None:
    """What cannot be true of it, with the text as it was sent."""
    # By a year typed wrong in `through` months would close of which nothing has come.
    times = {"/time": event.time, "/data/through": event.complete_through}
    for pointer, at in times.items():
        if at is not None and at > moment + timedelta(seconds=validation.CLOCK_SKEW):
            values = {
                "field": pointer.rpartition("/")[2],
                "at": f"{at:%Y-%m-%d %H:%M:%S} UTC",
                "now": f"{moment:%Y-%m-%d %H:%M:%S} UTC",
            }
            row = BadRow(code="from-the-future", values=values, raw=event.raw, source_key=event.key)
            return Rejection(pointer, row)
    fact, now = event.fact, int(moment.timestamp())
    bad = None if fact is None else validation.refuse(fact, now=now) or _too_old(fact, now)
    if fact is None or bad is None:
        return None
    place = str(bad.values.get("field", ""))
    place = _FIELDS_OF_SUMS.get(place, place) if fact.meter else place
    named = {**bad.values, "field": place} if place else bad.values
    row = BadRow(code=bad.code, values=named, raw=event.raw, source_key=event.key)
    return Rejection(event.pointer or f"/data/{place}".rstrip("/"), row)


def _too_old(fact: UsageFact, now: int) -> BadRow | None:
    """The row to quarantine: its month would be one long past, and a sender of odd times would make hundreds."""
    for name in ("submitted", "started"):
        at: int | None = getattr(fact, name)
        if at is not None and at < now - OLDEST // timedelta(seconds=1):
            values = {"field": name, "days": OLDEST.days}
            raw = validation.as_text(fact)
            return BadRow(code="too-old", values=values, raw=raw, source_key=fact.source_key)
    return None


def _not_known(
    cursor: Any, cluster: Cluster, newest: dict[str, tuple[int, Event]]
) -> tuple[list[tuple[int, Event]], dict[int, Answer]]:
    """Those that are newer than what is known of their runs and sums, and those whose name is the other's."""
    cursor.execute(sql.NEWEST, {"cluster": cluster.pk, "keys": list(newest)})
    known, others = dict[str, Any](), dict[int, Answer]()
    for key, time, sequence, digest, is_sum in cursor.fetchall():
        place, event = newest[key]
        known[key] = time, sequence, bytes(digest)
        if is_sum is not event.is_sum:
            row = BadRow(code="other-kind", raw=event.raw, source_key=key)
            others[place] = Answer(Became.REJECTED, Rejection("/type", row))
    fresh = [
        (place, event)
        for key, (place, event) in newest.items()
        if place not in others and (key not in known or known[key] < event.turn)
    ]
    return fresh, others


def _store(
    cursor: Any, cluster: Cluster, fresh: Iterable[tuple[int, Event]], bad: Sequence[BadRow], moment: datetime
) -> tuple[dict[int, Answer], Warnings]:
    """What became of each by its place. There is nothing to warn of where an event changes no run or sum."""
    places = {event.key: place for place, event in fresh}
    events = [event for _, event in fresh]
    if not events and not bad:
        return {}, Warnings()
    facts = [event.fact for event in events if event.fact is not None]
    if (energy := EnergySums.of(cluster)) is not None:
        facts += energy.of_runs(facts[:])
    stored = ledger.store(cluster=cluster, facts=facts, bad=bad, source=SOURCE, moment=moment)
    refused = {
        row.source_key: Answer(Became.REJECTED, Rejection("/data", row))
        for row in stored.refused
        if row.source_key in places
    }
    events = [event for event in events if event.key not in refused]
    answers = {places[key]: answer for key, answer in refused.items()}
    if not events:
        return answers, Warnings()
    meters.mark_used({fact.meter for fact in facts if fact.meter}, moment=moment)
    warnings = _warnings(cursor) if engine.rate_touched() else Warnings()
    values = {
        "cluster": cluster.pk,
        "keys": [event.key for event in events],
        "times": [event.time for event in events],
        "sequences": [event.sequence for event in events],
        "digests": [event.digest for event in events],
        "sums": [event.is_sum for event in events],
    }
    cursor.execute(sql.KEEP_NEWEST, values)
    cursor.execute(sql.VERDICTS)
    seen = {
        places[key]: Answer(Became(_SEEN.get(verdict, Became.DUPLICATE)))
        for key, verdict in cursor.fetchall()
        if key in places  # the energy of runs has no event of its own
    }
    return answers | seen, warnings


def _warnings(cursor: Any) -> Warnings:
    cursor.execute(sql.WARNINGS)
    counts: dict[str, dict[str, int]] = {"unassigned": {}, "unpriced": {}, "waived": {}}
    for kind, name, count in cursor.fetchall():
        counts[kind][name] = count
    return Warnings(**counts)


def _move_watermark(cursor: Any, cluster: Cluster, events: Sequence[Event], moment: datetime) -> None:
    """As far as the sender says that all was sent, and never beyond now, where the sender's clock is ahead."""
    ends = [event.complete_through for event in events if event.complete_through is not None]
    if ends:
        as_of = min(max(ends), moment)
        cursor.execute(ledger.sql.MOVE_WATERMARK, {"cluster": cluster.pk, "as_of": as_of})
