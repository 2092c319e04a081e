"""How a job's life is shown: its stages, where its cost is cut, and a strip of how busy its GPUs were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from zoneinfo import ZoneInfo

from django.utils.translation import gettext as _

from billing.queries.job_life import JobLife, Stretch
from billing.queries.jobs import Piece
from portal.web import format as say

HEIGHT = 48  # of the strip, in pixels


@dataclass(frozen=True, kw_only=True)
class Stage:
    label: str  # "Waited"
    part: str  # of the bar, as its class names it
    duration: int  # seconds
    note: str = ""
    x: str = "0"  # where it begins in the bar, in per cent, and how wide it is
    width: str = "0"


@dataclass(frozen=True, kw_only=True)
class StripBar:
    """A stretch of the strip, in per cent of its width and in pixels from its top."""

    x: str
    width: str
    y: str
    height: str
    part: str  # "effective", or "unknown"
    when: str  # "2 Mar 2026, 10:00"
    utilization: str  # "50 %", "unknown"


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A moment at which the cost of a run is cut in two, and why."""

    at: datetime
    why: str


def stages(life: JobLife) -> list[Stage]:
    """How long it waited and ran; none of a job of which neither is known."""
    parts = [
        (_("Waited"), "idle", life.waited, _waiting_note(life)),
        (_("Ran"), "effective", life.ran, _running_note(life)),
    ]
    whole = sum(seconds or 0 for _label, _part, seconds, _note in parts)
    begin, rows = 0, []
    for label, part, seconds, note in parts:
        if seconds is not None:
            x, width = (
                say.plain(Fraction(place * 100, whole)) if whole else "0" for place in (begin, seconds)
            )
            rows.append(Stage(label=label, part=part, duration=seconds, note=note, x=x, width=width))
            begin += seconds
    return rows


def _waiting_note(life: JobLife) -> str:
    if life.eligible is None or life.submitted is None or life.started is None:
        return ""
    before = min(life.eligible, life.started) - life.submitted
    return (
        _("{duration} of it before it could start").format(duration=say.duration(before))
        if before > 0
        else ""
    )


def _running_note(life: JobLife) -> str:
    notes = []
    if life.suspended:
        notes.append(_("{duration} of it suspended").format(duration=say.duration(life.suspended)))
    if life.time_limit and life.ran is not None:
        share = say.percent(Fraction(life.ran), Fraction(life.time_limit))
        limit = say.duration(life.time_limit)
        notes.append(_("{share} of its time limit of {limit}").format(share=share, limit=limit))
    return "; ".join(notes)


def strip(life: JobLife, zone: ZoneInfo) -> list[StripBar]:
    if not life.stretches or life.started is None or life.finish is None:
        return []
    whole = life.finish - life.started
    return [_bar(one, life.started, whole, zone) for one in life.stretches]


def _bar(one: Stretch, started: int, whole: int, zone: ZoneInfo) -> StripBar:
    share = one.utilization
    height = Fraction(HEIGHT) if share is None else max(share * HEIGHT, Fraction(1))
    return StripBar(
        x=say.plain(Fraction((one.since - started) * 100, whole)),
        width=say.plain(Fraction((one.until - one.since) * 100, whole)),
        y=say.plain(HEIGHT - height),
        height=say.plain(height),
        part="unknown" if share is None else "effective",
        when=say.moment(datetime.fromtimestamp(one.since, UTC), zone),
        utilization=_("unknown") if share is None else say.percent(one.busy, Fraction(one.covered)),
    )


def strip_summary(life: JobLife) -> str:
    """The strip in words."""
    return _("Worked {share} of the time that telemetry covers, which is {coverage} of the run.").format(
        share=say.percent(life.busy, Fraction(life.covered)),
        coverage=say.percent(Fraction(life.covered), life.held),
    )


def cuts(pieces: Sequence[Piece]) -> list[Cut]:
    """Where a resource goes on with another piece: at another price, in another project, or in a new billing period."""
    ending = {(piece.resource, piece.service_to): piece for piece in pieces if piece.units > 0}
    reasons: dict[datetime, str] = {}
    for piece in pieces:
        before = ending.get((piece.resource, piece.service_from))
        if before is not None and piece.units > 0:
            reasons.setdefault(piece.service_from, _why(before, piece))
    return [Cut(at=at, why=why) for at, why in sorted(reasons.items())]


def _why(before: Piece, after: Piece) -> str:
    if before.project != after.project:
        return _("from here on in {project}").format(project=after.project)
    if before.tag != after.tag:
        return _("another price")
    return _("a new billing period")
