"""What an operator does to usage: give an account to a tenant, settle or retry rows in quarantine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.db.models import Count, Max, Q, QuerySet, Sum
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from billing.rules.period import midnight
from clusters import pull_schedule, quarantine
from clusters.models import Account, Cluster, Quarantined
from portal.core.outbox import outbox
from portal.core.tenants import ownership
from portal.core.tenants.access import Right
from portal.core.tenants.models import Ownership, Tenant
from portal.core.tenants.ownership import OwnershipConflictError
from portal.core.tenants.suggestions import suggest_tenants
from portal.web import acts
from portal.web import format as say
from portal.web.access_decorators import operator_page
from portal.web.acts import Act, ActError, Field, Preview, Values
from portal.web.form_input import Option
from portal.web.page_frame import PageFrame
from portal.web.templatetags.clustertab import moment as moment_text

LONGEST_NAME = 255  # characters of an account's


@operator_page("unassigned", acts=Right.TENANTS)
def assign_account(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    """Give an account to a tenant for a time; its usage is rated again."""
    tenants = {row.slug: row for row in Tenant.objects.filter(archive=None).order_by("name")}
    clusters = {row.name: row for row in Cluster.objects.order_by("name")}
    named = request.GET.get("account", "").replace("\0", "")
    suggestion = suggest_tenants([named], tenants.values()).get(named)
    act = Act(
        title=_("Assign an account"),
        button=_("Assign"),
        lead=_("Usage in this time is billed to the tenant. Who owned the account then gives it up."),
        right=Right.TENANTS,
        fields=_assign_fields(clusters, tenants, suggestion),
        preview=lambda values: _assign_preview(values, clusters, tenants),
        carry_out=lambda values: _assigned(values, clusters, tenants),
        refusals=(OwnershipConflictError,),
        back=reverse("operator_unassigned"),
        back_label=_("Unassigned usage"),
    )
    return acts.conduct(request, frame, act)


@operator_page("quarantine", acts=Right.IMPORTS)
def dismiss_rows(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    """One row, or all open ones of a cluster or reason, as the address names them."""
    rows = _rows(request)
    if not rows.exists():
        raise Http404("no such open row")
    seen: Mapping[str, int] = {}  # of the rows that were previewed

    def preview(values: Values) -> Preview:
        nonlocal seen
        if not values["why"]:
            raise ActError(_("Say why: the reason is kept with the rows."))
        seen = rows.aggregate(count=Count("pk"), last=Max("pk"), sum=Sum("pk"))
        text = _("{rows} are settled and never billed. The same row read again stays settled.")
        return Preview([text.format(rows=say.counted(seen["count"], "row"))], key=f"{seen}")

    def carry_out(values: Values) -> str:
        none_since = rows.filter(pk__lte=seen["last"])
        count = quarantine.dismiss(rows=none_since, reason=values["why"], who=str(request.user))
        return _("{rows} dismissed.").format(rows=say.counted(count, "row"))

    act = Act(
        title=_("Dismiss {rows}").format(rows=say.counted(rows.count(), "quarantined row")),
        button=_("Dismiss"),
        right=Right.IMPORTS,
        fields=[Field(name="why", label=_("Reason"), required=True, hint=_("Kept with the rows."))],
        preview=preview,
        carry_out=carry_out,
        refusals=(ValueError,),
        back=reverse("operator_quarantine"),
        back_label=_("Quarantine"),
    )
    return acts.conduct(request, frame, act)


@operator_page("quarantine", acts=Right.IMPORTS)
def retry_row(request: HttpRequest, frame: PageFrame, *, row: int) -> HttpResponse:
    """Have its source read again: a good row of the same job resolves it."""
    entry = Quarantined.objects.select_related("cluster__connection").filter(pk=row, resolved_at=None).first()
    if entry is None:
        raise Http404("no such open row")
    cluster = entry.cluster
    connection = getattr(cluster, "connection", None)

    def preview(values: Values) -> Preview:
        del values
        if connection is None or not connection.enabled:
            return Preview(
                [
                    _(
                        "It came from {source}. Nothing here can read that again: import the file once more, "
                        "mended, on the page of {cluster}."
                    ).format(source=entry.source or _("a file"), cluster=cluster.name)
                ],
                possible=False,
            )
        return Preview(
            [
                _(
                    "{cluster} is synced at once. Once an hour a sync reads the last {hours} hours again."
                ).format(cluster=cluster.name, hours=connection.look_back),
                _(
                    "If the row of the job is good now, this entry resolves itself. To read further back, "
                    "reset the watermark on the cluster's page."
                ),
            ]
        )

    def carry_out(values: Values) -> str:
        del values
        pull_schedule.ask(cluster)
        outbox.add("billing.tasks.pull_due")
        return _("A sync of {cluster} starts shortly.").format(cluster=cluster.name)

    act = Act(
        title=_("Retry a quarantined row"),
        button=_("Sync {cluster}").format(cluster=cluster.name),
        lead=f"{entry.code}: {entry.reason}",
        right=Right.IMPORTS,
        fields=[],
        preview=preview,
        carry_out=carry_out,
        refusals=(),
        back=reverse("operator_quarantine"),
        back_label=_("Quarantine"),
    )
    return acts.conduct(request, frame, act)


def assign_address(**values: str) -> str:
    """Of the form, filled in."""
    return f"{reverse('operator_assign')}?{urlencode({name: text for name, text in values.items() if text})}"


def _assign_fields(
    clusters: dict[str, Cluster], tenants: dict[str, Tenant], suggestion: Tenant | None
) -> list[Field]:
    hint = _("A day like 2026-03-01 of the tenant's zone, or a time like 2026-03-01T12:00:00Z.")
    return [
        Field(
            name="cluster",
            label=_("Cluster"),
            kind="select",
            required=True,
            options=[Option(value=name, label=name) for name in clusters],
        ),
        Field(name="account", label=_("Account"), hint=_("As the scheduler calls it.")),
        Field(
            name="tenant",
            label=_("Tenant"),
            kind="select",
            required=True,
            value=suggestion.slug if suggestion else "",
            options=[
                Option(value="", label=_("Choose…")),
                *(Option(value=slug, label=row.name) for slug, row in tenants.items()),
            ],
            hint=_("Suggested by the account's name.") if suggestion else "",
        ),
        Field(name="project", label=_("Project"), hint=_("Cost center; blank = the account's name.")),
        Field(name="since", label=_("Since"), hint=f"{_('Blank = from the beginning.')} {hint}"),
        Field(name="until", label=_("Until"), hint=_("Blank = with no end.")),
        Field(name="why", label=_("Reason"), hint=_("Kept in the history.")),
    ]


def _assign(values: Values, clusters: dict[str, Cluster], tenants: dict[str, Tenant]) -> Ownership:
    cluster, tenant = clusters.get(values["cluster"]), tenants.get(values["tenant"])
    if cluster is None or tenant is None:
        raise ActError(_("Choose a cluster and a tenant."))
    since, until = (_instant(values[name], tenant.zone) for name in ("since", "until"))
    if since is not None and until is not None and until <= since:
        raise ActError(_("The end has to be later than the beginning."))
    if len(values["account"]) > LONGEST_NAME:
        raise ActError(_("No account’s name has more than {most} characters.").format(most=LONGEST_NAME))
    account, _made = Account.objects.get_or_create(cluster=cluster, name=values["account"])
    return ownership.assign(
        account=account, tenant=tenant, project=values["project"][:200], since=since, until=until
    )


def _assign_preview(
    values: Values, clusters: dict[str, Cluster], tenants: dict[str, Tenant]
) -> Sequence[str]:
    rows: list[Ownership] = []
    acts.undone(lambda: rows.append(_assign(values, clusters, tenants)))
    return [
        _sentence(rows[0]),
        *_loss(rows[0]),
        _("Its usage in this time is rated again; that of closed months goes on the next invoice."),
    ]


def _assigned(values: Values, clusters: dict[str, Cluster], tenants: dict[str, Tenant]) -> str:
    row = _assign(values, clusters, tenants)
    outbox.add("billing.tasks.rate_accounts", account_ids=[row.account_id])
    return _sentence(row)


def _sentence(row: Ownership) -> str:
    zone = row.tenant.zone
    return _(
        "{account} of {cluster} belongs to {tenant} (project {project}) from {since} until {until}."
    ).format(
        account=row.account.name or _("(no account)"),
        cluster=row.account.cluster.name,
        tenant=row.tenant.name,
        project=row.project.name,
        since=moment_text(row.since, zone) or _("the beginning"),
        until=moment_text(row.until, zone) or _("further notice"),
    )


def _loss(row: Ownership) -> Iterator[str]:
    """Who owns the account at its beginning, and gives it up. One query."""
    if row.since is None:
        return
    before = Q(since=None) | Q(since__lt=row.since), Q(until=None) | Q(until__gt=row.since)
    owned = Ownership.objects.filter(*before, account=row.account_id).select_related("tenant", "project")
    for one in owned:
        text = _("{tenant} (project {project}) owns it until then, and gives it up.")
        if row.until is not None and (one.until is None or one.until > row.until):
            text = _("{tenant} (project {project}) owns it until then, and has it back after the end.")
        yield text.format(tenant=one.tenant.name, project=one.project.name)


def _instant(text: str, zone: ZoneInfo) -> datetime | None:
    """A day of the zone or a moment with its offset; None for nothing. Raises ActError."""
    if not text:
        return None
    if len(text) <= len("2026-03-01"):
        return midnight(acts.day(text), zone=zone)
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise ActError(_("Enter a time like 2026-03-01T12:00:00Z.")) from error
    acts.day(f"{at.date()}")  # its years
    if at.tzinfo is None:
        at = at.replace(tzinfo=zone)
    return at.astimezone(UTC)


def _rows(request: HttpRequest) -> QuerySet[Quarantined]:
    """The open rows that the address names: one, or those of a cluster and a reason. Raises Http404 for none named."""
    query = {name: request.GET.get(name, "").replace("\0", "") for name in ("row", "cluster", "code")}
    rows = Quarantined.objects.filter(resolved_at=None)
    if query["row"]:
        if not (query["row"].isascii() and query["row"].isdecimal() and len(query["row"]) < 19):
            raise Http404("no such row")
        return rows.filter(pk=int(query["row"]))
    if not (query["cluster"] or query["code"]):
        raise Http404("no row is named")
    if query["cluster"]:
        rows = rows.filter(cluster__name=query["cluster"])
    return rows.filter(code=query["code"]) if query["code"] else rows
