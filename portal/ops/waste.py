"""Waste rules, and the idle jobs that they found, as commands and the API say them."""

from __future__ import annotations

from datetime import datetime
from fractions import Fraction
from typing import Any

from billing.models import WasteFinding, WasteRule
from billing.rules.formatting import money_text
from billing.rules.money import Money
from billing.waste import savings
from billing.waste.savings import Saving
from portal.config_file.waste import TERMS


def rule_data(row: WasteRule) -> dict[str, Any]:
    """For programs: the keys of a file."""
    return {"name": row.name} | {name: getattr(row, name) for name in TERMS}


def finding_data(row: WasteFinding, *, moment: datetime, inner: bool = True) -> dict[str, Any]:
    """For programs; `inner`: with what only operators read."""
    return {
        "tenant": row.tenant.slug,
        "rule": row.rule.name,
        "cluster": row.cluster,
        "account": row.account,
        "user": row.user,
        "job": row.job_id,
        "job_name": row.job_name,
        "gpus": row.gpus,
        "gpu_model": row.gpu_model,
        "state": row.state,
        "closed_for": row.closed_for,
        "began_at": row.began_at,
        "idle_since": row.idle_since,
        "due_at": row.due_at,
        "ended_at": row.ended_at,
        "ran_until": row.ran_until,
        "hour_cost": amount_data(
            None if row.hour_cost is None else Money(Fraction(row.hour_cost), row.currency)
        ),
        "idle_cost": amount_data(savings.idle_cost(row, moment)),
        "saved_cost": amount_data(savings.saved_cost(row, moment)),
        "error": row.error if inner else "",
    }


def saving_data(one: Saving, rules: dict[int, str]) -> dict[str, Any]:
    """For programs: estimates, in GPU-hours to three places."""
    return {
        "rule": rules[one.rule],
        "state": one.state,
        "jobs": one.jobs,
        "idle_gpu_hours": hours_text(one.idle_seconds),
        "idle_cost": amount_data(one.idle_cost),
        "saved_gpu_hours": hours_text(one.saved_seconds),
        "saved_cost": amount_data(one.saved_cost),
        "worked_again": one.again,
    }


def amount_data(money: Money | None) -> dict[str, str] | None:
    """Rounded, since it is an estimate."""
    return None if money is None else {"amount": money.rounded().text, "currency": money.currency}


def hours_text(seconds: Fraction) -> str:
    """Hours to three places: `12.500`."""
    thousandths = round(seconds / Fraction(18, 5))
    return f"{thousandths // 1000}.{thousandths % 1000:03d}"


def rule_line(row: WasteRule) -> str:
    """`idle-4-hours: idle for 4 h, cancel after 120 minutes (watched), all clusters, opt-out`"""
    does = "notify" if row.action == "notify" else f"{row.action} after {row.grace_minutes} minutes"
    watched = " (watched)" if row.watch else ""
    place = row.cluster or "all clusters"
    return f"{row.name}: {row.kind} for {row.hours} h, {does}{watched}, {place}, {row.choice}"


def finding_line(row: WasteFinding) -> str:
    """`job 71 of ben in gpu1/vision (vision-lab): 4 × a100 idle since …, $8.00 an hour, announced`"""
    cost = ""
    if row.hour_cost is not None:
        cost = f", {money_text(Money(Fraction(row.hour_cost), row.currency).rounded())} an hour"
    ends = f", ends at {row.due_at:%Y-%m-%d %H:%M} UTC" if row.due_at and row.closed_at is None else ""
    closed = f" ({row.get_closed_for_display()})" if row.closed_for else ""
    return (
        f"job {row.job_id} of {row.user} in {row.cluster}/{row.account} ({row.tenant.slug}): {row.gpus} × "
        f"{row.gpu_model or 'GPU'} idle since {row.idle_since:%Y-%m-%d %H:%M} UTC{cost}: "
        f"{row.get_state_display().lower()}{closed}{ends} {row.error}".rstrip()
    )
