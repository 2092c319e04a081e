"""The text of e-mails about jobs that do not use their GPUs, from the values that were written down then."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from django.utils.translation import gettext as _

from billing.emails.formatting import load_seller_name, one_line, page_url
from billing.models import Notice, WasteAction, WasteFinding
from billing.rules.formatting import money_text
from billing.rules.money import Money

OVER = "Its jobs have worked again, or ended, before it could be sent."
SHOWN = 50
"""Jobs that an e-mail names; the page has all."""


def skip_reason(notice: Notice) -> str:
    """A sentence where what it says does not hold any more; what was done is told in any case."""
    if notice.details["stage"] == "ended":
        return ""
    open_rows = WasteFinding.objects.filter(pk__in=notice.details["rows"], closed_at=None)
    return "" if open_rows.exists() else OVER


def waste_context(notice: Notice) -> dict[str, Any]:
    """What the template places: a line for each job, and the money that all of them cost."""
    details, zone = notice.details, notice.tenant.zone
    jobs = details["jobs"]
    until = datetime.fromisoformat(details["at"])
    due = datetime.fromisoformat(details["due_at"]).astimezone(zone) if details["due_at"] else None
    more = len(jobs) - SHOWN
    return {
        "seller": load_seller_name(),
        "button": _("Idle jobs"),
        "page": page_url("idle_jobs", notice.tenant.slug),
        "stage": details["stage"],
        "rule": details["rule"],
        "user": one_line(details["user"]),
        "count": len(jobs),
        "requeues": details["action"] == WasteAction.REQUEUE,
        "due": f"{due:%Y-%m-%d %H:%M} {zone.key}" if due else "",
        "facts": [(_label(job), _value(job, until, zone)) for job in jobs[:SHOWN]],
        "more": max(more, 0),
        "sums": ", ".join(_an_hour(jobs)),
    }


def _label(job: Mapping[str, Any]) -> str:
    name = f" ({job['name']})" if job["name"] else ""
    return one_line(f"{job['job']}{name}")


def _value(job: Mapping[str, Any], until: datetime, zone: ZoneInfo) -> str:
    """`4 × a100 since 2026-03-05 10:00: $8.00 an hour, $32.00 so far`"""
    since = datetime.fromisoformat(job["idle_since"])
    held = f"{job['gpus']} × {job['gpu_model'] or 'GPU'}"
    moment = f"{since.astimezone(zone):%Y-%m-%d %H:%M}"
    if job["hour_cost"] is None:
        return one_line(_("{held} since {moment}").format(held=held, moment=moment))
    hour = Fraction(job["hour_cost"])
    so_far = hour * int((until - since).total_seconds()) / 3600
    return one_line(
        _("{held} since {moment}: {hour} an hour, {so_far} so far").format(
            held=held,
            moment=moment,
            hour=money_text(Money(hour, job["currency"]).rounded()),
            so_far=money_text(Money(so_far, job["currency"]).rounded()),
        )
    )


def _an_hour(jobs: list[Mapping[str, Any]]) -> list[str]:
    """By currency what all of them cost an hour."""
    sums: dict[str, Fraction] = {}
    for job in jobs:
        if job["hour_cost"] is not None:
            sums[job["currency"]] = sums.get(job["currency"], Fraction(0)) + Fraction(job["hour_cost"])
    return [money_text(Money(amount, currency).rounded()) for currency, amount in sorted(sums.items())]
