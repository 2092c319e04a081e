"""Failure rules, service credits and errors of GPUs, as commands and the API say them."""

from __future__ import annotations

from typing import Any

from billing.models import FailureRule, ServiceCredit
from billing.rules.formatting import money_text
from billing.rules.money import Money
from clusters.models import GpuError
from portal.config_file.failures import TERMS


def rule_data(row: FailureRule) -> dict[str, Any]:
    """For programs: the keys of a file."""
    return {"name": row.name} | {name: getattr(row, name) for name in TERMS}


def credit_data(row: ServiceCredit, *, inner: bool = True) -> dict[str, Any]:
    """For programs; `inner`: with what only operators read."""
    return {
        "tenant": row.tenant.slug,
        "rule": row.failure_rule.name if inner else "",
        "cluster": row.cluster,
        "user": row.user,
        "job": row.job_id,
        "job_name": row.job_name,
        "cause": row.cause,
        "gpu": row.gpu,
        "node": row.node,
        "failed_at": row.failed_at,
        "ended_at": row.ended_at,
        "part": row.part,
        "percent": row.percent,
        "state": row.state,
        "amount": amount_data(row),
        "removed": row.state == "credited" and row.line_id is None,
        "error": row.error if inner else "",
    }


def amount_of(row: ServiceCredit) -> Money | None:
    return Money.from_minor(row.amount, row.currency) if row.amount is not None else None


def amount_data(row: ServiceCredit) -> dict[str, str] | None:
    amount = amount_of(row)
    return None if amount is None else {"amount": amount.text, "currency": amount.currency}


def error_data(row: GpuError) -> dict[str, Any]:
    return {
        "cluster": row.cluster.name,
        "cause": row.cause,
        "gpu": row.uuid,
        "gpu_slice": row.gpu_slice,
        "gpu_model": row.gpu_model,
        "node": row.node,
        "at": row.at,
        "clean_until": row.clean_until,
        "jobs": row.jobs,
        "matched": row.record_id is not None,
    }


def rule_line(row: FailureRule) -> str:
    """`failed-hardware: XID 48, 79; errors of the memory; NODE_FAIL: 100 % of the run (watched), all clusters`"""
    xids = f"XID {', '.join(map(str, row.xids))}" if row.xids else ""
    memory = "errors of the memory" if row.memory else ""
    meets = "; ".join(filter(None, (xids, memory, ", ".join(row.states))))
    watched = " (watched)" if row.watch else ""
    return f"{row.name}: {meets}: {row.percent} % of the {row.part}{watched}, {row.cluster or 'all clusters'}"


def credit_line(row: ServiceCredit) -> str:
    """`job 17 of ben in gpu1 (vision-lab): XID 79 of GPU-5fd4… at 2026-03-02 13:00 UTC: credited, $8.00`"""
    gpu = f" of {row.gpu}" if row.gpu else ""
    amount = amount_of(row)
    money = f", {money_text(amount)}" if amount is not None else ""
    return (
        f"job {row.job_id} of {row.user} in {row.cluster} ({row.tenant.slug}): {row.cause}{gpu} at "
        f"{row.failed_at:%Y-%m-%d %H:%M} UTC: {row.get_state_display().lower()}{money} {row.error}".rstrip()
    )


def error_line(row: GpuError) -> str:
    """`XID 79 of GPU-5fd4… on n-7 of gpu1 at 2026-03-02 13:00 UTC, held by 17`"""
    held = f", held by {', '.join(row.jobs)}" if row.jobs else ""
    return (
        f"{row.cause} of {row.uuid} on {row.node} of {row.cluster.name} at {row.at:%Y-%m-%d %H:%M} UTC{held}"
    )
