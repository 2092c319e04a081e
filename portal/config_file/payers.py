"""Who pays for a tenant, in a file: `payer`, `payer_from` and `payer_until` of [[tenant]]."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from billing.catalog.third_party_payers import PayerError, end_payer, pay_for
from billing.models import Payer
from portal.config_file.toml_table import Table
from portal.core.tenants.models import Tenant
from portal.excerpt import quoted


@dataclass(frozen=True, slots=True)
class PayerEntry:
    """`payer` is "" where the tenant pays for itself from then on."""

    payer: str
    since: date | None
    until: date | None


def read(table: Table) -> PayerEntry | None:
    """What a tenant's table says of it; mistakes go to the table's errors."""
    payer = table.text("payer", longest=50)
    since, until = table.day("payer_from"), table.day("payer_until")
    if payer is None:
        for key in ("payer_from", "payer_until"):
            if key in table.data:
                table.wrong(key, "is said, but `payer` is missing: write who pays.")
        return None
    if payer == "" and since is None:
        table.wrong("payer_from", 'is missing; with payer = "" it says from when the tenant pays for itself.')
    if payer == "" and until is not None:
        table.wrong("payer_until", 'does not go with payer = "", which has no end.')
    return PayerEntry(payer, since, until)


def write(*, tenant: Tenant, entry: PayerEntry) -> None:
    """Have it be paid for as the entry says. Applied again, nothing changes. Raises PayerError."""
    held = [row for row in tenant.payers.select_related("payer").order_by("since") if row.until != row.since]
    if not entry.payer:
        for row in reversed(held):  # one that begins later never pays; the one that pays on that day ends
            if entry.since is not None and (row.until is None or row.until > entry.since):
                end_payer(row=row, on=entry.since)
        return
    payer = Tenant.objects.filter(slug=entry.payer).first()
    if payer is None:
        raise PayerError(f"payer is {quoted(entry.payer)}, which neither the file nor the database has.")
    since = entry.since
    if since is None:
        if not held or held[-1].payer != payer:
            raise PayerError(f"payer_from is missing; say from which day {payer.slug} pays.")
        since = held[-1].since
    pay_for(payer=payer, tenant=tenant, since=since, until=entry.until)


def told() -> Iterator[tuple[int, int, str, dict[str, str]]]:
    """Each payer with whom it pays for, as people see it. One query."""
    for row in Payer.objects.select_related("tenant", "payer").order_by("pk"):
        fields = {"since": str(row.since), "until": str(row.until or "")}
        yield row.pk, row.tenant_id, f"{row.payer.slug} pays for {row.tenant.slug}", fields
