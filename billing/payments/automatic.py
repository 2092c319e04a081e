"""Topping wallets up by themselves: once each time that one falls below its mark, up to so much a month.

Whether it fires is decided under the wallet's row; the time at which it fell is part of a unique key. So two
rounds at once, a kill anywhere and a payment that takes days still buy once. What was refused stops it until
another card is there, or somebody sets it anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Sum

from billing.models import (
    IN_FLIGHT,
    UNDER_WAY,
    Archive,
    AttemptState,
    AutomaticTopUp,
    EntrySide,
    EventState,
    GatewayEvent,
    GrantKind,
    MethodState,
    PaymentAttempt,
    SavedMethod,
    TopUp,
    Wallet,
    WalletEntry,
)
from billing.payments import charge_attempts, customers, top_ups
from billing.payments.gateway_access import CollectionError
from billing.payments.gateways.base import Gateway
from billing.rules.money import Money
from billing.rules.period import period_starting_in
from billing.wallets import entries

AT_ONCE = 200
SLICE = 200  # entries looked at in one query
BY = "automatic top-up"
REFUSED = (AttemptState.FAILED, AttemptState.NEEDS_ACTION)


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a wallet's automatic top-up would fire; `stopped` and `full` say in a sentence why not."""

    stopped: str = ""
    full: str = ""


def set_rule(
    *, wallet: Wallet, active: bool, below: int, amount: int, most: int, by: str, moment: datetime
) -> AutomaticTopUp:
    """Set it, or turn it off; set again, what was refused before is forgotten. Raises CollectionError."""
    if active:
        customers.refuse_archived(wallet.tenant)
        top_ups.gateway_amount(amount, wallet.unit)
        if below < 0:
            raise CollectionError("top-up-threshold")
        if most < amount:
            raise CollectionError("top-ups-most")
    values = {
        "active": active,
        "threshold": below,
        "amount": amount,
        "monthly_limit": most,
        "set_at": moment,
        "set_by": by,
    }
    row, _ = AutomaticTopUp.objects.update_or_create(
        wallet=wallet, defaults=values | {"tenant_id": wallet.tenant_id}
    )
    return row


def turn_off(*, wallet: Wallet, by: str, moment: datetime) -> None:
    """Nothing is bought by itself any more, also nothing that was not sent yet. Again: it is off."""
    AutomaticTopUp.objects.filter(wallet=wallet, active=True).update(active=False, set_by=by, set_at=moment)


def list_due_rules() -> list[AutomaticTopUp]:
    """Rules of wallets below their mark that have a card, no top-up under way, and nothing that needs review.

    None of a tenant that has left. One query.
    """
    rules = AutomaticTopUp.objects.filter(
        active=True, wallet__balance__lt=F("threshold"), tenant__archive=None
    )
    usable = SavedMethod.objects.filter(tenant=OuterRef("tenant"), preferred=True, state=MethodState.USABLE)
    rules = rules.filter(Exists(usable))
    flying = PaymentAttempt.objects.filter(UNDER_WAY, top_up__isnull=False)
    in_review = GatewayEvent.objects.filter(state=EventState.NEEDS_REVIEW).exclude(tenant_slug="")
    rules = rules.exclude(wallet__in=flying.values("top_up__wallet"))
    rules = rules.exclude(tenant__slug__in=in_review.values("tenant_slug"))
    return list(rules.select_related("wallet__tenant", "tenant").order_by("pk")[:AT_ONCE])


def fire_rule(*, rule: AutomaticTopUp, gateway: Gateway, moment: datetime) -> PaymentAttempt | None:
    """Top the wallet up if it is to be; None where it is not. By two at once, or again after a kill: once.

    Raises GatewayError where the outcome is not known yet; the attempt stands and is followed later.
    """
    if _usable_method(rule.tenant_id) is None:
        return None
    customer = customers.get_customer(rule.tenant, gateway=gateway, moment=moment)
    attempt = prepare_top_up(rule=rule, customer=customer, moment=moment)
    if attempt is not None:
        charge_attempts.follow_attempt(attempt=attempt, gateway=gateway, moment=moment)
        attempt.refresh_from_db()
    return attempt


@transaction.atomic
def prepare_top_up(*, rule: AutomaticTopUp, customer: str, moment: datetime) -> PaymentAttempt | None:
    """Commit the attempt, to be sent; None where nothing is to be bought now. The wallet's row is locked meanwhile."""
    wallet = entries.locked([rule.wallet_id])[rule.wallet_id]
    rule = AutomaticTopUp.objects.select_for_update().get(pk=rule.pk)
    method = _usable_method(rule.tenant_id)
    if not rule.active or method is None or wallet.balance >= rule.threshold:
        return None
    if Archive.objects.filter(tenant=rule.tenant_id).exists():
        return None
    if PaymentAttempt.objects.filter(UNDER_WAY, top_up__wallet=wallet).exists():
        return None
    stand = check_readiness(rule, moment=moment)
    if stand.stopped or stand.full:
        return None
    top_up, is_new = TopUp.objects.get_or_create(
        wallet=wallet,
        crossing=find_crossing(wallet, rule.threshold),
        defaults={
            "tenant_id": wallet.tenant_id,
            "amount": rule.amount,
            "created_at": moment,
            "requested_by": BY,
        },
    )
    if not is_new and top_up.attempts.filter(state=AttemptState.SUCCEEDED).exists():
        return None  # its credit was taken back since: people decide
    if top_up.amount != rule.amount:  # set anew since it was refused
        top_up.amount = rule.amount
        top_up.save(update_fields=["amount"])
    return top_ups.make_attempt(top_up, customer, method, moment)


def check_readiness(rule: AutomaticTopUp, *, moment: datetime) -> Readiness:
    """How it stands now. Four queries."""
    newest = (
        PaymentAttempt.objects.filter(top_up__wallet=rule.wallet_id, top_up__crossing__isnull=False)
        .order_by("-created_at")
        .first()
    )
    method = _usable_method(rule.tenant_id)
    stopped = ""
    if method is None:
        stopped = "No card is saved that can be charged: add one, and it goes on."
    elif (
        newest is not None
        and newest.state in REFUSED
        and newest.created_at >= rule.set_at
        and newest.method_id == method.pk
        and newest.created_at >= method.added_at  # not renewed since
    ):
        why = newest.message or "The card was refused."
        if newest.state == AttemptState.NEEDS_ACTION:
            why = "The bank wants to be asked by its customer each time."
        stopped = f"Stopped: {why} It goes on with another card, or when you set it anew."
    elif newest is not None and _is_out_of_bounds(newest, rule, moment):
        stopped = f"Stopped: {newest.message} It is tried again after a day, or when you set another amount."
    elif _has_clawback(rule):
        stopped = (
            "Stopped: credit that was bought was given back, or its payment is disputed. "
            "It goes on when you set it anew."
        )
    full = ""
    if _bought_this_month(rule, moment) + rule.amount > rule.monthly_limit:
        most = Money.from_minor(rule.monthly_limit, rule.wallet.unit).text
        full = f"This month's {most} {rule.wallet.unit} are bought: it goes on next month."
    return Readiness(stopped, full)


def find_crossing(wallet: Wallet, below: int) -> int:
    """The newest entry by which the wallet fell below the mark, or by which a top-up did not lift it above; 0 for none.

    A top-up that was not enough is so followed by the next one. For a caller that holds the wallet's row.
    """
    balance, before = wallet.balance, None
    while True:
        rows = WalletEntry.objects.filter(wallet=wallet, side=EntrySide.BALANCE)
        if before is not None:
            rows = rows.filter(pk__lt=before)
        columns = rows.order_by("-pk").values_list(
            "pk", "amount", "grant__kind", "grant__amount", "day", "invoice"
        )
        batch = list(columns[:SLICE])
        for pk, amount, kind, granted, day, invoice in batch:
            balance -= amount
            bought = kind == GrantKind.TOP_UP and amount == granted and day is None and invoice is None
            if balance >= below or bought:
                return int(pk)
            before = pk
        if len(batch) < SLICE:
            return before or 0


def _is_out_of_bounds(newest: PaymentAttempt, rule: AutomaticTopUp, moment: datetime) -> bool:
    """Whether the gateway found the amount too small or too large a short time ago, and nobody set it anew since."""
    is_refused = newest.state == AttemptState.CANCELED and newest.code in charge_attempts.OUT_OF_BOUNDS
    return (
        is_refused
        and newest.created_at >= rule.set_at
        and newest.created_at > moment - charge_attempts.BOUNDS_HOLD
    )


def _has_clawback(rule: AutomaticTopUp) -> bool:
    """Whether bought credit went again since it was set: what was given back is not to be bought anew by itself."""
    rows = WalletEntry.objects.filter(wallet=rule.wallet_id, side=EntrySide.GRANTED, amount__gt=0)
    return rows.filter(at__gte=rule.set_at).exists()


def _bought_this_month(rule: AutomaticTopUp, moment: datetime) -> int:
    """What it bought in the calendar month of the tenant's zone, or is buying."""
    zone: ZoneInfo = rule.tenant.zone
    today = moment.astimezone(zone)
    month = period_starting_in(today.year, today.month, zone=zone, anchor_day=1)
    rows = PaymentAttempt.objects.filter(
        top_up__wallet=rule.wallet_id,
        top_up__crossing__isnull=False,
        created_at__gte=month.start,
        state__in=(*IN_FLIGHT, AttemptState.SUCCEEDED),
    )
    return int(rows.aggregate(sum=Sum("amount"))["sum"] or 0)


def _usable_method(tenant: int) -> SavedMethod | None:
    return SavedMethod.objects.filter(tenant=tenant, preferred=True, state=MethodState.USABLE).first()
