"""`show_wallets`: what wallets hold, and what was granted, and where it went."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from django.core.management.base import CommandParser
from django.db.models import QuerySet, Sum

from billing.models import Wallet, WalletEntry
from billing.rules.money import Money
from billing.wallets import booking
from billing.wallets.entries import WalletError
from portal.core.tenants.models import Tenant
from portal.excerpt import quoted
from portal.ops.cli import Answer, BadInputError, OperatorCommand
from portal.ops.wallets import wallet_data


class Command(OperatorCommand):
    help = "List wallets, after booking what was used since the last time."
    refusals: ClassVar[tuple[type[Exception], ...]] = (WalletError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", help="the tenant's slug; default: all")

    def answer(self, **options: Any) -> Answer:
        slug = options["tenant"]
        if slug and not Tenant.objects.filter(slug=slug).exists():
            raise BadInputError(f"There is no tenant {quoted(slug)}.")
        booking.book_due(moment=datetime.now(UTC).replace(microsecond=0))
        wallets = Wallet.objects.select_related("tenant", "project", "scheme").order_by("tenant__slug", "pk")
        if slug:
            wallets = wallets.filter(tenant__slug=slug)
        sides = _sides(wallets)
        rows = [wallet_data(wallet) | sides.get(wallet.pk, {}) for wallet in wallets]
        return Answer({"wallets": rows}, _text(rows))


def _sides(wallets: QuerySet[Wallet]) -> dict[int, dict[str, str]]:
    """By wallet what came from and went to each side, as positive amounts."""
    units = dict(wallets.values_list("pk", "unit"))
    sums = WalletEntry.objects.filter(wallet__in=units).exclude(side="balance").values_list("wallet", "side")
    sides: dict[int, dict[str, str]] = {
        pk: dict.fromkeys(("granted", "used", "spent", "invoice", "expired"), Money.zero(unit).text)
        for pk, unit in units.items()
    }
    for wallet, side, amount in sums.annotate(sum=Sum("amount")).order_by("wallet", "side"):
        minor = -amount if side == "granted" else amount
        sides[wallet][side] = Money.from_minor(minor, units[wallet]).text
    return sides


def _text(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "There are no wallets: give a tenant [[tenant.wallet]] in a file for `apply`."
    lines = [
        f"{row['tenant']}{'/' + row['owner'] if row['owner'] else ''}: {row['balance']} {row['unit']}"
        f" (granted {row['granted']}, used {row['used']}, spent {row['spent']}, paid on invoices {row['invoice']}, "
        f"expired {row['expired']})"
        for row in rows
    ]
    return "\n".join(lines)
