"""Owners' choices of a plan and departures, as commands print them."""

from __future__ import annotations

from typing import Any

from billing.models import Departure, Subscription
from billing.sign_up.last_period import LastPeriod
from billing.sign_up.plan_changes import PlanChoice
from billing.sign_up.policy import SignUpError
from portal.core.tenants.models import Tenant
from portal.sentences import sentence


def planned_data(row: Subscription | None) -> dict[str, Any] | None:
    return None if row is None else {"plan": row.plan.name, "since": row.since}


def choice_data(tenant: Tenant, choice: PlanChoice | None) -> dict[str, Any]:
    """For `--json`."""
    return {
        "tenant": tenant.slug,
        "plan": choice.present.name if choice else None,
        "begins_at": choice.begins if choice else None,
        "ends_on": choice.ends if choice else None,
        "planned": planned_data(choice.planned) if choice else None,
        "offered": [plan.name for plan in choice.plans] if choice else [],
    }


def choice_text(tenant: Tenant, choice: PlanChoice | None) -> str:
    """What an owner reads on the page, in a few lines."""
    if choice is None:
        return sentence(SignUpError("plan-change-negotiated"))
    if choice.ends is not None:
        return sentence(SignUpError("plan-change-ending", day=choice.ends))
    lines = [f"{tenant.slug} is on plan {choice.present}."]
    if choice.planned:
        lines.append(f"From {choice.planned.since.astimezone(tenant.zone).date()} on {choice.planned.plan}.")
    names = ", ".join(plan.name for plan in choice.plans) or "none"
    begins = choice.begins.astimezone(tenant.zone).date()
    return "\n".join([*lines, f"Offered from {begins} on: {names}."])


def last_period_data(last: LastPeriod) -> dict[str, Any]:
    """For `--json`: what the last period cost, and would have cost on the other plan."""
    return {
        "period_start": last.period.start if last.period else None,
        "period_end": last.period.end if last.period else None,
        "present_cost": [{"amount": money.text, "currency": money.currency} for money in last.now],
        "offered_cost": [{"amount": money.text, "currency": money.currency} for money in last.offered],
        "reason": sentence(last.reason) if last.reason else "",
    }


def last_period_text(last: LastPeriod) -> str:
    if last.reason is not None:
        return f"The last period: {sentence(last.reason)}"
    now, offered = (
        " + ".join(f"{money.text} {money.currency}" for money in amounts) or "nothing"
        for amounts in (last.now, last.offered)
    )
    return f"The last period cost {now}, and would have cost {offered}, before tax."


def departure_data(row: Departure) -> dict[str, Any]:
    """For `--json`."""
    return {
        "tenant": row.tenant.slug,
        "leaves_on": row.leaves_on,
        "reason": row.reason,
        "asked_by": row.asked_by,
        "asked_at": row.asked_at,
        "withdrawn_at": row.withdrawn_at,
        "ended_at": row.ended_at,
    }


def departure_line(row: Departure) -> str:
    return f"{row.tenant.slug} asked to leave on {row.leaves_on}"
