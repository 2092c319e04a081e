"""Blocked accounts of a cluster with their reasons; blocking and unblocking with a preview, as the commands do."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.models.quota_endings import DRAIN_SOURCE
from clusters import blocks, ending_leave
from clusters.job_prices import set_job_prices
from clusters.models import AccountBlock, ActKind, BlockReason, Cluster, ClusterKind
from clusters.models.acts import OPEN
from portal.core.tenants.access import Right
from portal.web.access_decorators import answer, operator_page
from portal.web.page_frame import PageFrame

if TYPE_CHECKING:
    from clusters import enforcement_plan

SOURCES = {
    blocks.OPERATOR: (gettext_noop("Blocked manually"), gettext_noop("When you unblock it here")),
    "dunning": (
        gettext_noop("Overdue invoice"),
        gettext_noop("When every overdue invoice is paid, credited, written off or paused"),
    ),
    "quota": (
        gettext_noop("Budget used up"),
        gettext_noop("When less is used, the budget is raised or its next period begins"),
    ),
    DRAIN_SOURCE.rstrip(":"): (
        gettext_noop("Budget ends what runs"),
        gettext_noop("When less is used, the budget is raised or its next period begins"),
    ),
}
"""By source of a block its name, and when the block ends."""
OTHER_END = gettext_noop("Automatically, when its cause is gone")
LEAVES = {"allow-ending": True, "refuse-ending": False}
PRICES = {"write-prices": True, "leave-prices": False}
KINDS = {"block": ActKind.BLOCK, "unblock": ActKind.UNBLOCK}


@operator_page("clusters", acts=Right.JOBS)
def account_blocks(request: HttpRequest, frame: PageFrame, *, name: str) -> HttpResponse:
    cluster = Cluster.objects.select_related("connection", "api_server").filter(name=name).first()
    if cluster is None:
        raise Http404
    preview, error = None, ""
    if request.method == "POST" and (leave := LEAVES.get(request.POST.get("act", ""))) is not None:
        if ending_leave.set_ending_leave(cluster=cluster, allowed=leave):
            messages.success(
                request,
                _("Running jobs may be ended on this cluster.")
                if leave
                else _("No running job is ended on this cluster."),
            )
        return redirect("operator_blocks", name)
    if request.method == "POST" and (on := PRICES.get(request.POST.get("act", ""))) is not None:
        if set_job_prices(cluster=cluster, on=on):
            messages.success(
                request, _("Prices are written into jobs.") if on else _("No price is written into jobs.")
            )
        return redirect("operator_blocks", name)
    if request.method == "POST":
        preview, error = _act(request, cluster)
        if preview is None and not error:
            return redirect("operator_blocks", name)
    blocking = bool(error) and request.POST.get("kind") == "block"
    page = {
        "name": name,
        "rows": [_row(block, reasons) for block, reasons in blocks.list_blocks(cluster)],
        "may_act": hasattr(cluster, "connection")
        and (cluster.kind == ClusterKind.SLURM or hasattr(cluster, "api_server")),
        "may_end_jobs": cluster.may_end_jobs,
        "asks_leave": request.GET.get("ending") == "change",
        "job_prices": cluster.job_prices,
        "job_prices_error": cluster.connection.job_prices_error if hasattr(cluster, "connection") else "",
        "asks_prices": request.GET.get("prices") == "change",
        "is_kubernetes": cluster.kind == ClusterKind.PROMETHEUS,
        "may_connect": not hasattr(cluster, "connection") and cluster.kind != ClusterKind.PROMETHEUS,
        "preview": preview,
        "error": error,
        "account": request.POST.get("account", "")[:255] if blocking else "",
        "why": request.POST.get("why", "")[:500] if blocking else "",
        "submits": bool(request.POST.get("submits")) if blocking else False,
    }
    return answer(request, frame, page, whole="operator/blocks.html")


def _act(request: HttpRequest, cluster: Cluster) -> tuple[dict[str, object] | None, str]:
    """The preview, or, once confirmed, none; and why nothing was done, "" where it was."""
    from clusters import enforcement_plan  # the connectors load 5 MiB that other pages do without
    from clusters.connectors.base import ConnectorError
    from portal.sentences import sentence

    form = request.POST
    kind = KINDS.get(form.get("kind", ""))
    account = form.get("account", "").replace("\0", "").strip()[:255]
    if kind is None or not account:
        return None, _("Enter the account to block or unblock.")
    block_request = enforcement_plan.Request(kind=kind, account=account, submits=form.get("submits") == "yes")
    try:
        with enforcement_plan.open_port(cluster=cluster, clock=lambda: int(time.time())) as port:
            if form.get("act") == "confirm":
                return None, _carried_out(request, port, block_request)
            return _preview(cluster, enforcement_plan.plan(port=port, request=block_request), form), ""
    except (enforcement_plan.LimitError, ConnectorError) as error:
        return None, sentence(error)


def _carried_out(
    request: HttpRequest, port: enforcement_plan.SchedulerPort, block_request: enforcement_plan.Request
) -> str:
    """Do it if it is still what was shown; why not, else "". Raises as `carry_out` does."""
    from clusters import enforcement_plan, job_control

    job_control.tidy(port=port)
    plan = enforcement_plan.plan(port=port, request=block_request)
    if plan.fingerprint != request.POST.get("plan"):
        return _("The changes differ from the preview, so nothing was done. Preview again.")
    done = job_control.carry_out(
        port=port, plan=plan, who=str(request.user), why=_why(request.POST), exactly=True
    )
    if not done.good:
        return " ".join(act.error for act in done.acts if act.error) or _(
            "The change could not be verified. Check again."
        )
    messages.success(request, " ".join(step.words for step in done.steps))
    return ""


def _preview(cluster: Cluster, plan: enforcement_plan.Plan, form: QueryDict) -> dict[str, object]:
    request = plan.request
    title = button = _("Block {account}").format(account=request.account)
    if request.kind == ActKind.UNBLOCK:
        rows = blocks.reasons(blocks.current_block(cluster, request.account))
        stays = any(row.source != request.source for row in rows)
        title = _("Remove the manual block of {account}") if stays else _("Unblock {account}")
        title = title.format(account=request.account)
        button = _("Remove manual block") if stays else title
    return {
        "title": f"{title}?" if plan.steps else _("Nothing to do"),
        "sentences": (*(step.words for step in plan.steps), *plan.notes),
        "request": request,
        "why": _why(form),
        "plan": plan.fingerprint if plan.steps else "",
        "button": button,
    }


def _why(form: QueryDict) -> str:
    return form.get("why", "").replace("\0", "").strip()[:500]


def _row(block: AccountBlock, rows: Sequence[BlockReason]) -> dict[str, object]:
    return {
        "account": block.account,
        "user": block.user,
        "changes": blocks.list_changes(block),
        "reasons": [
            (
                row,
                *SOURCES.get(row.source.partition(":")[0], (row.source.capitalize(), OTHER_END)),
                row.placed_by.outcome in OPEN,
            )
            for row in rows
        ],
        "may_unblock": any(row.source == blocks.OPERATOR for row in rows),
    }
