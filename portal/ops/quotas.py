"""Quotas as commands say them."""

from __future__ import annotations

from typing import Any

from billing.quotas.status import QuotaStatus, period_text, plain_text, scope_text
from billing.rules.money import rounded_text


def quota_data(status: QuotaStatus) -> dict[str, Any]:
    """Amounts as text in the quota's unit."""
    quota, figure = status.quota, status.figure

    def number(value: Any) -> str | None:
        return None if value is None else plain_text(value, quota.unit)

    return {
        "tenant": quota.tenant.slug,
        "name": quota.name,
        "measure": quota.measure,
        "unit": quota.unit,
        "scope": scope_text(quota),
        "every": quota.every,
        "amount": number(quota.amount),
        "carried": number(figure.carried),
        "cap": number(quota.cap),
        "used": number(figure.used),
        "counted_on": number(figure.counted_on),
        "left": number(status.left),
        "forecast": number(figure.forecast),
        "percent": None if status.percent is None else rounded_text(status.percent, 2),
        "state": status.state.value,
        "action": quota.action,
        "watch": quota.watch,
        "period_start": figure.window.start,
        "period_end": figure.window.end,
        "as_of": figure.as_of,
    }


def quota_line(status: QuotaStatus) -> str:
    """`vision/monthly: $700.00 of $1,000.00 used each month (everything), near`"""
    quota = status.quota
    used, amount = status.text(status.figure.used), status.text(status.amount)
    return (
        f"{quota.tenant.slug}/{quota.name}: {used} of {amount} used {period_text(quota)} ({scope_text(quota)}), "
        f"{status.state}"
    )
