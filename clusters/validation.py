"""What cannot be true of a fact, whatever source it came from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime

from msgspec import structs

from clusters.connectors.base import BadRow, UsageFact

CLOCK_SKEW = 300  # seconds that a node's clock may run ahead of ours before its times are disbelieved
INT32 = 2**31 - 1
INT63 = 2**63 - 1  # count × share × seconds is what rating keeps, in whole numbers of 64 bits
YEAR_10000 = 253_402_300_800  # the first epoch second without a date
ORDINARY = 2**31  # any two of it multiplied fit into 63 bits
LONGEST_NAME = 255  # of what totals and keys are kept by
_MOVING = ("seen_until", "suspended")  # of a fact that is open

Problem = tuple[str, Mapping[str, object]]
"""The code and the values of a bad row."""


def refuse(fact: UsageFact, *, now: int) -> BadRow | None:
    """The row to quarantine instead of the fact, or None where it can be true. `now` is an epoch second."""
    if _is_plain(fact, now + CLOCK_SKEW):
        return None
    problem = _interval(fact, now=now) or _counts(fact) or _texts(fact)
    if problem is None:
        return None
    code, values = problem
    return BadRow(code=code, values=values, raw=as_text(fact), source_key=fact.source_key)


def _is_plain(fact: UsageFact, latest: int) -> bool:
    """Whether it is one of the many that have ended, are of ordinary size and written in ASCII: all of that is true.

    No more than a short way past the rules below: what it turns down may be true as well.
    """
    started, ended, submitted = fact.started, fact.ended, fact.submitted
    if started is None or ended is None or submitted is None or fact.gpu_share != (1, 1):
        return False
    if not 0 < started <= ended <= latest or submitted > latest or not 0 <= fact.suspended <= ended - started:
        return False
    sizes = fact.gpus | fact.cpu_milli | fact.memory_mib | fact.nodes | fact.gpu_memory_mib | fact.billing
    if not 0 <= sizes | (ended - started) < ORDINARY:  # a sign shows in this, too
        return False
    names = fact.source_key + fact.account + fact.user + fact.gpu_model
    if len(names) > LONGEST_NAME or not fact.source_key:
        return False
    text = (
        f"{names}{fact.job_id}{fact.name}{fact.queue}{fact.qos}{fact.priority_class}{fact.mig_profile}"
        f"{fact.node_list}{fact.requested}{fact.state}{fact.exit_code}"
    )
    return text.isascii() and "\x00" not in text


def as_text(fact: UsageFact) -> str:
    """The fact as JSON, without its energy and what goes on while it is open: the same text at every look."""
    values = structs.asdict(fact)
    del values["energy"]
    if fact.ended is None:
        for name in _MOVING:
            del values[name]
    return json.dumps(values, sort_keys=True)


def _interval(fact: UsageFact, *, now: int) -> Problem | None:
    latest = now + CLOCK_SKEW
    for field in ("submitted", "started", "ended", "seen_until"):
        at = getattr(fact, field)
        if at is not None and at > latest:
            return "from-the-future", {"field": field, "at": _utc(at), "now": _utc(now)}
    started, ended = fact.started, fact.ended
    if (started is not None and started <= 0) or (ended is not None and ended <= 0):
        return "before-the-epoch", {}
    if ended is not None and started is None:
        return "end-without-start", {}
    if started is None:
        return None
    finish = ended if ended is not None else fact.seen_until
    if finish is None:
        return "end-unknown", {}
    if finish < started:
        return "end-before-start", {"end": _utc(finish), "start": _utc(started)}
    if not 0 <= fact.suspended <= finish - started:
        return "suspended-too-long", {"suspended": fact.suspended, "seconds": finish - started}
    return None


def _utc(second: int) -> str:
    """`2026-10-03 07:20:00 UTC`; what no calendar holds stays a number."""
    if not 0 <= second < YEAR_10000:
        return f"second {second}"
    return f"{datetime.fromtimestamp(second, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _counts(fact: UsageFact) -> Problem | None:
    share_num, share_den = fact.gpu_share
    if not 1 <= share_num <= share_den <= INT32:
        return "impossible-share", {"share": f"{share_num}/{share_den}"}
    finish = fact.ended if fact.ended is not None else fact.seen_until
    wall = max(finish - fact.started, 1) if fact.started is not None and finish is not None else 1
    counted = (
        ("gpus", min(INT32, INT63 // (wall * share_num))),
        ("nodes", INT32),
        ("cpu_milli", INT63 // wall),
        ("memory_mib", INT63 // wall),
        ("gpu_memory_mib", INT63 // wall),
        ("billing", INT63 // wall),
    )
    for field, limit in counted:
        if not 0 <= (count := getattr(fact, field)) <= limit:
            return "impossible-count", {"field": field, "count": count, "seconds": wall}
    return None


def _texts(fact: UsageFact) -> Problem | None:
    if not fact.source_key:
        return "no-key", {}
    names = (fact.source_key, fact.account, fact.user, fact.gpu_model)
    if max(map(len, names)) > LONGEST_NAME:
        return "too-long-name", {"most": LONGEST_NAME}
    others = (fact.job_id, fact.name, fact.queue, fact.qos, fact.priority_class, fact.mig_profile)
    text = "".join((*names, *others, fact.node_list, fact.requested, fact.state, fact.exit_code))
    if "\x00" in text or not (text.isascii() or _is_unicode(text)):
        return "impossible-text", {}
    return None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
