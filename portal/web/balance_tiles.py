"""What a tenant has to pay, and what it is owed, as tiles of its overview."""

from __future__ import annotations

from django.urls import reverse

from billing.queries import invoices
from portal.web import format as say
from portal.web.access_decorators import Visit
from portal.web.shapes import Tile


def open_invoices(visit: Visit, found: invoices.Open) -> Tile:
    href = reverse("invoices", args=[visit.tenant.slug])
    if not found.count:
        return Tile(label="Open invoices", value="None", note="everything is paid", href=href)
    waiting = found.count - found.processing
    if not waiting:
        note = f"{found.count} being processed"
        return Tile(label="Open invoices", value=say.sums(found.sums), note=note, href=href)
    due = f", the first due {say.day(found.first_due)}" if found.first_due else ""
    if found.first_due is not None and found.first_due < visit.today:
        due = f", the first was due {say.day(found.first_due)}"
    note = f"{waiting} to pay{due}"
    if found.processing:
        note = f"{note}; {found.processing} being processed"
    return Tile(label="Open invoices", value=say.sums(found.sums), note=note, href=href)


def owed_back(visit: Visit, found: invoices.OwedBack) -> Tile:
    slug, one = visit.tenant.slug, found.count == 1
    href = reverse("invoice", args=[slug, found.number]) if one else reverse("invoices", args=[slug])
    note = f"to be paid back to you, from {found.number if one else say.counted(found.count, 'invoice')}"
    return Tile(label="Owed to you", value=say.sums(found.sums), note=note, href=href)
