"""Blocked accounts of a cluster with their reasons; blocking and unblocking with a preview, as the commands do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect

from clusters import blocks
from clusters.models import AccountBlock, ActKind, BlockReason, Cluster, ClusterKind
from clusters.models.acts import OPEN
from portal.web import format as say
from portal.web.access_decorators import answer, operator_page
from portal.web.shapes import BlockPreview, BlockRow, BlocksPage, ReasonRow, Shell

if TYPE_CHECKING:
    from clusters import enforcement_plan

UTC_ZONE = ZoneInfo("UTC")
SOURCES = {
    blocks.OPERATOR: ("Blocked by hand", "When it is unblocked here"),
    "dunning": ("Unpaid invoice", "When nothing overdue demands it: paid, credited, written off or paused"),
}
STARTS, SUBMITS = "GPU jobs do not start", "No job can be submitted"
KINDS = {"block": ActKind.BLOCK, "unblock": ActKind.UNBLOCK}


@operator_page("clusters", acts=True)
def account_blocks(request: HttpRequest, shell: Shell, *, name: str) -> HttpResponse:
    cluster = Cluster.objects.select_related("connection").filter(name=name).first()
    if cluster is None:
        raise Http404
    preview, error = None, ""
    if request.method == "POST":
        preview, error = _act(request, cluster)
        if preview is None and not error:
            return redirect("operator_blocks", name)
    blocking = bool(error) and request.POST.get("kind") == "block"
    page = BlocksPage(
        name=name,
        rows=tuple(_row(block) for block in blocks.with_reasons(cluster)),
        may_act=cluster.kind == ClusterKind.SLURM and hasattr(cluster, "connection"),
        may_connect=not hasattr(cluster, "connection") and cluster.kind != ClusterKind.PROMETHEUS,
        preview=preview,
        error=error,
        account=request.POST.get("account", "")[:255] if blocking else "",
        why=request.POST.get("why", "")[:500] if blocking else "",
        submits=bool(request.POST.get("submits")) if blocking else False,
    )
    return answer(request, shell, page, whole="operator/blocks.html")


def _act(request: HttpRequest, cluster: Cluster) -> tuple[BlockPreview | None, str]:
    """What would be done, or, once confirmed, that it was done; else why not."""
    from clusters import enforcement_plan  # the connectors load 5 MiB that other pages do without
    from clusters.connectors.base import ConnectorError

    form = request.POST
    kind = KINDS.get(form.get("kind", ""))
    account = form.get("account", "").replace("\0", "").strip()[:255]
    if kind is None or not account:
        return None, "Name the account to block or unblock."
    block_request = enforcement_plan.Request(kind=kind, account=account, submits=form.get("submits") == "yes")
    try:
        with enforcement_plan.open_port(cluster=cluster, clock=lambda: int(time.time())) as port:
            if form.get("act") == "confirm":
                return None, _carried_out(request, port, block_request)
            return _preview(cluster, enforcement_plan.plan(port=port, request=block_request), form), ""
    except (enforcement_plan.LimitError, ConnectorError) as error:
        return None, str(error)


def _carried_out(
    request: HttpRequest, port: enforcement_plan.SchedulerPort, block_request: enforcement_plan.Request
) -> str:
    """Do it if it is still what was shown; why not, else "". Raises as `carry_out` does."""
    from clusters import enforcement_plan, job_control

    job_control.tidy(port=port)
    plan = enforcement_plan.plan(port=port, request=block_request)
    if plan.fingerprint != request.POST.get("plan"):
        return "What would be done now differs from the preview, so nothing was done: preview it again."
    done = job_control.carry_out(
        port=port, plan=plan, who=str(request.user), why=_why(request.POST), exactly=True
    )
    if not done.good:
        return " ".join(act.error for act in done.acts if act.error) or "It was not read back: look again."
    messages.success(request, " ".join(step.words for step in done.steps))
    return ""


def _preview(cluster: Cluster, plan: enforcement_plan.Plan, form: QueryDict) -> BlockPreview:
    request = plan.request
    title = button = f"Block {request.account}"
    if request.kind == ActKind.UNBLOCK:
        rows = blocks.reasons(blocks.current_block(cluster, request.account))
        stays = any(row.source != request.source for row in rows)
        title = f"Take back the block by hand of {request.account}" if stays else f"Unblock {request.account}"
        button = "Take back" if stays else title
    return BlockPreview(
        title=f"{title}?" if plan.steps else "Nothing to do",
        sentences=(*(step.words for step in plan.steps), *plan.notes),
        kind=request.kind.value,
        account=request.account,
        submits=request.submits,
        why=_why(form),
        plan=plan.fingerprint if plan.steps else "",
        button=button,
    )


def _why(form: QueryDict) -> str:
    return form.get("why", "").replace("\0", "").strip()[:500]


def _row(block: AccountBlock) -> BlockRow:
    rows: list[BlockReason] = block.standing  # type: ignore[attr-defined]  # of `with_reasons`
    return BlockRow(
        account=block.account,
        reasons=tuple(_reason(row) for row in rows),
        may_unblock=any(row.source == blocks.OPERATOR for row in rows),
    )


def _reason(row: BlockReason) -> ReasonRow:
    label, ends = SOURCES.get(row.source, (row.source.capitalize(), "By itself, when its cause is gone"))
    act = row.placed_by
    return ReasonRow(
        source=label,
        why=act.why,
        by=act.who,
        since=say.moment(act.intended_at, UTC_ZONE),
        effect=SUBMITS if row.submits else STARTS,
        ends=ends,
        unsettled=act.outcome in OPEN,
    )
