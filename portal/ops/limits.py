"""Limits of what is held at once, as commands and the API say them."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _

from billing.limits.status import AccountStatus, LimitStatus, held_text, limit_text, scope_text, state_text


def limit_data(one: LimitStatus, *, inner: bool = True) -> dict[str, Any]:
    """For programs; `inner`: with what only operators read, who see other tenants and addresses in it."""
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
        "accounts": [_account_data(account, inner=inner) for account in one.accounts],
    }


def _account_data(one: AccountStatus, *, inner: bool) -> dict[str, Any]:
    outer_error = _("It could not be set yet, and is tried again.") if one.error else ""
    return {
        "cluster": one.cluster,
        "account": one.account,
        "gpus": one.gpus,
        "jobs": one.jobs,
        "state": one.state or "requested",
        "note": one.note if inner else "",
        "error": one.error if inner else outer_error,
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
