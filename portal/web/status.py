"""How old what a tenant sees is: of each of its clusters, now and over the last 30 days."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from django.http import HttpResponse
from django.utils.translation import gettext as _

from clusters.freshness import SECOND, Delay, Freshness, freshness
from clusters.watermark import is_ahead
from portal.core.tenants.access import Action
from portal.core.tenants.scope import acting_scope
from portal.web import format as say
from portal.web.access_decorators import TenantRequest, answer, tenant_page
from portal.web.badges import Badge

LISTED = 20  # delays, of all clusters


@dataclass(frozen=True, kw_only=True)
class ClusterRow:
    """One cluster; times are empty where there is none."""

    name: str
    badge: Badge
    complete_through: datetime | None
    used_through: datetime | None
    arrives: str
    up_to_date: str  # "99.7 %"
    since: datetime | None  # of which that is a part


@dataclass(frozen=True, kw_only=True)
class DelayRow:
    cluster: str
    delay: Delay
    lasted: str
    goes_on: bool


@tenant_page(Action.READ, area="status")
def status(request: TenantRequest) -> HttpResponse:
    with acting_scope(request.tenant):
        read = freshness(request.marks, moment=request.moment)
    late = [one.cluster for one in read if one.is_late(request.moment) and not one.paused]
    ahead = [one.cluster for one in read if is_ahead(one.complete_through, moment=request.moment)]
    delays = _delays(read, request.moment)
    page = {
        "rows": [_row(one, request.moment) for one in read],
        "on_schedule": any(one.every is not None for one in read),
        "late": late,
        "paused": [one.cluster for one in read if one.paused],
        "ahead": ahead,
        "delays": delays[:LISTED],
        "more": max(len(delays) - LISTED, 0),
        "has_use": any(one.used_through for one in read),
    }
    return answer(request, request.frame, page, whole="tenant/status.html")


def _row(one: Freshness, moment: datetime) -> ClusterRow:
    per_mille = one.per_mille(moment)
    if one.every is None:
        arrives = _("As files, or pushed")
    else:
        arrives = _("Read every %(time)s") % {"time": say.duration(one.every)}
    return ClusterRow(
        name=one.cluster,
        badge=_badge(one, moment),
        complete_through=one.complete_through,
        used_through=one.used_through,
        arrives=arrives,
        up_to_date="" if per_mille is None else say.percent(Fraction(per_mille), Fraction(1000)),
        since=one.since,
    )


def _badge(one: Freshness, moment: datetime) -> Badge:
    if is_ahead(one.complete_through, moment=moment):
        return Badge(label=_("Being checked"), tone="late")
    if one.paused:
        return Badge(label=_("Paused"), tone="late" if one.is_late(moment) else "wait")
    if one.complete_through is None:
        return Badge(label=_("Not read yet"), tone="wait")
    if one.is_late(moment):
        behind = say.age(one.complete_through, now=moment)
        return Badge(label=_("%(age)s behind") % {"age": behind}, tone="late")
    if one.every is None:
        return Badge(label=_("By the operator"), tone="muted")
    return Badge(label=_("Up to date"), tone="ok")


def _delays(read: Sequence[Freshness], moment: datetime) -> list[DelayRow]:
    """The newest first."""
    rows = [
        DelayRow(
            cluster=one.cluster,
            delay=delay,
            lasted=say.duration((delay.until - delay.since) // SECOND),
            goes_on=delay.until == moment and one.is_late(moment),
        )
        for one in read
        if one.every is not None
        for delay in one.delays
    ]
    return sorted(rows, key=lambda row: (row.delay.since, row.cluster), reverse=True)
