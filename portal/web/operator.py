"""The operator's lists: clusters, unassigned usage, quarantined rows."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from billing.catalog.meters import units_of
from clusters import absent_records, status, watermark
from clusters.models import Pull
from clusters.usage import Unclaimed
from portal.core.tenants import unassigned as reading
from portal.core.tenants.models import Tenant
from portal.core.tenants.suggestions import suggest_tenants
from portal.core.tenants.unassigned import Span
from portal.web import format as say
from portal.web.access_decorators import answer, operator_page
from portal.web.badges import Badge, Tone
from portal.web.clusters import OUTCOMES
from portal.web.form_input import Option
from portal.web.page_frame import PageFrame
from portal.web.templatetags.clustertab import moment
from portal.web.usage_acts import assign_address

FRESH, OLD = timedelta(hours=1), timedelta(days=2)


@operator_page("clusters")
def clusters(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    now = datetime.now(UTC)
    rows = [
        (
            row,
            _lag(row.cluster.complete_through, now),
            OUTCOMES[Pull.Outcome(row.pull.outcome)] if row.pull else None,
        )
        for row in status.clusters(moment=now)
    ]
    return answer(request, frame, {"rows": rows}, whole="operator/clusters.html")


@operator_page("unassigned")
def unassigned(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    accounts = reading.unassigned()
    units = units_of({meter for row in accounts for meter in row.use.quantities})
    suggested = suggest_tenants(
        {row.use.account for row in accounts}, Tenant.objects.filter(archive=None).order_by("name")
    )
    rows = [
        (
            row.use,
            [(_span(gap), _address(row.use, gap)) for gap in row.gaps],
            suggested.get(row.use.account),
            [(quantity, units[meter]) for meter, quantity in row.use.quantities.items()],
        )
        for row in accounts
    ]
    in_files = absent_records.months_text(absent_records.list_all())
    return answer(request, frame, {"rows": rows, "in_files": in_files}, whole="operator/unassigned.html")


@operator_page("quarantine")
def quarantine(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    parameters = {
        name: request.GET.get(name, "").replace("\0", "") for name in ("cluster", "code", "state", "before")
    }
    return answer(request, frame, _quarantine(**parameters), whole="operator/quarantine.html")


def _lag(through: datetime | None, now: datetime) -> Badge:
    if through is None:
        return Badge(label=_("no data"), tone="late")
    if watermark.is_ahead(through, moment=now):
        return Badge(label=_("in the future"), tone="late")
    lag = now - through
    tone: Tone = "ok" if lag < FRESH else "wait" if lag < OLD else "late"
    return Badge(label=say.age(through, now=now), tone=tone)


def _address(use: Unclaimed, gap: Span) -> str:
    """Of the form that gives the account an owner during the gap."""
    since, until = (at.strftime("%Y-%m-%dT%H:%M:%SZ") if at else "" for at in gap)
    return assign_address(cluster=use.cluster, account=use.account, since=since, until=until)


def _span(gap: Span) -> str:
    """`from 3 May 2026, 00:00`; "" for all of the time."""
    since, until = gap
    parts = [
        text.format(at=moment(at))
        for text, at in ((_("from {at}"), since), (_("until {at}"), until))
        if at is not None
    ]
    return " ".join(parts)


def _quarantine(*, cluster: str, code: str, state: str, before: str) -> dict[str, object]:
    resolved = state == "resolved"
    reasons = status.reasons(resolved=resolved)
    page = status.set_aside(resolved=resolved, cluster=cluster, code=code, after=before)
    filters = {"cluster": cluster, "code": code, "state": state, "before": page.next}
    matching = [r for r in reasons if cluster in {"", r.cluster} and code in {"", r.code}]
    return {
        "cluster": _options((r.cluster for r in reasons), cluster),
        "code": _options((r.code for r in reasons), code),
        "resolved": resolved,
        "total": sum(r.rows for r in matching),
        "rows": page.rows,
        "dismiss": urlencode({"cluster": cluster, "code": code})
        if (cluster or code) and not resolved and page.rows
        else "",
        "older": "?" + urlencode({k: v for k, v in filters.items() if v}) if page.next else "",
    }


def _options(values: Iterable[str], chosen: str) -> tuple[Option, ...]:
    offered = sorted({*values, *({chosen} - {""})})
    return tuple(Option(value=value, label=value, selected=value == chosen) for value in offered)
