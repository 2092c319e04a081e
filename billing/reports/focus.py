"""Charges of a month as FOCUS 1.2 has them: what each account's users used, by day, and what else documents charge.

A charge is a part of an invoice line, so that the charges of an invoice add up to it to the cent, before and after
credit notes. A line of use is divided by cluster, account, user, queue, GPU model and the UTC day on which its jobs
began to count: its period runs from the first second of these jobs in the line to the last. Use that another tenant
had, and that this one pays for, is one charge a line.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import chain
from typing import Any

from django.db import transaction

from billing.models import BillingPeriod, DocumentKind, InvoiceLine, LineKind
from billing.reports import focus_documents, focus_use
from billing.reports.focus_columns import COLUMNS, PLACE, Status
from billing.reports.focus_documents import Document, Month
from billing.reports.focus_use import Part, hour_price
from billing.rules.meters import is_built_in
from billing.rules.money import exponent, rounded_text
from clusters import absent_records
from clusters.connectors.sums import dimensions_of
from clusters.month_file_fetches import files_fetched_first
from portal.core.one_sight import one_sight
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import tenant_scope

Openings = Mapping[int, Sequence[BillingPeriod]]
"""By tenant the periods of a month that are not closed."""
Charge = list[str]
"""The texts of a row in the order of COLUMNS; "" is null."""
TENANTS = 100  # whose usage is read at once, of all tenants
HOURS = 9  # decimals of a quantity
UNITS = {"GPU-hour": "GPU-Hours", "core-hour": "Core-Hours", "GiB-hour": "GiB-Hours"}
CREDITS = (LineKind.DISCOUNT, LineKind.CREDIT)
EMPTY = [""] * len(COLUMNS)


@dataclass(frozen=True)
class Dataset:
    """A month of one tenant, or of all; `charges` reads the database as it is taken from."""

    month: Month
    status: Status
    openings: Openings
    charges: Iterator[Charge]


def make_dataset(
    *,
    tenants: Sequence[Tenant],
    month: Month,
    moment: datetime,
    own: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> Dataset:
    """The charges of the month, by tenant, document, line and day: asked again, the same rows in the same order.

    A month that is not over at `moment`, or of which a period is not closed, is preliminary: what its closes would bill
    now stands in it without an invoice. Inside the scope of the one tenant, `own` says so. While the charges are taken,
    each batch of tenants is a transaction of its own; between two, `progress` is told how many tenants are done.
    """
    openings = focus_documents.open_periods(tenants, month)
    is_open = focus_documents.preliminary(openings, month=month, moment=moment)

    def charges() -> Iterator[Charge]:
        for done, documents in _batches(tenants, month, openings, own=own):
            with transaction.atomic():
                for document, parts in focus_use.read(documents, own=own):
                    yield from _charges(document, parts)
            progress(done)

    return Dataset(month, Status.PRELIMINARY if is_open else Status.FINAL, openings, charges())


def _batches(
    tenants: Sequence[Tenant], month: Month, openings: Openings, *, own: bool
) -> Iterator[tuple[int, Sequence[Document]]]:
    """The documents of the month in their order, as many at once as are read together, and the tenants up to there.

    Of all tenants some, since each reading reads the usage of everybody; of one tenant a document, which begins sooner.
    """
    for first in range(0, len(tenants), TENANTS):
        some = tenants[first : first + TENANTS]
        with one_sight():
            documents = _documents(some, month, openings, own=own)
        done = first + len(some)
        if len(tenants) == 1:
            yield from ((done, [document]) for document in documents)
        else:
            yield done, documents


def _documents(tenants: Sequence[Tenant], month: Month, before: Openings, *, own: bool) -> list[Document]:
    """Issued documents and drafts of the same moment: a close between two statements would leave both of a period, or
    neither. They are read once more where periods were open `before` that are not when they have been read.
    """
    openings: Openings = {tenant.pk: before[tenant.pk] for tenant in tenants if tenant.pk in before}
    while True:
        documents = [
            document
            for tenant in tenants
            for document in chain(
                focus_documents.issued(tenant, month),
                focus_documents.drafted(tenant, openings.get(tenant.pk, []), own=own),
            )
        ]
        if openings == (openings := focus_documents.open_periods(tenants, month)):
            return documents


def refuse_unreadable(tenant: Tenant, month: Month, openings: Openings) -> None:
    """Raise RowsInFilesError where a document has usage whose rows cannot be read: for who streams the charges, before
    anything is sent. In the tenant's scope. One query where no month is dropped.
    """
    if absent_records.list_all():
        periods = focus_documents.list_service_periods(tenant, month)
        for draft in focus_documents.drafted(
            tenant, openings.get(tenant.pk, []), own=True
        ):  # which may correct a dropped month
            periods |= {line.service_period_id for line in draft.lines}
        absent_records.refuse_unreadable(absent_records.list_of_periods(periods))


def fetch_files(tenants: Sequence[Tenant], month: Month) -> None:
    """Have the files of dropped months here that the tenants' charges are read from: who writes those of many would
    begin anew for each tenant whose files are not. Raises RowsInFilesError. One query where no month is dropped.
    """
    if absent_records.list_all():
        for tenant in tenants:
            _fetch_files_of(tenant, month)


@files_fetched_first
def _fetch_files_of(tenant: Tenant, month: Month) -> None:
    with tenant_scope(tenant):
        refuse_unreadable(tenant, month, focus_documents.open_periods([tenant], month))


def _charges(document: Document, parts: Iterable[Part]) -> Iterator[Charge]:
    """The parts of each line, then its taxes. What no job tells of a line is a charge of its own."""
    common = _common(document)
    bases = {line.position: _line_charge(common, document, line) for line in document.lines}
    left = {line.position: line.amount for line in document.lines}
    part_counts: dict[int, int] = defaultdict(int)
    for part in parts:
        left[part.position] -= part.minor
        part_counts[part.position] += 1
        yield _part_charge(document, bases[part.position], part)
    for line in document.lines:
        if left[line.position] or not part_counts[line.position]:
            yield _rest(
                document,
                line,
                bases[line.position],
                left[line.position],
                whole=not part_counts[line.position],
            )
    yield from _taxes(common, document)


def _part_charge(document: Document, base: Charge, part: Part) -> Charge:
    amount, charge = fixed(part.minor, exponent(document.currency)), base.copy()
    resource = f"clusters/{part.cluster}/accounts/{part.account}" if part.account else ""
    exact = part.cost if "." in part.cost else f"{part.cost}.0"
    varying = (
        *(part.since, part.until, amount, amount, part.quantity, part.quantity, exact, exact, str(part.jobs)),
        *(resource, part.account, "Scheduler account" if resource else ""),
        _tags(document.tenant.slug, part.cluster, part.user, part.queue, part.model),
    )
    for place, text in zip(_PLACES, varying, strict=True):
        charge[place] = text
    return charge


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
_PLACES = [PLACE[name] for name in _VARYING]


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
    cost = f"{(Decimal(quantity) * hour_price(line, document.currency)).normalize():f}"
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
        price = _decimal(hour_price(line, document.currency))
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
