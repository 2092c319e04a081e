"""What a tenant has to pay, and what it is owed, as tiles of its overview."""

from __future__ import annotations

from django.urls import reverse

from billing.queries import invoices
from portal.web import format as say
from portal.web.access_decorators import Visit
from portal.web.shapes import Tile


def open_invoices(visit: Visit, totals: invoices.Open) -> Tile:
    href = reverse("invoices", args=[visit.tenant.slug])
    if not totals.count:
        return Tile(label="Open invoices", value="None", note="everything is paid", href=href)
    waiting = totals.count - totals.processing
    if not waiting:
        note = f"{totals.count} being processed"
        return Tile(label="Open invoices", value=say.sums(totals.sums), note=note, href=href)
    due = f", the first due {say.day(totals.first_due)}" if totals.first_due else ""
    if totals.first_due is not None and totals.first_due < visit.today:
        due = f", the first was due {say.day(totals.first_due)}"
    note = f"{waiting} to pay{due}"
    if totals.processing:
        note = f"{note}; {totals.processing} being processed"
    return Tile(label="Open invoices", value=say.sums(totals.sums), note=note, href=href)


def owed_back(visit: Visit, totals: invoices.OwedBack) -> Tile:
    slug, one = visit.tenant.slug, totals.count == 1
    href = reverse("invoice", args=[slug, totals.number]) if one else reverse("invoices", args=[slug])
    note = f"to be paid back to you, from {totals.number if one else say.counted(totals.count, 'invoice')}"
    return Tile(label="Owed to you", value=say.sums(totals.sums), note=note, href=href)
