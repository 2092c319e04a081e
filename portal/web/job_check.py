"""The page that asks whether a job may run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import HttpResponse
from django.utils.translation import gettext as _

from billing.admission.check import JobCheck, Need, check_job
from billing.admission.wording import ask_text, limit_text, other_text, refusal_text
from billing.queries.jobs import shapes
from billing.simulation.quotes import QuoteError
from portal.core.tenants.access import Action
from portal.core.tenants.scope import acting_scope
from portal.ops import quotes
from portal.sentences import sentence
from portal.web.access_decorators import TenantRequest, answer, tenant_page
from portal.web.form_input import options

LONGEST = 100  # characters of a value
NAMES = ("gpus", "gpu_model", "hours", "cluster", "account", "user", "queue", "qos")


@dataclass(frozen=True, kw_only=True)
class NeedRow:
    """A budget that the job does not fit into, as the page shows it."""

    text: str
    limit: str  # the longest that fits; "" for none
    resets_at: datetime | None
    ask: str
    refuses: bool


@dataclass(frozen=True, kw_only=True)
class CheckAnswer:
    """Yes, or no and why."""

    may_run: bool
    account: str
    limit: str
    counted: str  # names of the budgets that count the job; "" for none
    rows: Sequence[NeedRow]
    unpriced: str


@tenant_page(Action.READ_ALL, area="budgets")
def job_check(request: TenantRequest) -> HttpResponse:
    """The fields, and the answer where something is asked; nothing is kept."""
    fields = {name: request.GET.get(name, "").replace("\0", "").strip()[:LONGEST] for name in NAMES}
    check, error = None, ""
    if any(fields.values()):
        try:
            check = _answer(_check(request, fields))
        except QuoteError as refusal:
            error = sentence(refusal)
    clusters = [(mark.cluster, mark.cluster) for mark in request.marks]
    models = () if any(fields.values()) else shapes(request.tenant).gpu_models
    page = {
        "fields": _fields(fields, models, clusters),
        "check": check,
        "error": error,
    }
    return answer(request, request.frame, page, whole="tenant/job_check.html")


def _check(request: TenantRequest, fields: Mapping[str, str]) -> JobCheck:
    now = request.moment.replace(microsecond=0)
    job = quotes.job_of(fields, started=now)
    cluster = fields["cluster"] or next((mark.cluster for mark in request.marks), "")
    with acting_scope(request.tenant):
        return check_job(tenant=request.tenant, cluster=cluster, job=job, now=now)


def _answer(check: JobCheck) -> CheckAnswer:
    informing = [need for need in check.needs if not need.fits and not need.refuses]
    return CheckAnswer(
        may_run=check.may_run,
        account=check.account,
        limit=limit_text(check.longest) if check.longest else "",
        counted=", ".join(need.status.quota.name for need in check.needs),
        rows=[_row(need) for need in (*check.refusing, *informing)],
        unpriced=", ".join(check.unpriced),
    )


def _row(need: Need) -> NeedRow:
    return NeedRow(
        text=refusal_text(need) if need.refuses else other_text(need),
        limit=limit_text(need.longest) if need.longest else "",
        resets_at=need.status.resets_at,
        ask=ask_text(need.status.quota),
        refuses=need.refuses,
    )


def _fields(
    values: Mapping[str, str], models: Sequence[str], clusters: Sequence[tuple[str, str]]
) -> list[dict[str, Any]]:
    first = not any(values.values())

    def one(name: str, label: str, hint: str = "", begin: str = "", **more: Any) -> dict[str, Any]:
        value = begin if first else values[name]
        return {"name": name, "label": label, "hint": hint, "value": value, **more}

    fields = [
        one("gpus", _("GPUs"), begin="1", numeric=True),
        one("gpu_model", _("GPU model"), begin=next(iter(models), "")),
        one("hours", _("Time limit, hours"), begin="1", numeric=True, required=True),
        one("account", _("Account"), _("Blank = any of yours")),
        one("user", _("User"), _("Of the scheduler")),
        one("queue", _("Queue")),
        one("qos", _("QOS")),
    ]
    if len(clusters) > 1:
        fields.insert(3, one("cluster", _("Cluster"), choices=options(clusters, values["cluster"])))
    return fields
