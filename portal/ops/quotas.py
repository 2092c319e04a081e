"""Quotas as commands say them."""

from __future__ import annotations

from typing import Any

from billing.admission.check import JobCheck, Need
from billing.admission.wallets import WalletNeed
from billing.admission.wording import answer_text, ask_text, kind_of
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
        "reserved": number(status.figure.reserved),
        "left": number(status.left),
        "lends": quota.lends,
        "borrows_from": quota.borrows_from and quota.borrows_from.name,
        "borrowed": number(status.borrows),
        "loans": [
            {"quota": loan.quota, "project": loan.project, "used": number(loan.used)} for loan in figure.loans
        ],
        "forecast": number(figure.forecast),
        "percent": None if status.percent is None else rounded_text(status.percent, 2),
        "state": status.state.value,
        "action": quota.action,
        "grace_minutes": quota.grace_minutes,
        "ends_older": quota.ends_older,
        "watch": quota.watch,
        "set_by": quota.set_by,
        "period_start": figure.window.start,
        "period_end": figure.window.end,
        "as_of": figure.as_of,
    }


def quota_line(status: QuotaStatus) -> str:
    """`vision/monthly: $700.00 of $1,000.00 used each month (everything), near`"""
    quota = status.quota
    used, amount = status.text(status.figure.used), status.text(status.amount)
    loans = "".join(f"; {loan.project}: {status.text(loan.used)}" for loan in status.figure.loans)
    pool = (
        f", {status.text(status.borrows)} of it from {quota.borrows_from.name}" if quota.borrows_from else ""
    )
    return (
        f"{quota.tenant.slug}/{quota.name}: {used} of {amount} used{pool} {period_text(quota)} ({scope_text(quota)}"
        f"{loans}), {status.state}"
    )


def check_data(check: JobCheck) -> dict[str, Any]:
    """Whether a job may run, for programs."""
    return {
        "account": check.account,
        "project": check.project,
        "may_run": check.may_run,
        "message": answer_text(check),
        "seconds": check.seconds,
        "longest_seconds": check.longest,
        "unpriced": list(check.unpriced),
        "quotas": [_need_data(need) for need in check.needs],
        "wallets": [_wallet_data(need) for need in check.wallets],
    }


def _wallet_data(need: WalletNeed) -> dict[str, Any]:
    return {
        "wallet": str(need.wallet),
        "unit": need.wallet.unit,
        "left": need.text(need.free),
        "needs": need.text(need.amount),
        "fits": need.fits,
        "longest_seconds": need.longest,
    }


def _need_data(need: Need) -> dict[str, Any]:
    status, quota = need.status, need.status.quota
    window = status.figure.window
    return {
        "name": quota.name,
        "type": f"urn:clustertab:problem:quota-used-up-{kind_of(quota)}",
        "scope": scope_text(quota),
        "measure": quota.measure,
        "unit": quota.unit,
        "every": quota.every,
        "amount": plain_text(status.amount, quota.unit),
        "used": plain_text(status.figure.used, quota.unit),
        "reserved": plain_text(status.figure.reserved, quota.unit),
        "left": plain_text(status.left, quota.unit),
        "needs": plain_text(need.amount, quota.unit),
        "borrows": plain_text(need.borrows, quota.unit),
        "fits": need.fits,
        "refuses": need.refuses,
        "longest_seconds": need.longest,
        "period_start": window.start,
        "period_end": window.end,
        "resets_at": status.resets_at,
        "ask": ask_text(quota),
    }
