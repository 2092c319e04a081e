"""Saved means of payment: what may be shown of them, which is charged, and what became of them."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from billing.models import Archive, MethodState, SavedMethod, SignUp, SignUpState
from billing.payments import card_notices, gateway_access
from billing.payments.gateway_access import CollectionError
from billing.payments.gateways.base import CallOutcome, Gateway, GatewayError, Method
from portal.core.outbox import outbox
from portal.core.tenants.models import Tenant

RENEWED = ("last4", "exp_month", "exp_year", "fingerprint")
"""What changes when a network puts another card in the place of one."""


@transaction.atomic
def save_method(*, tenant: Tenant, method: Method, moment: datetime) -> SavedMethod | None:
    """Keep what may be shown of a means of payment that was saved, and charge it from now on. Again: as it is now.

    One that its network renewed is as good as a new one: what refused it is forgotten. None, and nothing is written,
    for a tenant that has left meanwhile; one that was removed stays as it is.
    """
    Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
    values = {
        "kind": method.kind,
        "brand": method.brand,
        "last4": method.last4,
        "exp_month": method.exp_month,
        "exp_year": method.exp_year,
        "fingerprint": method.fingerprint,
    }
    existing = SavedMethod.objects.filter(external_id=method.id).first()
    if Archive.objects.filter(tenant=tenant).exists():
        return None
    if existing is not None and existing.state == MethodState.GONE:
        return existing
    if existing is not None:
        SavedMethod.objects.filter(pk=existing.pk).update(**values)
        if any(getattr(existing, name) != values[name] for name in RENEWED):
            _renew_method(existing, moment)
        existing.refresh_from_db()
        return existing
    SavedMethod.objects.filter(tenant=tenant, preferred=True).update(preferred=False)
    if SignUp.objects.filter(tenant=tenant, state=SignUpState.CARD).exists():
        outbox.add("billing.tasks.advance_sign_up", tenant_id=tenant.pk)
    return SavedMethod.objects.create(
        tenant=tenant, external_id=method.id, preferred=True, added_at=moment, **values
    )


def _renew_method(method: SavedMethod, moment: datetime) -> None:
    """The tenant's row is locked by whoever calls."""
    rows = SavedMethod.objects.filter(pk=method.pk)
    rows.update(added_at=moment)
    if rows.filter(state=MethodState.REFUSED).update(state=MethodState.USABLE):
        others = SavedMethod.objects.filter(tenant=method.tenant_id, preferred=True)
        if not others.exists():
            rows.update(preferred=True)


@transaction.atomic
def make_preferred(*, method: SavedMethod) -> None:
    """Charge this one from now on, and no other; again, nothing changes.

    Raises CollectionError, and leaves what is charged now, where this one was refused or removed meanwhile.
    """
    Tenant.objects.select_for_update(no_key=True).get(pk=method.tenant_id)
    row = SavedMethod.objects.get(pk=method.pk)
    if row.state != MethodState.USABLE:
        raise CollectionError("saved-method-gone", method=row)
    SavedMethod.objects.filter(tenant=row.tenant_id, preferred=True).exclude(pk=row.pk).update(
        preferred=False
    )
    SavedMethod.objects.filter(pk=row.pk).update(preferred=True)


def remove_method(*, method: SavedMethod, gateway: Gateway) -> None:
    """Remove it at the gateway and here; one that is gone there already is gone."""
    try:
        gateway.detach(method.external_id, key=gateway_access.idempotency_key("detach", method.pk))
    except GatewayError as error:
        if error.outcome is not CallOutcome.REFUSED:
            raise
    set_state(method.external_id, MethodState.GONE)


def handle_removed(external_id: str, *, moment: datetime) -> None:
    """It was removed, and not here: as `set_state`, and its owner is told where nothing else can be charged."""
    card = SavedMethod.objects.filter(external_id=external_id).exclude(state=MethodState.GONE).first()
    with transaction.atomic():
        set_state(external_id, MethodState.GONE)
        if card is not None:
            card_notices.notify_removed_card(card, moment=moment)


def set_state(external_id: str, state: MethodState, *, tried: datetime | None = None) -> None:
    """What became of it; one that is not usable is not charged, and the newest usable one is instead.

    `tried`: when that was asked; nothing where it was renewed since.
    """
    with transaction.atomic():
        owner = SavedMethod.objects.filter(external_id=external_id).values("tenant")
        Tenant.objects.select_for_update(no_key=True).filter(pk__in=owner).first()
        row = SavedMethod.objects.select_for_update().filter(external_id=external_id).first()
        if row is None or row.state == MethodState.GONE or (tried is not None and tried < row.added_at):
            return
        row.state = state
        was, row.preferred = row.preferred, False
        row.save()
        heir = (
            SavedMethod.objects.filter(tenant=row.tenant_id, state=MethodState.USABLE)
            .order_by("-added_at")
            .first()
        )
        if was and heir is not None:
            SavedMethod.objects.filter(pk=heir.pk).update(preferred=True)
