"""What an operator does to a job of a scheduler: cancel it, hold what waits beside it, release that again."""

from __future__ import annotations

import time
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from billing.models import RatedJob
from clusters.models import ActKind, Cluster, UsageRecord
from portal.core.tenants.access import Right
from portal.web import acts
from portal.web.access_decorators import operator_page
from portal.web.acts import Act, ActError, Field, Preview, Values
from portal.web.page_frame import PageFrame

KINDS = {"cancel": ActKind.CANCEL, "hold": ActKind.HOLD, "release": ActKind.RELEASE}


@operator_page("tenants", acts=Right.JOBS)
def act_on_job(
    request: HttpRequest, frame: PageFrame, *, tenant: str, record: int, kind: str
) -> HttpResponse:
    """As the commands `cancel_job`, `hold_jobs` and `release_jobs`: the same plan, the same guard."""
    job = RatedJob.objects.filter(tenant__slug=tenant, record_id=record).first()
    cluster = Cluster.objects.filter(name=job.cluster).first() if job else None
    if job is None or cluster is None or kind not in KINDS:
        raise Http404("no such job")
    act_kind = KINDS[kind]
    plan: Any = None  # the one that was previewed: what came to the queue since is not touched

    def carry_out(values: Values) -> str:
        from clusters import (  # the connectors load 5 MiB that other pages do without
            enforcement_plan,
            job_control,
        )

        with enforcement_plan.open_port(cluster=cluster, clock=_clock) as port:
            done = job_control.carry_out(
                port=port, plan=plan, who=str(request.user), why=values["why"], exactly=True
            )
        if not done.good:
            raise ActError(
                " ".join(one.error for one in done.acts if one.error)
                or _("The change could not be verified. Check again.")
            )
        return " ".join(step.words for step in done.steps)

    def preview(values: Values) -> Preview:
        from clusters import enforcement_plan, job_control

        nonlocal plan
        del values
        with enforcement_plan.open_port(cluster=cluster, clock=_clock) as port:
            job_control.tidy(port=port)
            plan = enforcement_plan.plan(port=port, request=_intent(act_kind, job))
        sentences = [*(step.words for step in plan.steps), *plan.notes]
        return Preview(sentences, key=plan.fingerprint, possible=bool(plan.steps))

    act = Act(
        title=_title(act_kind, job),
        button=_title(act_kind, job),
        lead=cluster.name,
        right=Right.JOBS,
        fields=[Field(name="why", label=_("Reason"), hint=_("Kept in the history."))],
        preview=preview,
        carry_out=carry_out,
        refusals=_refusals(),
        back=reverse("job", args=[tenant, record]),
        back_label=_("Job {number}").format(number=job.job_id),
        in_transaction=False,
    )
    return acts.conduct(request, frame, act)


def addresses(slug: str, job: RatedJob) -> list[tuple[str, str]]:
    """Label and address of what can be done about a job of the tenant."""
    kinds = ["hold", "release"] if job.ended is not None else ["cancel", "hold", "release"]
    return [
        (_title(KINDS[kind], job), reverse("operator_job_act", args=[slug, job.record_id, kind]))
        for kind in kinds
    ]


def _title(kind: ActKind, job: RatedJob) -> str:
    if kind == ActKind.CANCEL:
        return _("Cancel job {number}").format(number=job.job_id)
    whose = _("{user} in {account}").format(user=job.user, account=job.account)
    if kind == ActKind.HOLD:
        return _("Hold the waiting jobs of {whose}").format(whose=whose)
    return _("Release the jobs of {whose}").format(whose=whose)


def _intent(kind: ActKind, job: RatedJob) -> Any:
    from clusters.enforcement_plan import Request

    if kind != ActKind.CANCEL:
        return Request(kind=kind, account=job.account, user=job.user)
    key = UsageRecord.objects.filter(pk=job.record_id).values_list("source_key", flat=True).first() or ""
    number = key.partition("@")[0]
    if not number.isdecimal():
        raise ActError(_("The scheduler knows no number of this job: cancel it there."))
    return Request(kind=kind, job=int(number))


def _refusals() -> tuple[type[Exception], ...]:
    from clusters.connectors.base import ConnectorError
    from clusters.enforcement_plan import LimitError

    return (LimitError, ConnectorError)


def _clock() -> int:
    return int(time.time())
