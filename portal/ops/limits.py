"""Limits of what is held at once, as commands and the API say them."""

from __future__ import annotations

from typing import Any

from billing.limits.status import AccountStatus, LimitStatus, held_text, limit_text, scope_text, state_text


def limit_data(one: LimitStatus) -> dict[str, Any]:
    """For programs."""
    limit = one.limit
    return {
        "tenant": limit.tenant.slug,
        "name": limit.name,
        "gpus": limit.gpus,
        "jobs": limit.jobs,
        "gpu_model": limit.gpu_model,
        "project": limit.project.name if limit.project else None,
        "account": limit.account,
        "cluster": limit.cluster,
        "accounts": [_account_data(account) for account in one.accounts],
    }


def _account_data(one: AccountStatus) -> dict[str, Any]:
    return {
        "cluster": one.cluster,
        "account": one.account,
        "gpus": one.gpus,
        "jobs": one.jobs,
        "state": one.state or "requested",
        "note": one.note,
        "error": one.error,
        "checked_at": one.checked_at,
    }


def limit_lines(one: LimitStatus) -> list[str]:
    """`vision/h100: 16 GPUs of h100 at once (all accounts)`, and a line for each account."""
    limit = one.limit
    first = f"{limit.tenant.slug}/{limit.name}: {limit_text(limit)} at once ({scope_text(limit)})"
    return [first, *(_account_line(limit, account) for account in one.accounts)]


def _account_line(limit: Any, one: AccountStatus) -> str:
    more = f" {one.error or one.note}".rstrip()
    return f"  {one.cluster}/{one.account}: {held_text(limit, one)}, {state_text(one).lower()}.{more}"
