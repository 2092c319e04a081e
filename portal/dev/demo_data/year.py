"""A year of business: months closed, paid, reminded, disputed and credited, day by day as an operator would have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal

from django.db import transaction

from billing.dunning import dunning_run
from billing.emails import delivery
from billing.invoicing import close_runs, credit_notes, manual_lines, month_close
from billing.models import (
    AutomaticTopUp,
    CloseKind,
    CloseRun,
    DocumentKind,
    GrantKind,
    Invoice,
    ManualLine,
    QuotaEvery,
    QuotaMeasure,
    TopUp,
    Wallet,
)
from billing.notifications import document_notices
from billing.payments import automatic, gateway_access
from billing.quotas import quotas
from billing.quotas.quotas import Setter
from billing.quotas.status import load_statuses
from billing.quotas.terms import QuotaTerms
from billing.receivables import settlement
from billing.rules.money import Money
from billing.wallets import grants
from portal.core.outbox import outbox
from portal.core.tenants.models import Tenant
from portal.dev.demo_data import cards, slurm
from portal.dev.demo_data.months import MONTHS, months_before

WHO = "demonstration"
CLOSES = timedelta(days=1, hours=9)  # after the first of the month that follows
PAYS_AFTER = {"halcyon-labs": 6, "biophysik": 10, "lakeside": 30, "orbit-robotics": 9}  # days
LATE = {("halcyon-labs", 4): 78, ("lakeside", 6): 67}  # days, by tenant and number of the month
NOT_PAID = {
    ("halcyon-labs", 10),  # not due yet
    ("biophysik", 10),  # its transfer waits to be matched
    ("orbit-robotics", 9),  # suspended
    ("orbit-robotics", 10),
}
CREDITED = ("biophysik", 7)
BY_CARD = {("lakeside", 9): 26}  # days; and disputed since
TOPS_UP_FROM = 7  # after each close, which uses the wallet up
DISPUTED = timedelta(days=2)  # ago
MANUAL_LINES = (
    (8, "lakeside", "Move of 40 TB from the old cluster", "480.00"),
    (10, "lakeside", "Reservation of 48 h100 for next year", "264000.00"),  # waits for approval
)
ROUNDS = (11, 25)  # days of a month on which reminders are written


def live(*, moment: datetime) -> None:
    """All that happened in the year, in its order; done again, nothing changes."""
    months = months_before(moment)
    _grant("welcome", 2_500_00, months[0], GrantKind.GIFT, "Welcome to the cluster")
    for number, month in enumerate(months[: MONTHS - 1]):
        following = months[number + 1]
        closes_at = following + CLOSES
        _add_lines(number, month)
        _settle(months, closes_at)
        _close(month, on=closes_at, now=moment)
        _send(closes_at)
        if number >= TOPS_UP_FROM:
            _top_up(closes_at + timedelta(hours=1))
        _remind(months, following, moment)
    _remind(months, months[MONTHS], moment)
    _settle(months, moment)
    _grant("prepaid", 160_000_00, months[MONTHS], GrantKind.TOP_UP, "SEPA transfer 4471-20")
    if gateway_access.is_sandbox():
        (disputed,) = (one for one in _invoices(months[9]) if one.tenant.slug == "lakeside")
        cards.dispute(invoice=disputed, moment=moment - DISPUTED)
    _set_budgets(moment)
    _preview(months[11], moment)


def _add_lines(number: int, month: datetime) -> None:
    for place, slug, description, net in MANUAL_LINES:
        tenant = Tenant.objects.get(slug=slug)
        if place == number and not ManualLine.objects.filter(tenant=tenant, description=description).exists():
            manual_lines.add_manual_line(
                tenant=tenant,
                description=description,
                net=Money.of(net, "USD"),
                reason="agreed by contract",
                by=WHO,
                on=month.date(),
            )


def _close(month: datetime, *, on: datetime, now: datetime) -> None:
    """On the morning of the 2nd."""
    outcomes = month_close.Outcome
    for closed in month_close.close_month(
        tenants=Tenant.objects.order_by("pk"), year=month.year, month=month.month, moment=on, now=now
    ):
        if closed.outcome not in {outcomes.ISSUED, outcomes.ALREADY, outcomes.PENDING_APPROVAL}:
            raise RuntimeError(f"{closed.tenant}: {closed.outcome}: {closed.reason}")


def _invoices(month: datetime) -> Iterator[Invoice]:
    """Of that month, wherever it begins."""
    middle = month + timedelta(days=14)
    rows = Invoice.objects.issued().filter(period_start__lt=middle, period_end__gt=middle)
    yield from rows.exclude(kind=DocumentKind.CREDIT_NOTE).select_related("tenant").order_by("pk")


def _settle(months: Sequence[datetime], until: datetime) -> None:
    """What came until then: each tenant pays as it does, one by card; one is credited in part."""
    for invoice in Invoice.objects.all().unpaid().select_related("tenant").order_by("pk"):
        slug, middle = invoice.tenant.slug, invoice.period_start + timedelta(days=14)
        number = sum(month <= middle for month in months) - 1
        if invoice.issued_on is None:
            continue
        credited_on = invoice.issued_on + timedelta(days=4)
        if (slug, number) == CREDITED and credited_on <= until.date() and not invoice.credit_notes.exists():
            credit_notes.issue_credit_note(
                invoice=invoice,
                position=1,
                net=Money.of("180.00", invoice.currency),
                reason="Jobs lost when the cooling failed: agreed by telephone",
                by=WHO,
                on=credited_on,
            )
        if (slug, number) in NOT_PAID:
            continue
        by_card = (slug, number) in BY_CARD and gateway_access.is_sandbox()
        days = BY_CARD[slug, number] if by_card else LATE.get((slug, number), PAYS_AFTER[slug])
        paid_on = invoice.issued_on + timedelta(days=days)
        if paid_on > until.date():
            continue
        if by_card:
            on = datetime.combine(paid_on, time(14, tzinfo=UTC))
            cards.pay(invoice=invoice, by="ann@demo.example", moment=on)
            continue
        settlement.record_payment(
            invoice=invoice,
            amount=settlement.load_balance(invoice=invoice, on=paid_on).due,
            received_on=paid_on,
            reference=f"SEPA {invoice.number}",
            recorded_by=WHO,
        )


def _remind(months: Sequence[datetime], month: datetime, moment: datetime) -> None:
    for day in ROUNDS:
        on = month.replace(day=day) + timedelta(hours=9)
        if on <= moment:
            _settle(months, on)
            dunning_run.run_dunning(moment=on)
            slurm.block_suspended(moment=on)
            _send(on)


def _send(moment: datetime) -> None:
    """Documents wait for their PDF, which the worker renders later, and go without it then."""
    delivery.send_notices(moment=moment)
    delivery.send_notices(moment=moment + document_notices.LONGEST)


def _grant(key: str, amount: int, moment: datetime, kind: GrantKind, why: str) -> None:
    """In cents, to the wallet of Halcyon Labs."""
    wallet = Wallet.objects.get(tenant__slug="halcyon-labs")
    grants.grant(wallet=wallet, amount=amount, key=key, who=WHO, moment=moment, kind=kind, why=why)


def _top_up(moment: datetime) -> None:
    """A wallet that tops itself up from a card."""
    wallet = Wallet.objects.select_related("tenant").get(tenant__slug="halcyon-labs")
    rule = AutomaticTopUp.objects.filter(wallet=wallet).first() or automatic.set_rule(
        wallet=wallet,
        active=True,
        below=1_000_00,
        amount=5_000_00,
        most=20_000_00,
        by="ann@demo.example",
        moment=moment,
    )
    if (
        gateway_access.is_sandbox()
        and not TopUp.objects.filter(wallet=wallet, created_at__gte=moment).exists()
    ):
        cards.top_up(wallet=wallet, rule=rule, moment=moment)


def _set_budgets(moment: datetime) -> None:
    """One nearly used, one far from it."""
    halcyon = Tenant.objects.get(slug="halcyon-labs")
    amount = _nearly_used(halcyon, moment)
    for name, terms in (
        ("everything", _monthly(amount)),
        ("evaluation", _monthly(Decimal(15_000), account="llm-eval")),
    ):
        quotas.set_quota(tenant=halcyon, name=name, terms=terms, by=Setter.OPERATOR, moment=moment)


def _preview(month: datetime, moment: datetime) -> None:
    """Asked for, and done by the worker: all but one can be issued."""
    name = f"{month:%Y-%m}"
    if not CloseRun.objects.filter(month=name).exists():
        with transaction.atomic():
            close_runs.request_run(month=name, kind=CloseKind.PREVIEW, by=WHO, moment=moment)
            outbox.add("billing.tasks.closes_due")


def _monthly(amount: Decimal, *, account: str = "") -> QuotaTerms:
    return QuotaTerms(
        measure=QuotaMeasure.MONEY,
        amount=amount,
        every=QuotaEvery.MONTH,
        account=account,
        forecasts=("100%",),
    )


def _nearly_used(tenant: Tenant, moment: datetime) -> Decimal:
    """A budget in whole hundreds of dollars, of which the running month has used some 94 %."""
    supposed, _ = quotas.suppose_quota(
        tenant=tenant, name="everything", terms=_monthly(Decimal(100)), by=Setter.OPERATOR, moment=moment
    )
    (status,) = load_statuses([supposed], moment=moment)
    return Decimal(max(1, int(status.figure.used) * 106 // 10_000)) * 100
