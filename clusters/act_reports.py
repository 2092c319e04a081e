"""A plan of acts on a scheduler, and what became of it, as programs read both: the commands' `--json`, and the API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from clusters.models import ActKind

if TYPE_CHECKING:
    from clusters.enforcement_plan import Plan, SchedulerPort
    from clusters.job_control import CarriedOut

LEFT_OUT: Mapping[ActKind, str] = {
    ActKind.HOLD: "It has started, ended or been held meanwhile.",
    ActKind.RELEASE: "It has started, ended or been released meanwhile.",
    ActKind.CANCEL: "It has ended meanwhile.",
}


def of_plan(port: SchedulerPort, plan: Plan) -> dict[str, Any]:
    """What would be done; nothing was."""
    steps = [
        {"target": step.target, "words": step.words, "outcome": None, "error": ""} for step in plan.steps
    ]
    return _data(port, plan, steps, carried_out=False)


def of_result(port: SchedulerPort, plan: Plan, result: CarriedOut) -> dict[str, Any]:
    """What became of each step, also of those that were not begun, or were left out."""
    acts = [*result.acts, *([None] * result.left)]
    steps: list[dict[str, Any]] = [
        {
            "target": step.target,
            "words": step.words,
            "outcome": act.outcome if act else "not begun",
            "act": act.pk if act else None,
            "error": act.error if act else "",
        }
        for step, act in zip(result.steps, acts, strict=True)
    ]
    why_not = LEFT_OUT.get(plan.request.kind, "")
    for step in result.dropped:
        entry = {"target": step.target, "words": step.words, "outcome": "left out", "act": None}
        steps.append({**entry, "error": why_not})
    return _data(port, plan, steps, carried_out=True)


def _data(
    port: SchedulerPort, plan: Plan, steps: list[dict[str, Any]], *, carried_out: bool
) -> dict[str, Any]:
    return {
        "cluster": port.cluster.name,
        "kind": plan.request.kind.value,
        "plan": plan.fingerprint,
        "carried_out": carried_out,
        "steps": steps,
        "notes": list(plan.notes),
    }
