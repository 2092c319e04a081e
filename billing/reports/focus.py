"""Charges of a month as FOCUS 1.2 has them: what each account's users used, by day, and what else documents charge.

A charge is a part of an invoice line, so that the charges of an invoice add up to it to the cent, before and after
credit notes. A line of use is divided by cluster, account, user, queue, GPU model and the UTC day on which its jobs
began to count: its period runs from the first second of these jobs in the line to the last. Use that another tenant
had, and that this one pays for, is one charge a line.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

from django.db import connection, transaction
from django.db.models import Sum

from billing.models import DocumentKind, InvoiceLine, LineJobs, LineKind
from billing.rating import billed_usage
from billing.reports import focus_documents
from billing.reports.focus_columns import COLUMNS, PLACE, Status
from billing.reports.focus_documents import Document, Month
from billing.rules.meters import MAX_PRICE_DECIMALS, is_built_in
from billing.rules.money import exponent, rounded_text
from billing.rules.price_shares import per_hour
from clusters import absent_records
from clusters.connectors.sums import dimensions_of
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import tenant_scope
from portal.sql_files import Statements

sql = Statements(__file__, "focus.sql")

Charge = list[str]
"""The texts of a row in the order of COLUMNS; "" is null."""
BATCH = 2_000  # rows fetched at once
MANY_JOBS = 5_000  # behind the lines of a document, above which its file begins with the first line alone
HOURS = 9  # decimals of a quantity
UNITS = {"GPU-hour": "GPU-Hours", "core-hour": "Core-Hours", "GiB-hour": "GiB-Hours"}
CREDITS = (LineKind.DISCOUNT, LineKind.CREDIT)
EMPTY = [""] * len(COLUMNS)


@dataclass(frozen=True)
class Dataset:
    """A month of one tenant, or of all; `charges` reads the database as it is taken from."""

    month: Month
    status: Status
    charges: Iterator[Charge]


def make_dataset(*, tenants: Sequence[Tenant], month: Month, moment: datetime, own: bool = False) -> Dataset:
    """The charges of the month, by tenant, document, line and day: asked again, the same rows in the same order.

    A month that is not over at `moment`, or of which a period is not closed, is preliminary: what its closes would bill
    now stands in it without an invoice. Inside the scope of the one tenant, `own` says so. Needs a transaction while
    the charges are taken.
    """
    openings = focus_documents.open_periods(tenants, month)
    is_open = focus_documents.preliminary(openings, month=month, moment=moment)

    def charges() -> Iterator[Charge]:
        with transaction.atomic():
            for tenant in tenants:
                for document in focus_documents.issued(tenant, month):
                    yield from _charges(document, own=own)
                for document in focus_documents.drafted(tenant, openings.get(tenant.pk, []), own=own):
                    yield from _charges(document, own=own)

    return Dataset(month, Status.PRELIMINARY if is_open else Status.FINAL, charges())


def refuse_unreadable(tenant: Tenant, month: Month) -> None:
    """Raise RowsInFilesError where a document has usage whose rows cannot be read: for who streams the charges, before
    anything is sent. In the tenant's scope. One query where no month is dropped.
    """
    if absent_records.list_all():
        periods = focus_documents.list_service_periods(tenant, month)
        openings = focus_documents.open_periods([tenant], month).get(tenant.pk, [])
        for draft in focus_documents.drafted(tenant, openings, own=True):  # which may correct a dropped month
            periods |= {line.service_period_id for line in draft.lines}
        absent_records.refuse_unreadable(absent_records.list_of_periods(periods))


def _charges(document: Document, *, own: bool) -> Iterator[Charge]:
    """The parts of each line, then its taxes. What no job tells of a line is a charge of its own."""
    common = _common(document)
    bases = {line.position: _line_charge(common, document, line) for line in document.lines}
    left = {line.position: line.amount for line in document.lines}
    told: dict[int, int] = defaultdict(int)
    for position, billed, charge in _used(document, bases, own=own):
        left[position] -= billed
        told[position] += 1
        yield charge
    for line in document.lines:
        if left[line.position] or not told[line.position]:
            yield _rest(
                document, line, bases[line.position], left[line.position], whole=not told[line.position]
            )
    yield from _taxes(common, document)


def _used(document: Document, bases: dict[int, Charge], *, own: bool) -> Iterator[tuple[int, int, Charge]]:
    """Line, minor units and charge of each part."""
    lines = [line for line in document.lines if line.seconds_num and line.used_by() is None and line.price_id]
    if lines:
        months = absent_records.list_of_periods(line.service_period_id for line in lines)
        with nullcontext() if own or not months else _in_scope_of(document.tenant):
            absent_records.show(months, most=None)
            for part in _begun_soon(lines):
                yield from _used_by_jobs(document, part, bases)


@contextmanager
def _in_scope_of(tenant: Tenant) -> Iterator[None]:
    """For an operator: files are read in the scope of one tenant after another, and nothing of them stays shown.

    What was made for it is rolled back: dropped, its locks would stay to the end of the export, some hundred of each
    document, and fill the server's table of locks.
    """
    with tenant_scope(tenant):
        mark = transaction.savepoint()
        yield
        transaction.savepoint_rollback(mark)
        transaction.savepoint_commit(mark)


def _begun_soon(lines: Sequence[InvoiceLine]) -> list[Sequence[InvoiceLine]]:
    """The lines of one document by position, to be read part by part. One query, of several lines.

    The first is a part of its own where many jobs stand behind them: what reads a file waits for no other line. Both
    parts read the month of all tenants, so small documents, and those whose jobs were not counted yet, are one part.
    """
    ordered = sorted(lines, key=lambda line: line.position)
    if len(ordered) > 1 and ordered[0].pk:
        counts = LineJobs.objects.filter(line__in=ordered, tenant=ordered[0].tenant_id)
        if (counts.aggregate(jobs=Sum("jobs"))["jobs"] or 0) > MANY_JOBS:
            return [ordered[:1], ordered[1:]]
    return [ordered]


def _used_by_jobs(
    document: Document, lines: Sequence[InvoiceLine], bases: dict[int, Charge]
) -> Iterator[tuple[int, int, Charge]]:
    digits, tenant = exponent(document.currency), document.tenant.slug
    places = [PLACE[name] for name in _VARYING]
    with connection.chunked_cursor() as cursor:
        cursor.execute(sql.USE, _reach(document, lines))
        while rows := cursor.fetchmany(BATCH):
            for (
                position,
                since,
                until,
                cluster,
                account,
                user,
                queue,
                model,
                jobs,
                minor,
                quantity,
                cost,
            ) in rows:
                amount, charge = fixed(minor, digits), bases[position].copy()
                resource = f"clusters/{cluster}/accounts/{account}" if account else ""
                exact = cost if "." in cost else f"{cost}.0"
                varying = (
                    *(since, until, amount, amount, quantity, quantity, exact, exact, str(jobs), resource),
                    *(account, "Scheduler account" if resource else ""),
                    _tags(tenant, cluster, user, queue, model),
                )
                for place, text in zip(places, varying, strict=True):
                    charge[place] = text
                yield position, minor, charge


_VARYING = (
    *(
        "ChargePeriodStart",
        "ChargePeriodEnd",
        "BilledCost",
        "EffectiveCost",
        "PricingQuantity",
        "ConsumedQuantity",
    ),
    *("ListCost", "ContractedCost", "x_JobCount", "ResourceId", "ResourceName", "ResourceType", "Tags"),
)


def _reach(document: Document, lines: Sequence[InvoiceLine]) -> dict[str, Any]:
    """Which rated rows each line covers, as `billing.queries.line_usage` tells it of issued invoices."""
    ends = [line.service_period.end for line in lines]
    afters = [billed_usage.through(document.before, end) for end in ends]
    return {
        "tenant": document.tenant.pk,
        "through": document.rated_through,
        "first_month": min(line.service_period.start.astimezone(UTC).date().replace(day=1) for line in lines),
        "end": max(ends),
        "positions": [line.position for line in lines],
        "periods": [line.service_period_id for line in lines],
        "projects": [line.project_id for line in lines],
        "prices": [line.price_id for line in lines],
        "after": afters,
        "moments": sorted({*filter(None, afters), document.rated_through}),
        "hour_prices": [_hour_price(line, document.currency) for line in lines],
        "amounts": [line.amount for line in lines],
        "minor": 10 ** exponent(document.currency),
    }


def _rest(document: Document, line: InvoiceLine, base: Charge, amount: int, *, whole: bool) -> Charge:
    """A line without jobs of its own, or what its jobs leave of it by a rounding."""
    billed = fixed(amount, exponent(document.currency))
    changed = {"BilledCost": billed, "EffectiveCost": billed, "ListCost": billed, "ContractedCost": billed}
    if not base[PLACE["ListUnitPrice"]]:
        return _with(base, changed)
    if line.kind != LineKind.USAGE:
        return _with(base, changed | {"PricingQuantity": "1.0"})
    seconds = Fraction(int(line.seconds_num), line.seconds_den) if whole else Fraction(0)
    if not seconds and base[PLACE["ChargeClass"]]:
        lacking = ("ListUnitPrice", "ContractedUnitPrice", "PricingUnit", "ConsumedUnit")
        return _with(base, changed | dict.fromkeys(lacking, ""))
    quantity = f"{Decimal(rounded_text(seconds / 3600, HOURS)):.{HOURS}f}"
    cost = f"{(Decimal(quantity) * _hour_price(line, document.currency)).normalize():f}"
    cost = cost if "." in cost else f"{cost}.0"
    quantities = {"PricingQuantity": quantity, "ConsumedQuantity": quantity}
    return _with(base, changed | quantities | {"ListCost": cost, "ContractedCost": cost})


def _common(document: Document) -> Charge:
    """What all charges of a document have."""
    slug, seller = document.tenant.slug, document.seller
    return _with(
        EMPTY,
        {
            "BillingAccountId": f"tenants/{slug}",
            "BillingAccountName": document.buyer,
            "BillingAccountType": "Tenant",
            "BillingCurrency": document.currency,
            "BillingPeriodStart": _instant(document.billed.start),
            "BillingPeriodEnd": _instant(document.billed.end),
            "InvoiceId": document.number,
            "InvoiceIssuerName": seller,
            "ProviderName": seller,
            "PublisherName": seller,
            "ServiceCategory": "Compute",
            "ServiceSubcategory": "Other (Compute)",
            "ServiceName": "GPU cluster",
            "x_DocumentType": document.kind,
            "x_CorrectedInvoiceId": document.corrects,
            "x_Status": Status.FINAL if document.number else Status.PRELIMINARY,
        },
    )


def _line_charge(common: Charge, document: Document, line: InvoiceLine) -> Charge:
    """All but the amounts and quantities."""
    service = line.service_period
    is_old = service.start.astimezone(UTC) < document.billed.start
    is_correction = is_old and (line.corrects or document.kind == DocumentKind.CREDIT_NOTE)
    category = _category(line, is_correction=is_correction)
    price = ""
    if category == "Usage":
        price = _decimal(_hour_price(line, document.currency))
    elif category == "Purchase" and line.amount >= 0:
        price = fixed(line.amount, exponent(document.currency))
    unit = "Units" if category == "Purchase" else UNITS.get(line.unit) or _unit(line)
    sku = line.meter if category == "Usage" else str(line.kind)
    sold = category in {"Usage", "Purchase"}
    return _with(
        common,
        {
            "ChargeCategory": category,
            "ChargeClass": "Correction" if is_correction else "",
            "ChargeDescription": line.description,
            "ChargeFrequency": _frequency(line, category),
            "ChargePeriodStart": _instant(service.start),
            "ChargePeriodEnd": _instant(service.end),
            "ListUnitPrice": price,
            "ContractedUnitPrice": price,
            "PricingCategory": "Standard" if sold else "",
            "PricingUnit": unit if price else "",
            "ConsumedUnit": unit if category == "Usage" and price else "",
            "SkuId": f"meters/{sku}" if category == "Usage" else f"terms/{sku}" if sold else "",
            "SkuMeter": sku if sold else "",
            "SkuPriceId": _sku_price(line, sku) if sold else "",
            "SubAccountId": f"projects/{line.project_id}" if line.project_id else "",
            "SubAccountName": (line.project or document.buyer) if line.project_id else "",
            "SubAccountType": "Project" if line.project_id else "",
            "x_InvoiceLine": str(line.position),
            "x_LineType": line.kind,
        },
    )


def _unit(line: InvoiceLine) -> str:
    return "Hours" if is_built_in(line.meter) else line.unit


def _category(line: InvoiceLine, *, is_correction: bool) -> str:
    if line.kind == LineKind.USAGE:
        return "Usage"
    if line.kind in CREDITS or (line.amount < 0 and not is_correction):
        return "Credit"
    return "Purchase"


def _frequency(line: InvoiceLine, category: str) -> str:
    if category == "Usage":
        return "Usage-Based"
    return "Recurring" if line.kind in {LineKind.FEE, LineKind.COMMITMENT} else "One-Time"


def _sku_price(line: InvoiceLine, sku: str) -> str:
    return f"prices/{line.price_id}" if line.kind == LineKind.USAGE else f"terms/{sku}/{line.term_id or 0}"


def _taxes(common: Charge, document: Document) -> Iterator[Charge]:
    is_old = document.served.start < document.billed.start
    for place, row in enumerate(document.taxes, start=1):
        if not row.tax:
            continue
        amount = fixed(row.tax, exponent(document.currency))
        costs = dict.fromkeys(("BilledCost", "EffectiveCost", "ListCost", "ContractedCost"), amount)
        yield _with(
            common,
            costs
            | {
                "ChargeCategory": "Tax",
                "ChargeClass": "Correction" if is_old else "",
                "ChargeDescription": f"Tax {_decimal(row.rate)} % ({row.category})",
                "ChargeFrequency": "One-Time",
                "ChargePeriodStart": _instant(document.served.start),
                "ChargePeriodEnd": _instant(document.served.end),
                "x_InvoiceLine": str(len(document.lines) + place),
                "x_LineType": "tax",
            },
        )


def _hour_price(line: InvoiceLine, currency: str) -> Decimal:
    """What an hour of the line costs; of a price over several projects their average, to 12 decimals."""
    if not line.terms:
        return line.unit_price or Decimal(0)
    return max(Decimal(rounded_text(per_hour(line.terms, currency).amount, MAX_PRICE_DECIMALS)), Decimal(0))


@lru_cache(maxsize=4096)
def _tags(tenant: str, cluster: str, user: str, queue: str, model: str) -> str:
    """Tags of ours have a prefix, as FOCUS asks for of a provider's; what is not known is left out."""
    kinds = dimensions_of(model) if "=" in model else {"gpu_model": model}
    named = {"tenant": tenant, "cluster": cluster, "user": user, "queue": queue, **kinds}
    tags = {f"clustertab/{name}": value for name, value in named.items() if value}
    return json.dumps(tags, ensure_ascii=False, separators=(",", ":"))


def fixed(minor: int, digits: int) -> str:
    """Minor units in major ones, with one decimal at least: `-12.30`, and of yen `500.0`."""
    sign, size = ("-" if minor < 0 else ""), abs(minor)
    if not digits:
        return f"{sign}{size}.0"
    return f"{sign}{size // 10**digits}.{size % 10**digits:0{digits}d}"


def _decimal(value: Decimal) -> str:
    text = f"{value.normalize():f}"
    return text if "." in text else f"{text}.0"


def _instant(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _with(charge: Charge, values: dict[str, Any]) -> Charge:
    changed = charge.copy()
    for name, value in values.items():
        changed[PLACE[name]] = str(value)
    return changed
