"""When a job held its resources: one row's Submit, Start, End, elapsed and suspended time reconciled."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from clusters.connectors.sacct_fields import UnreadableError
from clusters.connectors.sacct_times import LATEST
from portal.excerpt import quoted

if TYPE_CHECKING:
    from clusters.connectors.sacct_times import Clock

_USE_UTC = "Export again with TZ=UTC, or import the row again when the job has ended."


class Span(NamedTuple):
    """Epoch seconds; `proven` is a moment at which the scheduler was still writing about this row."""

    submitted: int
    started: int | None
    ended: int | None
    proven: int | None
    note: str = ""


class Times(NamedTuple):
    """A row's own words for its times, and its lengths in seconds."""

    submit: str
    start: str
    end: str
    elapsed: int | None
    suspended: int


def read_span(clock: Clock, times: Times, *, state: str) -> Span:
    """Raises `UnreadableError` where the times contradict each other or cannot be told.

    The submission is part of a row's identity, so its reading must not depend on whether the job still
    runs: in a fold it is Start's reading if both are the same text, else the earlier one.
    """
    running = state == "RUNNING"
    submits = clock.moments("Submit", times.submit)
    starts = clock.moments("Start", times.start)
    ends = () if running else clock.moments("End", times.end)
    if not submits:
        raise UnreadableError(
            "no-submit", f"Submit is {quoted(times.submit)}; without it the row has no identity."
        )
    if not starts:
        span = _never_started(times, submits, ends, running=running, waiting=state == "PENDING")
    elif not ends:
        span = _open(times, submits, starts)
    else:
        span = _closed(times, submits, starts, ends)
    if max(span.ended or 0, span.proven or 0) > LATEST:
        raise UnreadableError("absurd-date", "Start plus the elapsed time lies beyond the year 2200.")
    return span


def _never_started(
    times: Times, submits: tuple[int, ...], ends: tuple[int, ...], *, running: bool, waiting: bool
) -> Span:
    if running or times.elapsed:
        raise UnreadableError("no-start", f"Start is {quoted(times.start)} although the job ran.")
    if ends and not waiting:
        return Span(submits[0], ends[0], ends[0], ends[0])
    if len(submits) > 1:
        raise UnreadableError(
            "clock-change", f"Submit {times.submit} happened twice as clocks went back. {_USE_UTC}"
        )
    return Span(submits[0], None, None, None)


def _open(times: Times, submits: tuple[int, ...], starts: tuple[int, ...]) -> Span:
    if len(starts) > 1:
        raise UnreadableError(
            "clock-change", f"Start {times.start} happened twice as clocks went back. {_USE_UTC}"
        )
    start = starts[0]
    proven = None if times.elapsed is None else start + times.elapsed + times.suspended
    submitted = start if times.submit == times.start else submits[0]
    if submitted > start:
        return Span(submitted, submitted, None, proven and max(proven, submitted), "resized")
    return Span(submitted, start, None, proven)


def _closed(times: Times, submits: tuple[int, ...], starts: tuple[int, ...], ends: tuple[int, ...]) -> Span:
    same = times.submit == times.start
    if not same:  # nothing starts before it was submitted, if it has the choice
        starts = tuple(start for start in starts if start >= submits[0]) or starts
    start, end, note = _fitting(times, starts, ends)
    submitted = start if same else submits[0]
    if submitted > start:
        return _resized(times, submitted, start, end)
    if note:
        end = start + (times.elapsed or 0) + times.suspended
    return Span(submitted, start, end, end, note)


def _fitting(times: Times, starts: tuple[int, ...], ends: tuple[int, ...]) -> tuple[int, int, str]:
    """The earliest reading whose length is the elapsed time; noted, where none is."""
    pairs = [(start, end) for start in starts for end in ends]
    if times.elapsed is not None:
        length = times.elapsed + times.suspended
        fitting = [pair for pair in pairs if pair[1] - pair[0] == length]
        return (*min(fitting), "") if fitting else (*min(pairs), "elapsed")
    if len(pairs) > 1:
        raise UnreadableError(
            "clock-change",
            f"{times.start} to {times.end} can have two lengths, and no elapsed time decides. {_USE_UTC}",
        )
    start, end = pairs[0]
    if end < start:
        raise UnreadableError(
            "end-before-start", f"End {times.end} is before Start {times.start}, and no elapsed time decides."
        )
    if end - start < times.suspended:
        raise UnreadableError("suspended", f"{times.suspended} seconds suspended are longer than the job.")
    return start, end, ""


def _resized(times: Times, submitted: int, start: int, end: int) -> Span:
    """A row that starts before its submission continues a resized job: older Slurm gives it the first start.

    The earlier row holds the time until this submission, so this one begins there.
    """
    lengths = (end - start, end - submitted)
    if times.elapsed is None or times.elapsed + times.suspended in lengths:
        end = max(end, submitted)
    else:
        end = submitted + times.elapsed + times.suspended
    return Span(submitted, submitted, end, end, "resized")
