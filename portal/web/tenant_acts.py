"""A tenant suspended and resumed by an operator's hand; what its other acts share."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from clusters.models import ActKind
from portal.core.tenants.access import Right
from portal.core.tenants.models import Tenant
from portal.web import acts
from portal.web.access_decorators import operator_page
from portal.web.acts import Act, ActError, Field, Preview, Values
from portal.web.page_frame import PageFrame


@operator_page("tenants", acts=Right.JOBS)
def suspend_tenant(request: HttpRequest, frame: PageFrame, *, tenant: str) -> HttpResponse:
    """Block each of its accounts by hand."""
    row = tenant_of(tenant)
    submits = Field(name="submits", label=_("Reject all new jobs too, even without GPUs"), kind="check")
    why = Field(
        name="why", label=_("Reason"), required=True, hint=_("Shown with each block and in the history.")
    )
    act = _block_act(request, row, ActKind.BLOCK, _("Suspend {tenant}"), [submits, why])
    return acts.conduct(request, frame, act)


@operator_page("tenants", acts=Right.JOBS)
def resume_tenant(request: HttpRequest, frame: PageFrame, *, tenant: str) -> HttpResponse:
    """Take the manual block of each of its accounts back."""
    row = tenant_of(tenant)
    why = Field(name="why", label=_("Reason"), hint=_("Kept in the history."))
    act = _block_act(request, row, ActKind.UNBLOCK, _("Resume {tenant}"), [why])
    return acts.conduct(request, frame, act)


def tenant_of(slug: str) -> Tenant:
    """Raises Http404."""
    row = Tenant.objects.filter(slug=slug).first()
    if row is None:
        raise Http404("no such tenant")
    return row


def _block_act(
    request: HttpRequest, tenant: Tenant, kind: ActKind, title: str, fields: Sequence[Field]
) -> Act:
    now = datetime.now(UTC)
    planned: Any = None  # what was previewed, and nothing else, is carried out

    def plan(values: Values) -> Any:
        from billing.dunning import (
            manual_suspensions,  # the connectors load 5 MiB that other pages do without
        )

        if kind == ActKind.BLOCK and not values["why"]:
            raise ActError(_("Give a reason: it is shown with each block."))
        submits = values.get("submits") == "yes"
        return manual_suspensions.plan_suspension(
            tenant=tenant, kind=kind, submits=submits, moment=now, opens=_port
        )

    def preview(values: Values) -> Preview:
        nonlocal planned
        planned = plan(values)
        sentences = planned.sentences or [_("The tenant owns no account now.")]
        if kind == ActKind.BLOCK and planned.has_steps:
            sentences.append(
                _("Accounts that it is given later are not blocked by this. Running jobs go on.")
            )
        return Preview(sentences, key=planned.fingerprint, possible=planned.has_steps)

    def carry_out(values: Values) -> str:
        from billing.dunning import manual_suspensions

        troubles = manual_suspensions.carry_out(
            plan=planned, who=str(request.user), why=values["why"], opens=_port
        )
        if troubles:
            return _("Done in part: {troubles}").format(troubles=" ".join(troubles))
        done = _("{tenant} is suspended.") if kind == ActKind.BLOCK else _("{tenant} is resumed.")
        return done.format(tenant=tenant.name)

    button = _("Suspend") if kind == ActKind.BLOCK else _("Resume")
    return tenant_act_of(
        tenant, title, button, Right.JOBS, fields, preview, carry_out, (), in_transaction=False
    )


def _port(cluster: Any) -> Any:
    from clusters import enforcement_plan

    return enforcement_plan.open_port(cluster=cluster, clock=lambda: int(time.time()))


def tenant_act_of(
    tenant: Tenant,
    title: str,
    button: str,
    right: Right,
    fields: Sequence[Field],
    preview: Callable[[Values], Preview | Sequence[str]],
    carry_out: Callable[[Values], str],
    refusals: tuple[type[Exception], ...],
    needs_proof: bool = False,
    in_transaction: bool = True,
) -> Act:
    return Act(
        title=title.format(tenant=tenant.name),
        button=button,
        right=right,
        fields=fields,
        preview=preview,
        carry_out=carry_out,
        refusals=refusals,
        back=reverse("operator_tenant", args=[tenant.slug]),
        back_label=tenant.name,
        needs_proof=needs_proof,
        in_transaction=in_transaction,
    )
