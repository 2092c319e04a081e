"""Who changed what and when: owners see what concerns their tenant, operators everything."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import partial
from typing import Any, TypedDict, cast
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from billing.documents.csv import Cell, rows_to_csv
from portal.core.audit.history import COLUMNS, changes
from portal.core.audit.models import AuditEntry, Operation
from portal.core.audit.tracking import TRACKED
from portal.core.tenants.access import Action, DeniedError, Right, rights_of
from portal.core.tenants.models import Tenant, User
from portal.core.tenants.scope import acting_scope
from portal.days import NO_DAY, is_in_range
from portal.web.access_decorators import TenantRequest, answer, operator_page, tenant_page
from portal.web.form_input import Option, options
from portal.web.history_names import Names, names_of
from portal.web.history_values import value_text, way_text
from portal.web.nouns import NOUNS
from portal.web.page_frame import PageFrame

PAGE, IN_CSV = 50, 100_000
COUNTED = dict(NOUNS)
HIDDEN = frozenset(
    {"id", "tenant_id", "external_id", "fingerprint", "params", "prefix"}
    | {"record_id", "job_key", "share_num", "share_den"}
)  # of no use to people
TENANT_TABLES = {
    "tenants_tenant": gettext_noop("Tenant"),
    "tenants_membership": gettext_noop("Member"),
    "tenants_supportview": gettext_noop("Operator looking in"),
    "tenants_invitation": gettext_noop("Invitation"),
    "api_apikey": gettext_noop("API key"),
    "tenants_ownership": gettext_noop("Account"),
    "billing_subscription": gettext_noop("Plan"),
    "billing_departure": gettext_noop("Departure"),
    "billing_billingcontact": gettext_noop("Billing contact"),
    "billing_savedmethod": gettext_noop("Card"),
    "billing_paymentlink": gettext_noop("Payment link"),
    "billing_automatictopup": gettext_noop("Automatic top-up"),
    "billing_walletscheme": gettext_noop("Wallet terms"),
    "billing_quota": gettext_noop("Budget"),
    "billing_concurrencylimit": gettext_noop("Concurrency limit"),
    "billing_quotablock": gettext_noop("Block by a budget"),
    "billing_wastechoice": gettext_noop("Choice about a waste rule"),
    "billing_wastefinding": gettext_noop("Idle job"),
    "billing_quotaending": gettext_noop("Jobs ended by a budget"),
    "webhooks_webhook": gettext_noop("Webhook"),
}
"""What a tenant's page shows, by table: the policy of the database has the same list (`portal/schema/policies.sql`)."""
OPERATIONS = {
    Operation.INSERT: gettext_noop("added"),
    Operation.UPDATE: gettext_noop("changed"),
    Operation.DELETE: gettext_noop("removed"),
}
CSV_COLUMNS = ("at", "who", "through", "tenant", "what", "row", "operation", "before", "after")


@dataclass(frozen=True, kw_only=True)
class Filters:
    """What somebody looks for: nothing, where a day is none."""

    who: str
    table: str
    tenant: str  # slug; on the operators' page
    since: date | None
    until: date | None  # the last day that is shown
    before: int | None  # the number of the entry that the page before ended with
    errors: Mapping[str, str]  # a sentence for each field whose day is none

    def query(self, **others: object) -> str:
        values = {
            "who": self.who,
            "table": self.table,
            "tenant": self.tenant,
            "since": self.since or "",
            "until": self.until or "",
        } | others
        return "?" + urlencode({name: value for name, value in values.items() if value})


@dataclass(frozen=True, kw_only=True)
class Change:
    """One entry, as people read it."""

    at: datetime
    who: str
    through: str
    why: str
    tenant: str
    what: str
    operation: str
    columns: Sequence[tuple[str, str, str]]  # name, before, after
    is_update: bool


@dataclass(frozen=True, kw_only=True)
class HistoryPage:
    rows: Sequence[Change]
    filters: Filters
    tables: Sequence[Option]
    zone: tzinfo
    next: str
    csv: str
    clear: str
    for_operators: bool


@tenant_page(Action.MANAGE, area="history")
def history(request: TenantRequest) -> HttpResponse:
    filters = _filters(request)
    entries = _tenants_entries(request, filters)
    rows = _read(entries[: PAGE + 1], partial(acting_scope, request.tenant))
    tables = {table: _(label) for table, label in TENANT_TABLES.items()}
    address = reverse("history", args=[request.tenant.slug])
    page = _page(rows, filters, tables, request.zone, address, for_operators=False)
    return answer(request, request.frame, page, whole="history.html")


@tenant_page(Action.MANAGE, area="history")
def history_csv(request: TenantRequest) -> HttpResponse:
    entries = _tenants_entries(request, _filters_of_file(request))
    return _csv(_read(entries[:IN_CSV], partial(acting_scope, request.tenant)), request.tenant.slug)


@operator_page("history")
def operator_history(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    _need_audit(request)
    filters = _filters(request)
    rows = _read(_all_entries(filters)[: PAGE + 1], nullcontext)
    tables = {tracked.table: _label(tracked.table) for tracked in TRACKED}
    page = _page(rows, filters, tables, UTC, reverse("operator_history"), for_operators=True)
    return answer(request, frame, page, whole="history.html")


@operator_page("history")
def operator_history_csv(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    del frame
    _need_audit(request)
    return _csv(_read(_all_entries(_filters_of_file(request))[:IN_CSV], nullcontext), "all")


def _need_audit(request: HttpRequest) -> None:
    if Right.AUDIT not in rights_of(cast("User", request.user)):
        raise DeniedError("the role does not read the history")


def _tenants_entries(request: TenantRequest, filters: Filters) -> Any:
    tables = [filters.table] if filters.table in TENANT_TABLES else [*TENANT_TABLES]
    rows = changes(
        tenants=[request.tenant.pk], tables=tables, who=filters.who, **_days(filters, request.zone)
    )
    return _below(rows, filters).values(*COLUMNS).order_by("-pk")


def _all_entries(filters: Filters) -> Any:
    tenants = None
    if filters.tenant:
        tenants = list(Tenant.objects.filter(slug=filters.tenant).values_list("pk", flat=True))
    tables = [filters.table] if filters.table else []
    rows = changes(tenants=tenants, tables=tables, who=filters.who, **_days(filters, UTC))
    return _below(rows, filters).values(*COLUMNS, "why").order_by("-pk")


def _below(rows: Any, filters: Filters) -> Any:
    if filters.errors:
        return rows.none()
    return rows.filter(pk__lt=filters.before) if filters.before else rows


class Days(TypedDict):
    since: datetime | None
    until: datetime | None


def _days(filters: Filters, zone: tzinfo) -> Days:
    """Midnights of the zone."""

    def midnight(day: date | None, add: int) -> datetime | None:
        if day is None:
            return None
        return datetime(day.year, day.month, day.day, tzinfo=zone) + timedelta(days=add)

    return {"since": midnight(filters.since, 0), "until": midnight(filters.until, 1)}


def _filters(request: HttpRequest) -> Filters:
    form = request.GET
    before = form.get("before", "")
    days = {name: _day(form.get(name, "")) for name in ("since", "until")}
    return Filters(
        who=form.get("who", "").replace("\0", "").strip()[:254],
        table=form.get("table", "").replace("\0", "")[:60],
        tenant=form.get("tenant", "").replace("\0", "").strip()[:50],
        **days,
        before=int(before) if re.fullmatch(r"\d{1,18}", before, re.ASCII) else None,
        errors={name: _(NO_DAY) for name, day in days.items() if form.get(name) and day is None},
    )


def _filters_of_file(request: HttpRequest) -> Filters:
    """A file has no room for a sentence."""
    filters = _filters(request)
    if filters.errors:
        raise Http404(next(iter(filters.errors.values())))
    return filters


def _day(text: str) -> date | None:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    return day if is_in_range(day) else None


def _read(entries: Iterable[dict[str, Any]], scope: Callable[[], AbstractContextManager[None]]) -> list[Any]:
    """The entries with their names. Eleven queries at most, whatever they are."""
    rows = list(entries)
    with scope():
        names = names_of(rows)
    return [(row, names) for row in rows]


def _page(
    rows: list[tuple[dict[str, Any], Names]],
    filters: Filters,
    tables: dict[str, str],
    zone: tzinfo,
    address: str,
    *,
    for_operators: bool,
) -> HistoryPage:
    chosen = sorted(tables.items(), key=lambda item: item[1])
    more = rows[PAGE - 1][0]["id"] if len(rows) > PAGE else ""
    return HistoryPage(
        rows=[_change(row, names, zone) for row, names in rows[:PAGE]],
        filters=filters,
        tables=options(chosen, filters.table),
        zone=zone,
        next=address + filters.query(before=more) if more else "",
        csv=f"{address}csv{filters.query()}",
        clear=address,
        for_operators=for_operators,
    )


def _change(row: dict[str, Any], names: Names, zone: tzinfo) -> Change:
    label, name = _label(row["table"]), names.row(row)
    return Change(
        at=row["at"],
        who=row["who"],
        through=way_text(row["through"]),
        why=row.get("why", ""),
        tenant=names.tenants.get(row["tenant_id"], ""),
        what=f"{label} {name}".strip(),
        operation=_(OPERATIONS[Operation(row["operation"])]),
        columns=list(_columns(row, names, zone)),
        is_update=row["operation"] == Operation.UPDATE,
    )


def _columns(row: dict[str, Any], names: Names, zone: tzinfo | None = None) -> Iterator[tuple[str, str, str]]:
    """Those that changed; of a new row or one that is gone those that say something. Without a zone for programs."""
    unit = names.unit(row)

    def text(column: str, value: object) -> str:
        shown = None
        if zone is not None:
            shown = value_text(table=row["table"], column=column, value=value, zone=zone, unit=unit)
        return names.value(column, value) if shown is None else shown

    entry = AuditEntry(before=row["before"], after=row["after"])
    for column, before, after in entry.changes:
        if column in HIDDEN or (row["operation"] != Operation.UPDATE and before in EMPTY and after in EMPTY):
            continue
        yield _column_label(column), text(column, before), text(column, after)


def _column_label(column: str) -> str:
    """Nouns that pages count have two forms in the catalog; gettext does not read the first before Python 3.11.5."""
    label = column.removesuffix("_id").replace("_", " ")
    return ngettext(label, COUNTED[label], 1) if label in COUNTED else _(label)


EMPTY: tuple[object, ...] = (None, "", False, [], {})


def _label(table: str) -> str:
    """`API key`; of a table that tenants do not see its name."""
    if table in TENANT_TABLES:
        return _(TENANT_TABLES[table])
    model = next((tracked.model for tracked in TRACKED if tracked.table == table), None)
    return str(model._meta.verbose_name).capitalize() if model is not None else table


def _csv(rows: list[tuple[dict[str, Any], Names]], of: str) -> HttpResponse:
    return HttpResponse(
        b"".join(rows_to_csv(CSV_COLUMNS, (_cells(row, names) for row, names in rows))),
        content_type="text/csv; charset=utf-8",
        headers={
            "Content-Disposition": f'attachment; filename="history-{of}.csv"',
            "X-Content-Type-Options": "nosniff",
        },
    )


def _cells(row: dict[str, Any], names: Names) -> Sequence[Cell]:
    columns = list(_columns(row, names))
    before = {name: value for name, value, _after in columns if value}
    after = {name: value for name, _before, value in columns if value}
    return (
        row["at"].astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        row["who"],
        row["through"],
        names.tenants.get(row["tenant_id"], ""),
        _label(row["table"]),
        names.row(row),
        row["operation"],
        json.dumps(before, ensure_ascii=False) if before else "",
        json.dumps(after, ensure_ascii=False) if after else "",
    )
