"""The documents that a close would send to one tenant, as a worker computes them and their page and PDF show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _

from billing.catalog import billing_periods
from billing.documents.invoice import InvoiceDocument
from billing.invoicing import close_runs, draft_previews
from billing.invoicing.close_results import Outcome
from billing.models import Invoice
from billing.queries import invoices as reading
from billing.rules.period import parse_month
from portal.core.tenants.models import Tenant
from portal.web.badges import INVOICE_BADGES
from portal.web.invoice_document import Fact, InvoicePage, shown
from portal.web.previews import Progress


@dataclass(frozen=True, slots=True)
class Draft:
    """One document: as its page shows it, and as its PDF does."""

    page: InvoicePage
    document: InvoiceDocument


@dataclass(frozen=True, slots=True)
class DraftDocuments:
    """The period's invoice first; `reason` says why there is none, or what is to be minded."""

    drafts: tuple[Draft, ...]
    reason: str


def compute(inputs: Mapping[str, Any], moment: datetime, _progress: Progress) -> DraftDocuments:
    """Of the inputs `tenant`, its slug, and `month`, with the options of the month's last preview."""
    moment = moment.replace(microsecond=0)
    year, month = parse_month(inputs["month"])
    run = close_runs.get_newest_run(inputs["month"])
    preview = draft_previews.read_drafts(
        tenant=Tenant.objects.get(slug=inputs["tenant"]),
        year=year,
        month=month,
        moment=moment,
        read=lambda row: Draft(_page(row, moment), draft_previews.load_document(row, moment=moment)),
        accept_incomplete=run.accept_incomplete if run else "",
    )
    closed = preview.closed
    reason = " ".join(block.sentence for block in closed.blocks) or closed.reason
    if closed.outcome is Outcome.ALREADY:
        reason = _("{number} is already issued.").format(number=closed.number)
    return DraftDocuments(tuple(preview.documents), " ".join(filter(None, (reason, closed.note))))


def _page(row: Invoice, now: datetime) -> InvoicePage:
    """Without its number, and without links that cannot be opened yet."""
    page = shown(reading.draft_detail(row.pk, on=billing_periods.day_of(now, row.period)))
    groups = tuple(
        replace(group, lines=tuple(replace(line, jobs="", credited_job=None) for line in group.lines))
        for group in page.groups
    )
    facts = tuple(Fact(label=other.label, value=other.number) for other in page.related)
    return replace(
        page,
        number=draft_previews.NUMBER,
        badge=INVOICE_BADGES["draft"],
        groups=groups,
        facts=(*page.facts, *facts),
        related=(),
        transfer=None,
        evidence="",
    )
