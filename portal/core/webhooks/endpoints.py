"""Making, changing, rotating, turning off and deleting webhooks: what pages and API do alike."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models import QuerySet

from portal.core.events.models import OPERATORS, EventType
from portal.core.tenants.models import Tenant, User
from portal.core.vault.sealing import lacking, seal
from portal.core.webhooks import signing
from portal.core.webhooks.addresses import Target, WebhookError
from portal.core.webhooks.models import Delivery, DeliveryState, Webhook, WebhookState

MOST = 20  # of one tenant, or of all operators
OVERLAP = timedelta(hours=24)
LONGEST_OVERLAP = timedelta(hours=168)
LOCK = 0x0E7E28  # of a transaction that makes one; the number only has to be ours
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,58}[a-z0-9])?\Z")


@dataclass(frozen=True, slots=True)
class Saved:
    """A webhook; with its secret, which nobody sees again, where it is new or its secret is."""

    webhook: Webhook
    secret: str = ""


def event_types(tenant: Tenant | None) -> list[str]:
    """What a webhook of the tenant can get; an operator's can get everybody's."""
    return [str(one) for one in EventType if tenant is None or one not in OPERATORS]


def of(tenant: Tenant | None) -> QuerySet[Webhook]:
    """The webhooks of the tenant, or of the operators."""
    return Webhook.objects.filter(tenant=tenant)


@transaction.atomic
def put_webhook(
    *,
    tenant: Tenant | None,
    name: str,
    target: Target,
    types: Collection[str],
    maker: User,
    moment: datetime,
    is_active: bool = True,
) -> Saved:
    """Make the webhook of this name, or have the present one be so; only a new one has a secret to show.

    Called again it changes nothing. Raises WebhookError for a name that cannot be, an event type that there is not,
    more than 20 webhooks, and where no secret can be kept.
    """
    if not _NAME.match(name):
        raise WebhookError("name-invalid")
    valid = event_types(tenant)
    if unknown := sorted({*types} - {*valid}):
        raise WebhookError("event-type-unknown", type=unknown[0][:40], types=", ".join(valid))
    with (
        connection.cursor() as cursor
    ):  # of two that make the last possible one at once, or the same, one waits
        cursor.execute(
            "SELECT pg_advisory_xact_lock(%s, %s)", [LOCK, (tenant.pk if tenant else 0) & 0x7FFFFFFF]
        )
    row = of(tenant).select_for_update().filter(name=name).first()
    if row is not None:
        return _replace(row, target.url, sorted({*types}), is_active=is_active)
    if of(tenant).count() >= MOST:
        raise WebhookError("too-many", most=MOST)
    secret = _new_secret()
    row = Webhook.objects.create(
        tenant=tenant,
        name=name,
        url=target.url,
        event_types=sorted({*types}),
        secret=seal(secret),
        state=WebhookState.ACTIVE if is_active else WebhookState.OFF,
        maker=maker,
        created_at=moment,
        announced_at=moment,
    )
    return Saved(row, secret)


def _replace(row: Webhook, url: str, types: list[str], *, is_active: bool) -> Saved:
    if row.url != url:  # how another address answered says nothing of this one
        row.failing_since = row.paused_until = None
    row.url, row.event_types = url, types
    row.save(update_fields=["url", "event_types", "failing_since", "paused_until"])
    (turn_on if is_active else turn_off)(webhook=row)
    row.refresh_from_db()
    return Saved(row)


@transaction.atomic
def rotate_secret(*, webhook: Webhook, overlap: timedelta, moment: datetime) -> Saved:
    """A new secret; the present one signs as well for the overlap, and one from before it no longer.

    Each call makes another secret. Raises WebhookError for an overlap outside of 0 to 168 hours.
    """
    if not timedelta(0) <= overlap <= LONGEST_OVERLAP:
        raise WebhookError("overlap-invalid")
    row, secret = Webhook.objects.select_for_update().get(pk=webhook.pk), _new_secret()
    row.previous_secret, row.previous_until = row.secret, moment + overlap
    row.secret = seal(secret)
    row.save(update_fields=["secret", "previous_secret", "previous_until"])
    return Saved(row, secret)


def _new_secret() -> str:
    if why := lacking():
        raise WebhookError("no-keys", why=why)
    return signing.new_secret()


@transaction.atomic
def turn_off(*, webhook: Webhook, state: WebhookState = WebhookState.OFF) -> bool:
    """Send nothing more, and stop what waits; whether it was on. A second call changes nothing."""
    stopped = Webhook.objects.filter(pk=webhook.pk, state=WebhookState.ACTIVE).update(state=state)
    if stopped:
        waiting = Delivery.objects.waiting().filter(webhook=webhook.pk)
        waiting.update(state=DeliveryState.STOPPED, next_at=None)
    return bool(stopped)


def turn_on(*, webhook: Webhook) -> bool:
    """Send what happens from now on; whether it was off. What happened meanwhile is sent if somebody asks for it."""
    off = Webhook.objects.filter(pk=webhook.pk).exclude(state=WebhookState.ACTIVE)
    return bool(off.update(state=WebhookState.ACTIVE, failing_since=None, paused_until=None))


@transaction.atomic
def delete_webhook(*, webhook: Webhook) -> None:
    """Delete it with all its deliveries. Called again there is nothing left to do."""
    Webhook.objects.select_for_update().filter(
        pk=webhook.pk
    ).first()  # a worker writes to it in the same order
    Delivery.objects.filter(webhook=webhook.pk).delete()
    Webhook.objects.filter(pk=webhook.pk).delete()
