"""Idle jobs: operators set waste rules after a preview of the jobs they meet now; tenants see theirs, and choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from billing.models import (
    WasteAction,
    WasteChoiceKind,
    WasteClosed,
    WasteFinding,
    WasteKind,
    WasteRule,
    WasteState,
)
from billing.rules.money import Money
from billing.waste import idle_jobs, rules, savings
from billing.waste.rules import WasteRuleError, columns_of, holds_for, load_choices
from billing.waste.savings import Saving
from clusters.models import Cluster, ClusterKind
from portal.core.audit import acting_as
from portal.core.tenants.access import Action, Right
from portal.core.tenants.models import Tenant
from portal.sentences import sentence
from portal.web import waste_form
from portal.web.access_decorators import TenantRequest, answer, operator_page, tenant_act, tenant_page
from portal.web.page_frame import PageFrame

SHOWN = 100
"""Jobs that a page lists, the newest."""


@dataclass(frozen=True, kw_only=True)
class RuleRow:
    """A rule as tables show it. `holds`: for the tenant that looks; `offers`: what its owners may do instead."""

    name: str
    looks: str
    does: str
    excludes: str
    choice: str
    badge: str
    state: str
    holds: bool = True
    offers: str = ""


@dataclass(frozen=True, kw_only=True)
class FindingRow:
    tenant: str
    rule: str
    job: str
    name: str
    record: int
    user: str
    place: str
    held: str
    since: datetime
    hour_cost: Money | None
    idle_cost: Money | None
    saved_cost: Money | None
    state: str
    badge: str
    due_at: datetime | None
    error: str


@dataclass(frozen=True, kw_only=True)
class SavingRow:
    rule: str
    title: str
    jobs: str
    idle_seconds: Fraction
    idle_cost: Money | None
    saved_seconds: Fraction | None
    saved_cost: Money | None
    again: str


@operator_page("reports", acts=Right.JOBS)
def operator_idle_jobs(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    if request.method == "POST":
        _change(request)
        return redirect("operator_idle_jobs")
    moment = datetime.now(UTC).replace(microsecond=0)
    fields = waste_form.typed_in(request.GET)
    listed = list(rules.list_rules())
    preview, error = None, ""
    if request.GET.get("act") == "preview":
        try:
            preview = _preview(fields, moment)
        except (WasteRuleError, ValueError) as refusal:
            error = sentence(refusal)
    by_name = {row.name: row for row in listed}
    edited = by_name.get(request.GET.get("edit", ""))
    page = {
        "rules": [_rule_row(row) for row in listed],
        "preview": preview,
        "error": error,
        "fields": waste_form.form(waste_form.values_of(edited) if edited else fields),
        "hidden": [(name, value) for name, value in fields.items() if value],
        "ending": by_name.get(request.GET.get("end", "")),
        "edited": edited,
        "savings": _saving_rows(savings.load_savings(moment=moment, since=moment - savings.SPAN)),
        "findings": _finding_rows(
            savings.list_findings(since=moment - savings.SPAN, limit=SHOWN), moment, inner=True
        ),
        "refusing": _refusing_clusters() if any(_ends(row) for row in listed) else [],
        "shown": SHOWN,
    }
    return answer(request, frame, page, whole="operator/idle_jobs.html")


@tenant_page(Action.READ_ALL, area="efficiency")
def idle_jobs_page(request: TenantRequest) -> HttpResponse:
    """Which rules hold for the tenant's jobs, what they found and did."""
    moment = datetime.now(UTC).replace(microsecond=0)
    since = moment - savings.SPAN
    clusters = {mark.cluster for mark in request.marks}
    listed = [row for row in rules.list_rules() if not row.cluster or row.cluster in clusters]
    choices = load_choices(listed)
    manages = Action.MANAGE in request.may
    page = {
        "rules": [_tenant_rule_row(row, request.tenant, choices, manages=manages) for row in listed],
        "savings": _saving_rows(savings.load_savings(moment=moment, since=since, tenant=request.tenant)),
        "findings": _finding_rows(
            savings.list_findings(since=since, tenant=request.tenant, limit=SHOWN), moment, inner=False
        ),
        "shown": SHOWN,
    }
    return answer(request, request.frame, page, whole="tenant/idle_jobs.html")


@tenant_act(Action.MANAGE)
def choose_waste_rule(request: HttpRequest, tenant: Tenant) -> HttpResponse:
    """Opt in or out of a rule that leaves it to tenants."""
    name, takes_part = request.POST.get("name", "").replace("\0", "")[:50], request.POST.get("act") == "in"
    try:
        if rules.choose(
            tenant=tenant, name=name, takes_part=takes_part, moment=datetime.now(UTC).replace(microsecond=0)
        ):
            text = (
                _("Rule %(name)s now applies to your jobs.")
                if takes_part
                else _("Rule %(name)s no longer applies to your jobs.")
            )
            messages.success(request, text % {"name": name})
    except WasteRuleError as refusal:
        messages.error(request, sentence(refusal))
    return redirect("idle_jobs", tenant.slug)


def _change(request: HttpRequest) -> None:
    """Save or end one; what is refused says why, and nothing is kept."""
    fields, moment = waste_form.typed_in(request.POST), datetime.now(UTC).replace(microsecond=0)
    try:
        with acting_as(through="waste"):
            if request.POST.get("act") == "end":
                if rules.end_rule(name=fields["name"], moment=moment):
                    messages.success(request, _("Rule %(name)s is ended.") % {"name": fields["name"]})
                return
            row = waste_form.entry_of(fields).write(moment=moment)
        messages.success(request, _("Rule %(name)s is saved.") % {"name": row.name})
    except (WasteRuleError, ValueError) as refusal:
        messages.error(request, sentence(refusal))


def _preview(fields: Mapping[str, str], moment: datetime) -> dict[str, Any]:
    """Which running jobs it would meet, saved now."""
    entry = waste_form.entry_of(fields)
    rules.check_name(entry.name)
    terms = entry.terms()
    terms.check()
    before = rules.list_rules().filter(name=entry.name).first()
    supposed = WasteRule(pk=before.pk if before else None, name=entry.name, **columns_of(terms))
    met = idle_jobs.load_idle([supposed], moment=moment)
    held = idle_jobs.without_excluded(met, [supposed])
    costs = idle_jobs.load_hour_costs({job.record for job in held})
    tenants = dict(Tenant.objects.filter(pk__in={job.tenant for job in held}).values_list("pk", "slug"))
    return {
        "name": entry.name,
        "is_new": before is None,
        "rule": _rule_row(supposed),
        "excluded": len(met) - len(held),
        "count": len(held),
        "more": max(len(held) - SHOWN, 0),
        "ends": _ends(supposed),
        "grace": supposed.grace_minutes,
        "jobs": [
            {
                "tenant": tenants.get(job.tenant, ""),
                "job": job.job_id,
                "name": job.name,
                "user": job.user,
                "place": f"{job.cluster}/{job.account}",
                "held": _held(job.gpus, job.gpu_model),
                "since": job.since,
                "hour_cost": costs.get(job.record),
            }
            for job in held[:SHOWN]
        ],
    }


def _ends(row: WasteRule) -> bool:
    return row.action != WasteAction.NOTIFY and not row.watch


def _refusing_clusters() -> list[str]:
    """Clusters of Slurm on which the operator lets no job be ended."""
    rows = Cluster.objects.filter(kind=ClusterKind.SLURM, may_end_jobs=False)
    return list(rows.order_by("name").values_list("name", flat=True))


def _rule_row(row: WasteRule, **more: Any) -> RuleRow:
    kinds = {
        WasteKind.IDLE: _("No use for {hours} h"),
        WasteKind.TAIL: _("Worked, then no use for {hours} h"),
        WasteKind.UNUSED: _("No use since the start, for at least {hours} h"),
    }
    does = {
        WasteAction.NOTIFY: _("Notifies"),
        WasteAction.REQUEUE: _("Requeues, held, after {minutes} minutes"),
        WasteAction.CANCEL: _("Cancels after {minutes} minutes"),
    }
    choices = {
        WasteChoiceKind.NONE: _("Applies to all tenants"),
        WasteChoiceKind.OPT_OUT: _("Tenants may opt out"),
        WasteChoiceKind.OPT_IN: _("Only tenants that opt in"),
    }
    excluded = [
        *(f"{_('queue')} {name}" for name in row.except_queues),
        *(f"{_('QOS')} {name}" for name in row.except_qoses),
        *(f"{_('name')} {name}" for name in row.except_names),
    ]
    place = row.cluster or _("all clusters")
    return RuleRow(
        name=row.name,
        looks=f"{kinds[WasteKind(row.kind)].format(hours=row.hours)}, {place}",
        does=does[WasteAction(row.action)].format(minutes=row.grace_minutes),
        excludes=", ".join(excluded),
        choice=choices[WasteChoiceKind(row.choice)],
        badge="ct-wait" if row.watch else "ct-ok",
        state=_("Watched") if row.watch else _("Active"),
        **more,
    )


def _tenant_rule_row(
    row: WasteRule, tenant: Tenant, choices: dict[tuple[int, int], bool], *, manages: bool
) -> RuleRow:
    holds = holds_for(row, tenant.pk, choices)
    offers = "" if row.choice == WasteChoiceKind.NONE or not manages else "out" if holds else "in"
    return _rule_row(row, holds=holds, offers=offers)


def _held(gpus: int, model: str) -> str:
    return f"{gpus} × {model or 'GPU'}"


def _finding_rows(rows: Sequence[WasteFinding], moment: datetime, *, inner: bool) -> list[FindingRow]:
    return [
        FindingRow(
            tenant=row.tenant.slug,
            rule=row.rule.name,
            job=row.job_id,
            name=row.job_name,
            record=row.record_id,
            user=row.user,
            place=f"{row.cluster}/{row.account}",
            held=_held(row.gpus, row.gpu_model),
            since=row.idle_since,
            hour_cost=None if row.hour_cost is None else Money(Fraction(row.hour_cost), row.currency),
            idle_cost=savings.idle_cost(row, moment),
            saved_cost=savings.saved_cost(row, moment),
            state=_state_text(row),
            badge=_badge(row),
            due_at=row.due_at if row.closed_at is None else None,
            error=row.error if inner else "",
        )
        for row in rows
    ]


def _state_text(row: WasteFinding) -> str:
    if row.closed_for and row.closed_for != WasteClosed.ENDED:
        closed = {
            WasteClosed.BUSY: _("Worked again"),
            WasteClosed.OVER: _("Ended on its own"),
            WasteClosed.UNKNOWN: _("Telemetry is missing"),
            WasteClosed.CHANGED: _("Rule changed"),
        }
        return closed[WasteClosed(row.closed_for)]
    states = {
        WasteState.NOTIFIED: _("Notified"),
        WasteState.WATCHED: _("Would be ended"),
        WasteState.ANNOUNCED: _("Will be ended"),
        WasteState.ENDED: _("Cancelled"),
        WasteState.REQUEUED: _("Requeued, held"),
    }
    return states[WasteState(row.state)]


def _badge(row: WasteFinding) -> str:
    if row.state in savings.ENDED:
        return "ct-late"
    return "ct-ok" if row.closed_at is not None else "ct-wait"


def _saving_rows(rows: Sequence[Saving]) -> list[SavingRow]:
    names = dict(WasteRule.objects.filter(pk__in={one.rule for one in rows}).values_list("pk", "name"))
    titles = {
        WasteState.NOTIFIED: _("Notified"),
        WasteState.WATCHED: _("Would have been ended"),
        WasteState.ANNOUNCED: _("Announced"),
        WasteState.ENDED: _("Cancelled"),
        WasteState.REQUEUED: _("Requeued, held"),
    }
    return [
        SavingRow(
            rule=names[one.rule],
            title=titles[one.state],
            jobs=ngettext("%(count)d job", "%(count)d jobs", one.jobs) % {"count": one.jobs},
            idle_seconds=one.idle_seconds,
            idle_cost=one.idle_cost,
            saved_seconds=one.saved_seconds if one.is_real or one.state == WasteState.WATCHED else None,
            saved_cost=one.saved_cost if one.is_real or one.state == WasteState.WATCHED else None,
            again=ngettext(
                "%(count)d worked again after that", "%(count)d worked again after that", one.again
            )
            % {"count": one.again}
            if one.again
            else "",
        )
        for one in rows
    ]
