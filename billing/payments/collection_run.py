"""A round of collecting: what was left behind is finished, what was told is applied, what is due is charged.

It finds everything from the tables, so that rounds may be missed, doubled, or killed anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar

import structlog
from django.db.models import F, Q

from billing.models import (
    AttemptState,
    AutomaticTopUp,
    CheckoutSession,
    CheckoutState,
    Invoice,
    PaymentAttempt,
    PaymentRefund,
    RefundState,
)
from billing.payments import (
    automatic,
    charge_attempts,
    chargeable_invoices,
    checkout_sessions,
    customers,
    gateway_access,
    refunds,
    webhook_events,
)
from billing.payments.gateways.base import CallOutcome, Gateway, GatewayError
from billing.receivables import credit_balance
from portal.core import locks
from portal.core.locks import Work

LOOK_AGAIN = timedelta(minutes=10)
"""How long a page or a payment under way is left to what the gateway tells, before it is asked."""
DISTANCES = (
    (timedelta(hours=1), LOOK_AGAIN),
    (timedelta(days=1), timedelta(hours=1)),
    (timedelta(days=4000), timedelta(hours=6)),
)
"""(Up to which age, how long after the last look) the gateway is asked again about what is under way."""
AT_ONCE = 200
OPENING = timedelta(minutes=1)
"""How long whoever opens a page is left alone with it."""
PATIENCE = 3
"""Calls without an answer, one after the other, after which a round ends: each may have taken 20 seconds."""
LONGEST_AGO = F("checked_at").asc(nulls_first=True)
"""Order by it, and what fails each time comes after what has not been tried."""

Clock = Callable[[], datetime]
"""What time it is: a round may take long, and the gateway forgets keys by its own time."""

ONLY_FOR_BOOKS = frozenset(("Balance: read", "Balance transactions: read", "Payouts: read"))
"""Rights without which money is collected all the same, and only the books cannot be compared."""

T = TypeVar("T")

log = structlog.get_logger("billing.payments")


@dataclass(slots=True)
class CollectionTally:
    """What a round did, in numbers; `troubles` in sentences."""

    followed: int = 0
    applied: int = 0
    charged: int = 0
    not_chargeable: int = 0
    unanswered: int = 0  # calls without an answer, one after the other, up to now
    troubles: list[str] = field(default_factory=list)


def run_collection(*, gateway: Gateway, clock: Clock) -> CollectionTally:
    """One round; nothing while another is under way. Where the key is refused, only whether it is accepted again.

    Where the gateway does not answer, it ends: the next one goes on with what waited the longest.
    """
    with locks.alone(Work.COLLECTING) as ours:
        return _collect(gateway, clock) if ours else CollectionTally()


def _collect(gateway: Gateway, clock: Clock) -> CollectionTally:
    done, moment = CollectionTally(), clock()
    if gateway_access.is_locked_out() and not _try_unlock(gateway, done, moment):
        return done
    # What is known there comes first: what is left to send here may be paid already.
    polls = _act_on_all(
        done, [None], lambda _: webhook_events.poll_events(gateway=gateway, moment=clock()), clock
    )
    done.applied = _act_on_all(
        done,
        [*webhook_events.list_waiting(before=moment), *webhook_events.list_reviewable(moment=moment)],
        lambda event: webhook_events.apply_event(event, gateway=gateway, moment=clock()),
        clock,
    )
    if polls and not webhook_events.is_behind(moment=moment):
        done.followed += _act_on_all(
            done,
            _list_unfinished(moment),
            lambda attempt: charge_attempts.follow_attempt(attempt=attempt, gateway=gateway, moment=clock()),
            clock,
        )
        done.followed += _act_on_all(
            done,
            _list_unfinished_refunds(moment),
            lambda refund: refunds.follow_refund(refund=refund, gateway=gateway, moment=clock()),
            clock,
        )
    done.followed += _act_on_all(
        done,
        _list_open_pages(moment),
        lambda checkout: checkout_sessions.follow_session(checkout=checkout, gateway=gateway, moment=clock()),
        clock,
    )
    _act_on_all(
        done,
        _list_outlived_pages(moment),
        lambda checkout: checkout_sessions.close_session(checkout=checkout, gateway=gateway, moment=clock()),
        clock,
    )
    _act_on_all(
        done,
        customers.list_changed_contacts()[:AT_ONCE],
        lambda account: customers.send_contacts(account=account, gateway=gateway, moment=clock()),
        clock,
    )
    _act_on_all(
        done,
        _list_outdated_pages(),
        lambda invoice: checkout_sessions.close_invoice_pages(
            invoice=invoice, gateway=gateway, moment=clock()
        ),
        clock,
    )
    credit_balance.use_balances(moment=clock())  # behind the pages: one that has ended frees its invoice
    if polls and not webhook_events.is_behind(moment=moment):
        _charge_invoices(done, gateway, clock, moment)
        _act_on_all(
            done, automatic.list_due_rules(), lambda rule: _fire_rule(done, rule, gateway, clock), clock
        )
    return done


def _charge_invoices(done: CollectionTally, gateway: Gateway, clock: Clock, moment: datetime) -> None:
    for invoice in chargeable_invoices.list_chargeable(moment=moment, limit=AT_ONCE):
        if gateway_access.is_locked_out() or done.unanswered >= PATIENCE:
            break
        _charge_invoice(done, invoice, gateway, clock)


def _fire_rule(done: CollectionTally, rule: AutomaticTopUp, gateway: Gateway, clock: Clock) -> None:
    if automatic.fire_rule(rule=rule, gateway=gateway, moment=clock()) is not None:
        done.charged += 1


def _charge_invoice(
    done: CollectionTally, invoice: chargeable_invoices.ChargeableInvoice, gateway: Gateway, clock: Clock
) -> None:
    def ask(due_invoice: chargeable_invoices.ChargeableInvoice) -> None:
        checkout_sessions.close_invoice_pages(invoice=due_invoice.invoice, gateway=gateway, moment=clock())
        outcome = charge_attempts.charge_invoice(
            invoice=due_invoice.invoice, gateway=gateway, moment=clock(), on=due_invoice.on
        )
        if isinstance(outcome, charge_attempts.NotChargeableError):
            done.not_chargeable += 1
        else:
            done.charged += 1

    _act_on_all(done, [invoice], ask, clock)


def _try_unlock(gateway: Gateway, done: CollectionTally, moment: datetime) -> bool:
    """The key is tried for all that it has to be able to do, not for what it was refused last."""
    try:
        missing = gateway.missing_rights(
            key=gateway_access.idempotency_key("rights", f"{moment:%Y%m%dT%H%M%S%f}")
        )
    except GatewayError as error:
        done.troubles.append(str(error))
        return False
    if missing := [right for right in missing if right not in ONLY_FOR_BOOKS]:
        done.troubles.append(gateway_access.describe_missing_rights(missing))
        gateway_access.lock_out(done.troubles[-1])
        return False
    gateway_access.unlock()
    return True


def _list_unfinished(moment: datetime) -> Iterable[PaymentAttempt]:
    """What was not answered first; then what takes its bank days, of which the gateway tells by itself."""
    rows = PaymentAttempt.objects.select_related("method", "invoice", "tenant").order_by(
        LONGEST_AGO, "created_at"
    )
    unanswered = rows.filter(state__in=(AttemptState.READY, AttemptState.UNKNOWN))
    yield from unanswered.filter(resend=True)[:AT_ONCE]
    yield from unanswered.filter(_is_check_due(moment), resend=False)[:AT_ONCE]
    yield from rows.filter(_is_check_due(moment), state=AttemptState.PROCESSING)[:AT_ONCE]


def _is_check_due(moment: datetime) -> Q:
    """At growing distances: what has not changed for long will not change within the next minutes."""
    condition = Q(checked_at=None)
    for age, distance in DISTANCES:
        condition |= Q(created_at__gt=moment - age, checked_at__lte=moment - distance)
    return condition


def _list_open_pages(moment: datetime) -> Iterable[CheckoutSession]:
    """Those that brought no answer first; then those that were used; then those looked at the longest ago."""
    rows = CheckoutSession.objects.select_related("attempt", "tenant")
    rows = rows.order_by(LONGEST_AGO, "created_at")
    unanswered = rows.filter(
        state__in=(CheckoutState.READY, CheckoutState.UNKNOWN), created_at__lt=moment - OPENING
    )
    yield from unanswered[:AT_ONCE]
    yield from rows.filter(attempt__state=AttemptState.OFFERED, attempt__page_used=True)[:AT_ONCE]
    left_open = rows.filter(
        _is_check_due(moment), state=CheckoutState.OPEN, created_at__lt=moment - LOOK_AGAIN
    )
    yield from left_open.exclude(attempt__page_used=True)[:AT_ONCE]


def _list_outlived_pages(moment: datetime) -> Iterable[CheckoutSession]:
    rows = CheckoutSession.objects.select_related("attempt", "tenant").order_by(LONGEST_AGO, "created_at")
    yield from rows.filter(state=CheckoutState.OPEN, created_at__lte=moment - checkout_sessions.PAGE_LIVES)[
        :AT_ONCE
    ]


def _list_outdated_pages() -> Iterable[Invoice]:
    """Invoices with an open page that asks for something else than what is due now: a transfer came, or a credit.

    Two queries, however many pages are open.
    """
    rows = CheckoutSession.objects.filter(state=CheckoutState.OPEN, attempt__invoice__isnull=False)
    opened = list(rows.select_related("attempt__invoice").order_by("created_at"))
    invoices = Invoice.objects.filter(attempts__checkout__in=[checkout.pk for checkout in opened])
    left = dict(invoices.to_settle().values_list("pk", "balance__left"))
    for checkout in opened:
        attempt = checkout.attempt
        if attempt is None or attempt.invoice is None:
            continue
        if not checkout_sessions.is_current(attempt, due=left.get(attempt.invoice.pk, 0)):
            yield attempt.invoice


def _list_unfinished_refunds(moment: datetime) -> Iterable[PaymentRefund]:
    """What was not answered first; then what is under way, of which the gateway tells by itself."""
    rows = PaymentRefund.objects.select_related("attempt", "tenant").order_by(LONGEST_AGO, "created_at")
    yield from rows.filter(state__in=(RefundState.READY, RefundState.UNKNOWN))[:AT_ONCE]
    yield from rows.filter(_is_check_due(moment), state=RefundState.PENDING)[:AT_ONCE]


def _act_on_all(done: CollectionTally, things: Iterable[T], act: Callable[[T], object], clock: Clock) -> int:
    """Act on each; one's trouble stops no other, but a refused key stops all, as does a gateway that is away.

    How many went well.
    """
    well = 0
    for thing in things:
        if done.unanswered >= PATIENCE:
            break
        try:
            act(thing)
        except GatewayError as error:
            _add_trouble(done, thing, str(error))
            gateway_access.handle_auth_error(error, moment=clock())
            done.unanswered = done.unanswered + 1 if error.outcome is CallOutcome.UNKNOWN else 0
            if error.outcome is CallOutcome.LOCKED_OUT:
                break
        except gateway_access.UnmatchedObjectError as error:
            _add_trouble(done, thing, str(error))
        except Exception as error:
            log.exception("collecting failed", what=str(thing))
            _add_trouble(done, thing, f"{type(error).__name__}: the log says more.")
        else:
            well += 1
            done.unanswered = 0
    return well


def _add_trouble(done: CollectionTally, thing: object, reason: str) -> None:
    done.troubles.append(f"{thing}: {reason}" if thing is not None else reason)
    log.warning("not collected", what=str(thing), why=reason)
