"""The values inside sacct's fields: durations, limits, states, ids, counts and TRES lists."""

from __future__ import annotations

import re
from functools import lru_cache

from clusters.connectors.base import UnreadableError
from portal.excerpt import quoted

NO_COUNT = 2**32 - 2
"""Slurm's NO_VAL; this and everything above it stands for "not set"."""

_DURATION = re.compile(r"(?:(?:(\d{1,6})-)?(\d{1,6}):)?(\d{1,6}):([0-5]\d)(?:\.\d{1,9})?", re.ASCII)
_STATE = re.compile(r"([A-Za-z_]+\+?)(?: by \S+)?", re.ASCII)
_DIGITS = re.compile(r"\d{1,20}", re.ASCII)

STEP_ID = re.compile(r"\d+(?:\+\d+)?\.(?:\d+(?:\+\d+)?|[a-z]+)", re.ASCII)
DISPLAY_ID = re.compile(r"(?:\d+(?:[_+][\d\[\],%:.-]+)*)?", re.ASCII)


def job_number(text: str) -> int:
    """JobIDRaw: a positive integer that a 64-bit column holds."""
    if text.isdecimal() and text.isascii() and len(text) < 19 and text[0] != "0":
        return int(text)
    if _DIGITS.fullmatch(text) and 0 < (number := int(text)) < 2**63:
        return number
    raise UnreadableError("job-id", text=quoted(text))


@lru_cache(maxsize=4096)
def duration(column: str, text: str) -> int | None:
    """`7-20:39:39`, `00:01:39` or `01:05.753` in whole seconds (fractions cut off); None if empty."""
    if not text:
        return None
    match = _DURATION.fullmatch(text)
    if match is None or (match[2] is not None and int(match[3]) > 59):
        code = "negative-elapsed" if text.startswith("-") else "unreadable-duration"
        raise UnreadableError(code, column=column, text=quoted(text), example="1-02:24:13")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def raw_seconds(text: str) -> int | None:
    """ElapsedRaw in seconds; None if it is empty or not set."""
    if not text:
        return None
    if _DIGITS.fullmatch(text):
        seconds = int(text)
        return seconds if seconds < NO_COUNT else None
    code = "negative-elapsed" if text.startswith("-") else "unreadable-duration"
    raise UnreadableError(code, column="ElapsedRaw", text=quoted(text), example="8653")


@lru_cache(maxsize=4096)
def time_limit(raw: str, text: str) -> int | None:
    """Seconds from TimelimitRaw (minutes), else Timelimit; None for UNLIMITED, Partition_Limit …"""
    if _DIGITS.fullmatch(raw):
        return int(raw) * 60 if int(raw) < NO_COUNT else None
    try:
        return duration("Timelimit", text)
    except UnreadableError:
        return None


@lru_cache(maxsize=4096)
def count(column: str, text: str) -> int:
    """A count of nodes or CPUs; 0 if it is empty or not set."""
    if not text:
        return 0
    if not _DIGITS.fullmatch(text):
        raise UnreadableError("unreadable-count", column=column, text=quoted(text))
    return int(text) if int(text) < NO_COUNT else 0


@lru_cache(maxsize=4096)
def state_word(text: str) -> str:
    """`CANCELLED by 1234` → `CANCELLED`. States that are not known are kept: nothing is decided by them."""
    match = _STATE.fullmatch(text)
    if match is None:
        raise UnreadableError("state", text=quoted(text))
    return match[1]
