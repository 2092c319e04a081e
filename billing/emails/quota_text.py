"""The text of e-mails about budgets, from the values that a pass wrote down."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from fractions import Fraction
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.emails.formatting import format_day, load_seller_name, one_line, page_url
from billing.models import Notice, QuotaAction, QuotaCrossing
from billing.rules.formatting import grouped, money_text
from billing.rules.money import Money

NOTHING_LEFT = "What it says does not hold any more: it is below again, or its period is over."
ANNOUNCED = {
    QuotaAction.END_JOBS: gettext_noop(
        "When all of it is used, no new GPU job of its accounts starts, and running jobs may be ended after a "
        "grace. An e-mail says so before."
    ),
    QuotaAction.HOLD_JOBS: gettext_noop(
        "When all of it is used, waiting jobs are held. Running jobs run on."
    ),
    QuotaAction.NO_SUBMISSIONS: gettext_noop(
        "When all of it is used, no new job can be submitted in its accounts. Running jobs run on."
    ),
    QuotaAction.NO_GPU_JOBS: gettext_noop(
        "When all of it is used, no new GPU job of its accounts starts. Running jobs run on."
    ),
}
"""What budgets will do to jobs."""
BLOCKED = {
    QuotaAction.END_JOBS: gettext_noop(
        "No new GPU job of its accounts starts until less is used, the amount is raised or the period ends. "
        "Running jobs may be ended after a grace: another e-mail says when."
    ),
    QuotaAction.HOLD_JOBS: gettext_noop(
        "Waiting jobs are held until less is used, the amount is raised or the period ends. Running jobs run on."
    ),
    QuotaAction.NO_SUBMISSIONS: gettext_noop(
        "No new job can be submitted in its accounts until less is used, the amount is raised or the period ends. "
        "Running jobs run on."
    ),
    QuotaAction.NO_GPU_JOBS: gettext_noop(
        "No new GPU job of its accounts starts until less is used, the amount is raised or the period ends. "
        "Running jobs run on."
    ),
}
"""What they do now."""


def skip_reason(notice: Notice, moment: datetime) -> str:
    """Leave out what does not hold any more since it was written; a sentence where nothing is left."""
    crossings = QuotaCrossing.objects.filter(notice=notice, cleared_at=None, quota__ended_at=None)
    current = set(crossings.values_list("quota", flat=True))
    rows = [row for row in notice.details["quotas"] if _holds(row, current, moment)]
    if not rows:
        return NOTHING_LEFT
    notice.details["quotas"] = rows
    return ""


def _holds(row: Mapping[str, Any], current: set[int], moment: datetime) -> bool:
    if row["ends_at"] and datetime.fromisoformat(row["ends_at"]) <= moment:
        return False
    return bool(row["back_under"]) or row["quota"] in current


def quota_context(notice: Notice) -> dict[str, Any]:
    """What the template places: a sentence for one budget, a table of several."""
    rows = notice.details["quotas"]
    zone = notice.tenant.zone
    context: dict[str, Any] = {
        "seller": load_seller_name(),
        "button": _("Budgets"),
        "page": page_url("budgets", notice.tenant.slug),
        "count": len(rows),
        "many": len(rows) > 1,
        "facts": [(_label(row), _value(row)) for row in rows],
        "late": any(row["late"] for row in rows),
        "effect": effect_text(rows),
    }
    stale = [datetime.fromisoformat(row["stale_since"]) for row in rows if row["stale_since"]]
    if stale:
        context["stale_since"] = f"{min(stale).astimezone(zone):%Y-%m-%d %H:%M}"
    if len(rows) == 1:
        (row,) = rows
        context |= {
            "name": row["name"],
            "used": _amount(row["used"], row["unit"]),
            "amount": _amount(row["amount"], row["unit"]),
            "forecast": _amount(row["forecast"], row["unit"]) if row["foreseen"] else "",
            "reached": ", ".join(_threshold(text, row) for text in row["reached"]),
            "highest": _threshold(row["reached"][-1], row) if row["reached"] else "",
            "back_under": _threshold(row["back_under"][-1], row) if row["back_under"] else "",
            "is_stale": row["is_stale"],
            "resets": format_day(datetime.fromisoformat(row["ends_at"]).astimezone(zone).date())
            if row["resets"]
            else "",
        }
    return context


def effect_text(rows: list[Mapping[str, Any]]) -> str:
    """What the budgets do to jobs, the hardest that holds now first; of several, which of them do."""
    over = [row for row in rows if row.get("over") and not row.get("watch")]
    if over:
        effect = _(BLOCKED[_hardest(over)])
        if len(rows) > 1:
            names = ", ".join(one_line(row["name"]) for row in over)
            effect += " " + _("Budgets that block: {names}.").format(names=names)
        return effect
    acting = [row for row in rows if row.get("action", QuotaAction.NOTIFY) != QuotaAction.NOTIFY]
    if any(row["watch"] for row in acting):
        return _("The budget is only watched: it stops no job.")
    if acting:
        return _(ANNOUNCED[_hardest(acting)])
    return _("A budget only notifies: no job is stopped by it.")


def _hardest(rows: list[Mapping[str, Any]]) -> QuotaAction:
    """The action that the sentence is about: what is held is only said where all of them hold."""
    actions = {row["action"] for row in rows}
    if actions == {QuotaAction.HOLD_JOBS}:
        return QuotaAction.HOLD_JOBS
    harder = (QuotaAction.END_JOBS, QuotaAction.NO_SUBMISSIONS)
    return next((action for action in harder if action in actions), QuotaAction.NO_GPU_JOBS)


def _label(row: Mapping[str, Any]) -> str:
    return one_line(f"{row['name']} ({row['scope']})")


def _value(row: Mapping[str, Any]) -> str:
    text = _("{used} of {amount}").format(
        used=_amount(row["used"], row["unit"]), amount=_amount(row["amount"], row["unit"])
    )
    if row["reached"]:
        text += _("; reached {thresholds}").format(
            thresholds=", ".join(_threshold(one, row) for one in row["reached"])
        )
    if row["foreseen"]:
        text += _("; forecast {forecast}").format(forecast=_amount(row["forecast"], row["unit"]))
    if row["back_under"]:
        text += _("; back under {threshold}").format(threshold=_threshold(row["back_under"][-1], row))
    return text


def _threshold(text: str, row: Mapping[str, Any]) -> str:
    """`80%`, or a level as an amount."""
    return text if "%" in text or text.startswith("+") else _amount(text, row["unit"])


def _amount(text: str, unit: str) -> str:
    if unit:
        return money_text(Money(Fraction(text), unit).rounded())
    return _("{hours} GPU-hours").format(hours=grouped(text))
