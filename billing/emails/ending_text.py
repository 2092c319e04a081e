"""The text of e-mails about running jobs that a budget ends, from the values that were written down then."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _

from billing.emails.formatting import load_seller_name, one_line, page_url
from billing.models import Notice, QuotaEnding, QuotaEndingState

OVER = "It was stopped, or done, before it could be sent."
SHOWN = 50
"""Jobs that an e-mail names; the page has all."""


def skip_reason(notice: Notice, moment: datetime) -> str:
    """A sentence where an announcement does not hold any more; what was done, or stopped, is told in any case."""
    if notice.details["stage"] not in ("announced", "soon"):
        return ""
    rows = QuotaEnding.objects.filter(
        pk__in=notice.details["rows"], state=QuotaEndingState.ANNOUNCED, closed_at=None, due_at__gt=moment
    )
    return "" if rows.exists() else OVER


def ending_context(notice: Notice) -> dict[str, Any]:
    """What the template places."""
    details, zone = notice.details, notice.tenant.zone
    due = datetime.fromisoformat(details["due_at"]).astimezone(zone)
    jobs = [str(number) for number in details["jobs"]]
    more = len(jobs) - SHOWN
    listed = ", ".join(jobs[:SHOWN]) + (_(" and {count} more").format(count=more) if more > 0 else "")
    return {
        "seller": load_seller_name(),
        "button": _("Budgets"),
        "page": page_url("budgets", notice.tenant.slug),
        "stage": details["stage"],
        "name": details["name"],
        "is_debt": details.get("is_debt", False),
        "scope": one_line(details["scope"]),
        "accounts": one_line(", ".join(details["accounts"])),
        "due": f"{due:%Y-%m-%d %H:%M} {zone.key}",
        "count": len(jobs),
        "jobs": one_line(listed),
    }
