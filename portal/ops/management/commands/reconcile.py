"""`reconcile`: compare the payment service's books with ours, now, as the worker does it each night."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from django.core.management.base import CommandParser

from billing.models import Difference, Reconciliation
from billing.payments import gateway_access
from billing.payments.gateways.base import GatewayError
from billing.reconciliation import reconciliation_run
from billing.rules import gateway_amounts
from billing.rules.money import Money
from portal.ops.cli import Answer, OperatorCommand, instant_text, moment

UTC_ZONE = ZoneInfo("UTC")
READ = ("charges", "refunds", "disputes", "movements", "payouts")
WORDS = {
    "charged": "charged there",
    "booked": "booked here",
    "refunded": "given back",
    "fees": "kept as fees",
    "paid_out": "paid out",
}


class Command(OperatorCommand):
    help = "Compare Stripe's payments, refunds, disputes, fees and payouts with what is booked here. Moves no money."
    refusals: ClassVar[tuple[type[Exception], ...]] = (gateway_access.CollectionError, GatewayError)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--since", metavar="WHEN", help="date or moment, UTC unless said; else the last run"
        )
        parser.add_argument("--until", metavar="WHEN", help="date or moment; else now")

    def answer(self, **options: Any) -> Answer:
        window = {name: moment(options[name], UTC_ZONE) for name in ("since", "until") if options[name]}
        run = reconciliation_run.run(
            gateway=gateway_access.get_gateway(), moment=datetime.now(UTC), by="shell", **window
        )
        open_ones = list(
            Difference.objects.filter(resolved_at=None)
            .select_related("tenant", "invoice")
            .order_by("kind", "first_seen", "pk")
        )
        sums = {currency: _sums(currency, amounts) for currency, amounts in run.sums.items()}
        data = {
            "since": instant_text(run.since),
            "until": instant_text(run.until),
            "counts": run.counts,
            "sums": sums,
            "differences": [_data(row) for row in open_ones],
        }
        return Answer(data, "\n".join(_text(run, sums, open_ones)), 1 if open_ones else 0)


def _sums(currency: str, amounts: dict[str, int]) -> dict[str, str]:
    return {
        name: (
            Money.from_minor(amount, currency)
            if name == "booked"
            else gateway_amounts.as_money(amount, currency)
        )
        .rounded()
        .text
        for name, amount in amounts.items()
    }


def _data(row: Difference) -> dict[str, Any]:
    return {
        "kind": row.kind,
        "object": row.object_id,
        "tenant": row.tenant.slug if row.tenant else None,
        "invoice": row.invoice.number if row.invoice else None,
        "ours": row.ours,
        "theirs": row.theirs,
        "first_seen": row.first_seen,
        "last_seen": row.last_seen,
        "note": row.note or None,
    }


def _text(run: Reconciliation, sums: dict[str, dict[str, str]], rows: list[Difference]) -> list[str]:
    read = ", ".join(f"{run.counts[name]:,} {name}" for name in READ)
    lines = [f"{run} UTC: {read}; {run.counts['foreign']:,} of others, {run.counts['adopted']:,} adopted."]
    for currency, amounts in sums.items():
        lines.append(
            f"{currency}: {', '.join(f'{amounts[name]} {words}' for name, words in WORDS.items() if name in amounts)}."
        )
    if not rows:
        return [*lines, "No difference is open."]
    lines.append(f"{len(rows):,} {'difference is' if len(rows) == 1 else 'differences are'} open:")
    for row in rows:
        about = ", ".join(
            [
                row.object_id,
                *([row.tenant.slug] if row.tenant else []),
                *([str(row.invoice)] if row.invoice else []),
            ]
        )
        lines.append(
            f"{row.get_kind_display()}: {about}: here {row.ours.rstrip('.')}, there {row.theirs.rstrip('.')}."
        )
    return lines
