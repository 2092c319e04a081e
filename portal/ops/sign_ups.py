"""Sign-ups as commands print them."""

from __future__ import annotations

from typing import Any

from billing.models import SignUp
from billing.rules.money import Money


def sign_up_data(row: SignUp) -> dict[str, Any]:
    """For `--json`."""
    return {
        "tenant": row.tenant.slug,
        "name": row.tenant.name,
        "country": row.tenant.country,
        "email": row.email,
        "plan": row.plan.name,
        "state": row.state,
        "credit": Money.from_minor(row.credit, row.plan.currency).text,
        "currency": row.plan.currency,
        "asked_at": row.asked_at,
        "decided_at": row.decided_at,
        "decided_by": row.decided_by,
        "reason": row.reason,
    }


def sign_up_line(row: SignUp) -> str:
    return f"{row.tenant.slug} ({row.tenant.name}), {row.email}, plan {row.plan}: {row.get_state_display()}"
