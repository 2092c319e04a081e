"""Webhooks in tests: made for an endpoint of 127.0.0.1, and a clock by which their deliveries are tried."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from typing import Any

from django.test import override_settings

from portal.core.events import events
from portal.core.events.models import EventType
from portal.core.tenants.models import Tenant, User
from portal.core.webhooks import addresses, deliveries, delivery_run, endpoints
from portal.core.webhooks.models import Webhook
from tests import builders
from tests.fakes.receiver import Receiver, receiving

LOOPBACK = [ip_network("127.0.0.0/8"), ip_network("::1/128")]


@dataclass
class Clock:
    """What the workers of a test read."""

    moment: datetime

    def __call__(self) -> datetime:
        return self.moment

    def passes(self, **span: float) -> datetime:
        self.moment += timedelta(**span)
        return self.moment


def a_clock() -> Clock:
    """Now, since receivers refuse what is older than five minutes."""
    return Clock(datetime.now(UTC))


@contextmanager
def inner_networks(**more: Any) -> Iterator[None]:
    """An instance whose webhooks may go to this machine, also by HTTP."""
    with override_settings(WEBHOOK_NETWORKS=LOOPBACK, WEBHOOK_ALLOW_HTTP=True, **more):
        yield


@contextmanager
def an_endpoint() -> Iterator[Receiver]:
    with inner_networks(), receiving() as receiver:
        yield receiver


def a_webhook(
    receiver: Receiver,
    tenant: Tenant | None,
    *types: str,
    path: str = "/hook",
    maker: User | None = None,
    name: str = "",
) -> Webhook:
    """A webhook that posts to the path of the receiver, which knows its secret."""
    email = f"ann@{tenant.slug}.example" if tenant else "op@cluster.example"
    person = maker or User.objects.filter(email=email).first()
    if person is None:
        person = builders.a_person(email, tenant) if tenant else builders.an_operator(email)
    saved = endpoints.put_webhook(
        tenant=tenant,
        name=name or path.strip("/"),
        target=addresses.resolve(receiver.url(path)),
        types=types,
        maker=person,
        moment=datetime.now(UTC),
    )
    receiver.secrets[path] = [saved.secret]
    return saved.webhook


def happens(
    tenant: Tenant | None, *keys: int, what: EventType = EventType.INVOICE_ISSUED, state: str = "issued"
) -> None:
    """Events about invoices of these numbers, committed."""
    for key in keys:
        events.record(what, kind="inv", key=key, state=state, tenant=tenant.pk if tenant else None)


def deliver(clock: Clock, *, jitter: float = 0.0) -> int:
    """What the workers do now: events get their places, and what is due is sent. How many attempts."""
    while deliveries.place_events(moment=clock()):
        pass
    return delivery_run.deliver_due(clock=clock, random=lambda: jitter)
