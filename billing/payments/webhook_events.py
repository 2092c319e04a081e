"""What the gateway tells of: stored once, and applied from the object as it stands when it is applied."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta

from django.db.models import F, Min, Q

from billing.models import (
    AttemptState,
    BillingAccount,
    CheckoutSession,
    EventState,
    GatewayAccount,
    GatewayEvent,
    Invoice,
    PaymentAttempt,
    PaymentDispute,
    PaymentRefund,
    SavedMethod,
    WalletScheme,
)
from billing.payments import (
    checkout_sessions,
    customers,
    disputes,
    gateway_access,
    refunds,
    saved_methods,
    sync,
)
from billing.payments.gateway_access import UnmatchedObjectError
from billing.payments.gateways.base import CallOutcome, Event, Gateway, GatewayError

OVERLAP = timedelta(minutes=10)
"""So much of what was read before is read again: the gateway lists an event a little after it happened."""
RETENTION = timedelta(days=29)  # by the gateway, 30
CHARGES_PER_SAVE = 100  # charges: a page of them
TRIES = 60  # an hour of rounds
TRIES_UNANSWERED = 24 * 60
AGAIN = timedelta(hours=1)
"""How long what needs review is left alone, before it is tried again."""
REVIEWED_AT_ONCE = 50
UNANSWERED = frozenset({CallOutcome.UNKNOWN, CallOutcome.RETRYABLE, CallOutcome.LOCKED_OUT})
"""What says nothing about the object that was asked for: the gateway is out, or keeps us out."""
TAGGED = frozenset({"payment_intent", "checkout.session"})
"""Kinds whose objects of ours always carry our tags."""


def store_event(event: Event, *, moment: datetime) -> bool:
    """Keep that something was told of, once; whether it was new. What another deployment tagged is kept as not ours."""
    if event.unread:
        return _store_unread(event, moment)
    tagged = event.object_kind in TAGGED
    foreign = tagged and not gateway_access.is_ours(event.tags)
    _, is_new = GatewayEvent.objects.get_or_create(
        pk=event.id,
        defaults={
            "type": event.type,
            "object_id": event.object_id,
            "object_kind": event.object_kind,
            "live": event.live,
            "created": event.created,
            "received_at": moment,
            "state": EventState.IGNORED if foreign else EventState.STORED,
            "tenant_slug": event.tags.get("ct_tenant", "")[:50] if gateway_access.is_ours(event.tags) else "",
            "reason": "It belongs to nothing of ours." if foreign else "",
        },
    )
    return is_new and not foreign


def _store_unread(event: Event, moment: datetime) -> bool:
    """What is not understood waits for somebody to look: told again, it would be as little understood."""
    row = {"type": event.type, "live": event.live, "created": event.created, "received_at": moment}
    GatewayEvent.objects.get_or_create(
        pk=event.id,
        defaults={**row, "state": EventState.NEEDS_REVIEW, "reason": event.unread, "applied_at": moment},
    )
    return False


def poll_events(*, gateway: Gateway, moment: datetime) -> int:
    """Store what happened since the last time, for whom no notification reaches; how many were new.

    As good as notifications, only later; both at once store each event once. Where the last time is longer ago
    than the gateway keeps events, the charges themselves are read.
    """
    gateway_account = gateway_access.get_gateway_account()
    oldest = int((moment - RETENTION).timestamp())
    if gateway_account.events_through < oldest:
        catch_up_charges(gateway=gateway, moment=moment)
    new, newest = 0, gateway_account.events_through
    since = max(gateway_account.events_through - int(OVERLAP.total_seconds()), oldest)
    for event in gateway.events(since=since):
        new += store_event(event, moment=moment)
        newest = max(newest, event.created)
    newest = max(
        newest, int((moment - gateway_access.CLOCKS_DIFFER).timestamp())
    )  # read that far, though nothing happened
    GatewayAccount.objects.filter(pk=gateway_account.pk, events_through__lt=newest).update(
        events_through=newest, charges_begun=None, charges_down_to=None
    )
    return new


def catch_up_charges(*, gateway: Gateway, moment: datetime) -> None:
    """Take over every charge of ours that events do not tell of, and what became of it: a database that is new, or
    was restored, knows nothing of them.

    Newest first; how far it came is kept, and after an error the next call goes on there. What is charged meanwhile,
    events tell of. Charges of others in the account are passed over.
    """
    gateway_account = gateway_access.get_gateway_account()
    begun = int(moment.timestamp())
    if gateway_account.charges_begun is None or gateway_account.charges_begun < begun - int(
        RETENTION.total_seconds()
    ):
        # From the newest on: of what was charged since an earlier beginning, events tell no more.
        gateway_account.charges_begun, gateway_account.charges_down_to = begun, None
        gateway_account.save(update_fields=["charges_begun", "charges_down_to"])
    since = _unknown_since(gateway_account, moment)
    for number, charge in enumerate(
        gateway.charges(since=since, until=gateway_account.charges_down_to), start=1
    ):
        if charge.tags.get("ct_deployment") == str(gateway_account.deployment):
            try:
                sync.apply_charge(charge, moment=moment)
            except UnmatchedObjectError as error:
                hold_for_review(f"charge {charge.id}", charge.id, "payment_intent", error, gateway, moment)
        if number % CHARGES_PER_SAVE == 0:
            GatewayAccount.objects.filter(pk=gateway_account.pk).update(charges_down_to=charge.created)
    GatewayAccount.objects.filter(pk=gateway_account.pk).update(charges_down_to=since)
    _catch_up_on_what_went_back(since, gateway, moment)


def _catch_up_on_what_went_back(since: int, gateway: Gateway, moment: datetime) -> None:
    for refund in gateway.refunds(since=since):
        try:
            refunds.apply_refund(refund, moment=moment)
        except UnmatchedObjectError as error:
            hold_for_review(f"refund {refund.id}", refund.id, "refund", error, gateway, moment)
    for dispute in gateway.disputes(since=since):
        try:
            disputes.apply_dispute(dispute, moment=moment)
        except UnmatchedObjectError as error:
            hold_for_review(f"dispute {dispute.id}", dispute.id, "dispute", error, gateway, moment)


def _unknown_since(gateway_account: GatewayAccount, moment: datetime) -> int:
    """The epoch second before which no charge of ours can lie that this database does not know.

    One that never read any: the gateway is asked no further back than the first invoice or wallet that could have
    been charged.
    """
    if gateway_account.events_through:
        return gateway_account.events_through - int(OVERLAP.total_seconds())
    firsts = [moment - RETENTION]
    issued = Invoice.objects.issued().aggregate(first=Min("issued_on"))["first"]
    if issued is not None:
        firsts.append(datetime.combine(issued, time(), tzinfo=UTC) - gateway_access.CLOCKS_DIFFER)
    opened = WalletScheme.objects.aggregate(first=Min("since"))["first"]
    if opened is not None:
        firsts.append(opened - gateway_access.CLOCKS_DIFFER)
    return int(min(firsts).timestamp())


def apply_event(event: GatewayEvent, *, gateway: Gateway, moment: datetime) -> None:
    """Read the object and take over how it stands; again, nothing more. Raises GatewayError to be tried again.

    What needs review is tried in the same way, and goes on needing it while it cannot be applied.
    """
    if event.state not in {EventState.STORED, EventState.NEEDS_REVIEW}:
        return
    row = GatewayEvent.objects.filter(pk=event.pk, state=event.state)
    try:
        why = _apply(event, gateway, moment)
    except UnmatchedObjectError as error:
        row.update(
            state=EventState.NEEDS_REVIEW, reason=str(error), tenant_slug=error.tenant, applied_at=moment
        )
        return
    except GatewayError as error:
        gateway_access.handle_auth_error(error, moment=moment)
        if error.code != "resource_missing":
            _record_failure(
                event, str(error), moment, most=TRIES_UNANSWERED if error.outcome in UNANSWERED else TRIES
            )
            raise
        why = str(error)
    except Exception as error:
        _record_failure(event, f"{type(error).__name__}: {error}", moment, most=TRIES)
        raise
    row.update(state=EventState.IGNORED if why else EventState.APPLIED, reason=why, applied_at=moment)


def _record_failure(event: GatewayEvent, reason: str, moment: datetime, *, most: int) -> None:
    """Try again later; after so many tries people look, and only its own tenant waits for it."""
    needs_review = event.state == EventState.NEEDS_REVIEW or event.tries + 1 >= most
    GatewayEvent.objects.filter(pk=event.pk, state=event.state).update(
        tries=F("tries") + 1,
        reason=reason,
        state=EventState.NEEDS_REVIEW if needs_review else EventState.STORED,
        tenant_slug=event.tenant_slug or (_tenant_of(event) if needs_review else ""),
        applied_at=moment if needs_review else None,
    )


def _tenant_of(event: GatewayEvent) -> str:
    """Whose object it is that cannot be read, where a row of ours has it; "" for none."""
    kinds = (PaymentAttempt.objects, CheckoutSession.objects, PaymentRefund.objects, PaymentDispute.objects)
    for rows in kinds:
        slug = rows.filter(external_id=event.object_id).values_list("tenant__slug", flat=True).first()
        if slug:
            return str(slug)
    return ""


def is_behind(*, moment: datetime) -> bool:
    """Whether something told of by then is not taken over yet: what is charged now may be paid already."""
    return GatewayEvent.objects.filter(state=EventState.STORED, received_at__lte=moment).exists()


def hold_for_review(
    name: str, about: str, kind: str, error: UnmatchedObjectError, gateway: Gateway, moment: datetime
) -> None:
    """Keep something of ours that belongs to nothing here, once: its tenant is charged nothing until people looked."""
    GatewayEvent.objects.get_or_create(
        pk=name,
        defaults={
            "type": "found",
            "object_id": about,
            "object_kind": kind,
            "live": gateway.live,
            "created": int(moment.timestamp()),
            "received_at": moment,
            "state": EventState.NEEDS_REVIEW,
            "reason": str(error),
            "tenant_slug": error.tenant,
        },
    )


def list_waiting(*, before: datetime) -> list[GatewayEvent]:
    """What was stored and not applied: a worker died, or the broker lost its call. What failed comes last."""
    return list(
        GatewayEvent.objects.filter(state=EventState.STORED, received_at__lte=before).order_by(
            "tries", "created"
        )[:500]
    )


def list_reviewable(*, moment: datetime) -> list[GatewayEvent]:
    """What needs review and is to be tried again: the gateway may answer by now, or its invoice be known."""
    rows = (
        GatewayEvent.objects.filter(state=EventState.NEEDS_REVIEW)
        .exclude(object_kind="")
        .filter(Q(applied_at=None) | Q(applied_at__lte=moment - AGAIN))
    )
    return list(rows.order_by(F("applied_at").asc(nulls_first=True), "created")[:REVIEWED_AT_ONCE])


def _apply(event: GatewayEvent, gateway: Gateway, moment: datetime) -> str:
    """Why it is not ours; '' where it was."""
    if event.live is not gateway.live:
        return "It is of the other mode, test or live."
    kind, name = event.object_kind, event.object_id
    if kind == "payment_intent":
        result: object = sync.read_charge(name, gateway=gateway, moment=moment)
    elif kind == "checkout.session":
        result = checkout_sessions.sync_session(
            session=gateway.find_session(name), gateway=gateway, moment=moment
        )
    elif kind == "refund":
        refund = gateway.find_refund(name)
        _sync_unread_charge(refund.charge, gateway, moment)
        result = refunds.apply_refund(refund, moment=moment)
    elif kind == "dispute":
        dispute = gateway.find_dispute(name)
        _sync_unread_charge(dispute.charge, gateway, moment)
        result = disputes.apply_dispute(dispute, moment=moment)
    elif kind in {"payment_method", "customer"}:
        result = _apply_change(event, gateway, moment)
    else:
        return f"Nothing is done about {event.type}."
    return "" if result is not None else "It belongs to nothing of ours."


def _sync_unread_charge(charge: str, gateway: Gateway, moment: datetime) -> None:
    """What is told of a charge may be told before it is paid; and a charge that is to be looked at may end with it."""
    paid = PaymentAttempt.objects.filter(external_id=charge, state=AttemptState.SUCCEEDED)
    if charge and not paid.exists():
        sync.read_charge(charge, gateway=gateway, moment=moment)


def _apply_change(event: GatewayEvent, gateway: Gateway, moment: datetime) -> object:
    if event.object_kind == "customer":
        if not BillingAccount.objects.filter(customer=event.object_id).exists():
            return None
        if not gateway.customer_exists(event.object_id):
            customers.forget_customer(event.object_id, moment=moment)
        return event
    existing = SavedMethod.objects.select_related("tenant").filter(external_id=event.object_id).first()
    if existing is None:
        return None
    gateway_method = gateway.find_method(event.object_id)
    if gateway_method.customer:
        saved_methods.save_method(tenant=existing.tenant, method=gateway_method, moment=moment)
    else:
        saved_methods.handle_removed(event.object_id, moment=moment)
    return existing
