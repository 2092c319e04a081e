"""Service credits: operators set rules on jobs whose hardware failed, after a preview of those they would have met."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from billing.models import CreditedPart, CreditState, FailureRule, ServiceCredit
from billing.rules.money import Money
from billing.service_credits import failures, listing, rules
from billing.service_credits.rules import HARDWARE_CAUSES, MOST, FailureRuleError, columns_of
from clusters.models import Cluster, GpuError
from portal.config_file.failures import FailureRuleEntry
from portal.config_file.toml_table import ConfigError
from portal.core.audit import acting_as
from portal.core.tenants.access import Right
from portal.core.tenants.models import Tenant
from portal.ops.service_credits import amount_of
from portal.sentences import sentence
from portal.web.access_decorators import answer, operator_page
from portal.web.entry_form import entry_of, number, read_fields, values_of
from portal.web.form_input import options
from portal.web.page_frame import PageFrame

NAMES = ("name", "cluster", "xids", "memory", "states", "part", "percent", "watch")
ACTS = "no"  # of `watch`
COUNTS = "yes"  # of `memory`
LONGEST = MOST * 260  # characters of a field: no state is cut off


@dataclass(frozen=True, kw_only=True)
class RuleRow:
    name: str
    looks: str
    does: str
    badge: str
    state: str


@dataclass(frozen=True, kw_only=True)
class CreditRow:
    tenant: str
    job: str
    name: str
    record: int
    user: str
    cause: str
    place: str  # GPU and node
    failed_at: datetime
    rule: str
    amount: Money | None
    state: str
    badge: str
    error: str


@dataclass(frozen=True, kw_only=True)
class ErrorRow:
    cause: str
    kind: str
    badge: str
    gpu: str
    place: str
    at: datetime
    jobs: str


@operator_page("reports", acts=Right.CREDITS)
def operator_service_credits(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    if request.method == "POST":
        _change(request)
        return redirect("operator_service_credits")
    moment = datetime.now(UTC).replace(microsecond=0)
    fields = read_fields(request.GET, NAMES, longest=LONGEST)
    listed = list(rules.list_rules())
    preview, error = None, ""
    if request.GET.get("act") == "preview":
        try:
            preview = _preview(fields, moment)
        except (FailureRuleError, ConfigError) as refusal:
            error = sentence(refusal)
    by_name = {row.name: row for row in listed}
    edited, since = by_name.get(request.GET.get("edit", "")), moment - listing.SPAN
    page = {
        "rules": [_rule_row(row) for row in listed],
        "preview": preview,
        "error": error,
        "fields": _form(_values_of(edited) if edited else fields),
        "hidden": [(name, value) for name, value in fields.items() if value],
        "ending": by_name.get(request.GET.get("end", "")),
        "edited": edited,
        "credits": [_credit_row(row) for row in listing.list_credits(since=since)],
        "errors": [_error_row(row) for row in listing.list_gpu_errors(since=since)],
        "troubles": [f"{row.cluster.name}: {row.last_error or row.notes}" for row in listing.list_troubles()],
        "shown": listing.LISTED,
    }
    return answer(request, frame, page, whole="operator/service_credits.html")


def _change(request: HttpRequest) -> None:
    """Save or end one; what is refused says why, and nothing is kept."""
    fields, moment = (
        read_fields(request.POST, NAMES, longest=LONGEST),
        datetime.now(UTC).replace(microsecond=0),
    )
    try:
        with acting_as(through="service credits"):
            if request.POST.get("act") == "end":
                if rules.end_rule(name=fields["name"], moment=moment):
                    messages.success(request, _("Rule %(name)s is ended.") % {"name": fields["name"]})
                else:
                    messages.info(request, _("There is no such rule any more."))
            elif request.POST.get("act") == "save":
                row = _entry_of(fields).write(moment=moment)
                messages.success(request, _("Rule %(name)s is saved.") % {"name": row.name})
    except (FailureRuleError, ConfigError) as refusal:
        messages.error(request, sentence(refusal))


def _preview(fields: Mapping[str, str], moment: datetime) -> dict[str, Any]:
    """Which jobs of the last days it would have met, as if nothing was credited for them."""
    entry = _entry_of(fields)
    rules.check_name(entry.name)
    terms = entry.terms()
    terms.check()
    supposed = FailureRule(name=entry.name, **columns_of(terms) | {"watch": True})
    runs = failures.load_failed(supposed, since=moment - listing.SPAN, until=moment)
    slugs = dict(Tenant.objects.filter(pk__in={run.tenant for run in runs}).values_list("pk", "slug"))
    shown = FailureRule(name=entry.name, **columns_of(terms))
    return {
        "name": entry.name,
        "is_new": not rules.list_rules().filter(name=entry.name).exists(),
        "rule": _rule_row(shown),
        "acts": not entry.watch,
        "count": len(runs),
        "more": max(len(runs) - listing.LISTED, 0),
        "runs": [(slugs.get(run.tenant, ""), run) for run in runs[: listing.LISTED]],
    }


def _entry_of(fields: Mapping[str, str]) -> FailureRuleEntry:
    """Raises ConfigError."""
    values = values_of(fields, ("name", "cluster", "part"), ("percent",))
    if xids := _parts(fields["xids"]):
        values["xids"] = [number(text) for text in xids]
    if states := _parts(fields["states"]):
        values["states"] = states
    return entry_of(
        FailureRuleEntry,
        values | {"memory": fields["memory"] == COUNTS, "watch": fields["watch"] != ACTS},
        "failure_rule",
    )


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _values_of(row: FailureRule) -> dict[str, str]:
    """What the form shows of a rule."""
    return {
        "name": row.name,
        "cluster": row.cluster,
        "xids": ", ".join(map(str, row.xids)),
        "memory": COUNTS if row.memory else "",
        "states": ", ".join(row.states),
        "part": row.part,
        "percent": str(row.percent),
        "watch": "" if row.watch else ACTS,
    }


def _form(values: Mapping[str, str]) -> list[dict[str, Any]]:
    def one(name: str, label: str, hint: str = "", **more: Any) -> dict[str, Any]:
        return {"name": name, "label": label, "hint": hint, "value": values[name], **more}

    parts = [
        (CreditedPart.RUN.value, _("The whole run")),
        (CreditedPart.REST.value, _("From the failure to its end")),
    ]
    memory = [
        ("", _("By their XIDs alone")),
        (COUNTS, _("By their counters, too")),
    ]
    modes = [
        ("", _("Watch only")),
        (ACTS, _("Credit on the next invoice")),
    ]
    clusters = [("", _("All clusters")), *((name, name) for name in _cluster_names(values["cluster"]))]
    return [
        one(
            "name",
            _("Name"),
            _("Lower-case letters, digits and hyphens, such as failed-hardware"),
            required=True,
        ),
        one("cluster", _("Cluster"), choices=options(clusters, values["cluster"])),
        one(
            "xids", _("XIDs"), _("Separated by commas. No XID, state or counter = all errors of the hardware")
        ),
        one(
            "memory",
            _("Errors of the memory"),
            _("Counters of what ECC could not correct, and of rows replaced for it"),
            choices=options(memory, values["memory"]),
        ),
        one("states", _("States"), _("Separated by commas, such as NODE_FAIL")),
        one("part", _("What is credited"), choices=options(parts, values["part"])),
        one("percent", _("Percent"), _("Of what that was billed; blank = 100"), numeric=True),
        one("watch", _("Mode"), choices=options(modes, values["watch"])),
    ]


def _cluster_names(chosen: str) -> list[str]:
    """Those that there are, and the one that the form shows, should it be gone."""
    return sorted({*Cluster.objects.values_list("name", flat=True), *filter(None, [chosen])})


def _rule_row(row: FailureRule) -> RuleRow:
    xids = _("XID %(xids)s") % {"xids": ", ".join(map(str, row.xids))} if row.xids else ""
    memory = _("errors of the memory") if row.memory else ""
    parts = {
        CreditedPart.RUN: _("the whole run"),
        CreditedPart.REST: _("the time from the failure to the end"),
    }
    return RuleRow(
        name=row.name,
        looks="; ".join(
            filter(None, (xids, memory, ", ".join(row.states), row.cluster or _("all clusters")))
        ),
        does=_("Credits {percent} % of {part}").format(
            percent=row.percent, part=parts[CreditedPart(row.part)]
        ),
        badge="ct-wait" if row.watch else "ct-ok",
        state=_("Watched") if row.watch else _("Active"),
    )


def _credit_row(row: ServiceCredit) -> CreditRow:
    removed = row.state == CreditState.CREDITED and row.line_id is None
    badges = {CreditState.CREDITED: "ct-ok", CreditState.NOTHING: "ct-ok", CreditState.BY_HAND: "ct-late"}
    return CreditRow(
        tenant=row.tenant.slug,
        job=row.job_id,
        name=row.job_name,
        record=row.record_id,
        user=row.user,
        cause=row.cause,
        place=", ".join(filter(None, (row.gpu, row.node, row.cluster))),
        failed_at=row.failed_at,
        rule=row.failure_rule.name,
        amount=amount_of(row),
        state=_("Removed from the invoice") if removed else row.get_state_display(),
        badge=badges.get(CreditState(row.state), "ct-wait"),
        error=row.error,
    )


def _error_row(row: GpuError) -> ErrorRow:
    hardware = row.cause in HARDWARE_CAUSES
    return ErrorRow(
        cause=row.cause,
        kind=_("Hardware") if hardware else _("Other"),
        badge="ct-late" if hardware else "ct-wait",
        gpu=f"{row.uuid}/{row.gpu_slice}" if row.gpu_slice else row.uuid,
        place=", ".join(filter(None, (row.node, row.cluster.name))),
        at=row.at,
        jobs=", ".join(row.jobs),
    )
