"""The few things that most stories begin with, as plain functions.

Moments are written as people write them, in UTC: `"2026-03-01 10:00"`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from typing import TYPE_CHECKING, Any

from billing.catalog import plans
from billing.models import Plan, PlanVersion, Price, Seller, Subscription
from billing.models.plans import SELECTORS
from billing.rating import engine
from billing.rating import ingest as usage_ingest
from clusters.connectors.base import BadRow, BusyHour, BusySource, Reading, Row, UsageFact
from clusters.models import Account, Cluster
from portal.core.tenants import ownership
from portal.core.tenants.models import Membership, Role, Tenant, User

if TYPE_CHECKING:
    from billing.rating.ingest import IngestResult

LONG_AGO = date(2017, 1, 1)
LATER = datetime(2030, 1, 1, tzinfo=UTC)  # when everything in the tests has happened
PASSWORD = "correct horse battery"  # of every person here

PriceRow = tuple[str, Mapping[str, Sequence[str]], str, date]
"""Meter, selectors, unit price, first day: `("gpu-hour", {"qos": ["low"]}, "2.00", date(2026, 1, 1))`."""

_numbers = count(1000)


def at(text: str) -> datetime:
    """`"2026-03-01 10:00"` or `"2026-03-01"`, in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def a_cluster(name: str = "gpu1", *, complete_through: str | None = None, **fields: Any) -> Cluster:
    through = at(complete_through) if complete_through else None
    cluster, _ = Cluster.objects.get_or_create(name=name, defaults={"complete_through": through, **fields})
    return cluster


def a_plan(
    name: str = "standard",
    currency: str = "USD",
    *,
    prices: Iterable[PriceRow] = (("gpu-hour", {}, "2.00", LONG_AGO),),
    charges: Sequence[str] = ("gpu",),
    effective_from: date = LONG_AGO,
    settles: str = "invoice",
) -> Plan:
    """A plan, or one more version of it where it is there already."""
    defaults = {"currency": currency, "settles": settles}
    plan, _ = Plan.objects.get_or_create(name=name, defaults=defaults)
    version = PlanVersion.objects.create(plan=plan, effective_from=effective_from, charges=list(charges))
    for position, (meter, where, unit_price, since) in enumerate(prices):
        selected = {SELECTORS[key]: list(values) for key, values in where.items()}
        price = Price(
            version=version,
            meter=meter,
            position=position,
            unit_price=Decimal(unit_price),
            valid_from=since,
            **selected,
        )
        plans.complete(price).save()
    return plan


def a_seller(**fields: Any) -> Seller:
    defaults = {"name": "Northern Compute GmbH", "address": "Hafenstraße 1\n20457 Hamburg", **fields}
    seller, _ = Seller.objects.update_or_create(code="default", defaults=defaults)
    return seller


def a_tenant(
    slug: str = "vision-lab",
    *,
    plan: Plan | None = None,
    plan_from: date = LONG_AGO,
    accounts: Iterable[tuple[Cluster, str]] = (),
    **fields: Any,
) -> Tenant:
    """A tenant that has always owned `accounts`, and is on `plan` from that day of its own zone on.

    There is a seller then, in whose name it is billed.
    """
    if not Seller.objects.exists():
        a_seller()
    tenant = Tenant.objects.create(slug=slug, **{"name": slug.replace("-", " ").title(), **fields})
    if plan is not None:
        since = datetime(plan_from.year, plan_from.month, plan_from.day, tzinfo=tenant.zone)
        Subscription.objects.create(tenant=tenant, plan=plan, since=since)
    for cluster, account in accounts:
        own(tenant, cluster, account)
    return tenant


def own(
    tenant: Tenant,
    cluster: Cluster,
    account: str,
    *,
    project: str = "",
    since: str | None = None,
    until: str | None = None,
) -> None:
    """Give the account to the tenant and rate again what it used."""
    stored, _ = Account.objects.get_or_create(cluster=cluster, name=account)
    ownership.assign(
        account=stored,
        tenant=tenant,
        project=project,
        since=at(since) if since else None,
        until=at(until) if until else None,
    )
    engine.rate_accounts([stored.pk])


def a_job(**fields: Any) -> UsageFact:
    """One GPU for an hour, by Ben, unless said otherwise; `submitted` … `seen_until` are written moments."""
    values: dict[str, Any] = {
        "job_id": str(next(_numbers)),
        "account": "vision",
        "user": "ben",
        "gpus": 1,
        "gpu_model": "a100",
        "started": "2026-03-02 10:00",
        "ended": "2026-03-02 11:00",
        "state": "COMPLETED",
        **fields,
    }
    for name in ("submitted", "eligible", "started", "ended", "seen_until"):
        if isinstance(values.get(name), str):
            values[name] = int(at(values[name]).timestamp())
    values.setdefault("submitted", values["started"])
    values.setdefault("source_key", f"{values['job_id']}@{values['submitted']}")
    return UsageFact(**values)


def busy(key: str, hour: str, device_seconds: str, covered: int = 3600) -> BusyHour:
    """What devices tell of a run in the hour that begins then: so many device-seconds were busy, of those covered."""
    began = int(at(hour).timestamp())
    metric = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
    return BusyHour(key, began, Decimal(device_seconds), covered, BusySource.DEVICE, metric)


def a_bad_row(**fields: Any) -> BadRow:
    return BadRow(**{"code": "truncated", "raw": "17|vision|", **fields})


def ingest(cluster: Cluster, *rows: Row, as_of: str | None = None) -> IngestResult:
    """Store and rate the rows, as an import of one file does."""
    return usage_ingest.ingest(
        cluster=cluster,
        rows=rows,
        reading=Reading(),
        source="test",
        moment=LATER,
        as_of=at(as_of) if as_of else None,
    )


def a_person(
    email: str = "ann@vision.example", tenant: Tenant | None = None, role: Role = Role.OWNER
) -> User:
    """A person with PASSWORD, and their role in the tenant; called again for one more tenant."""
    person = User.objects.filter(email=email).first()
    if person is None:
        person = User.objects.create_user(email, PASSWORD)
    if tenant is not None:
        Membership.objects.create(user=person, tenant=tenant, role=role)
    return person


def an_operator(email: str = "op@cluster.example") -> User:
    return User.objects.create_superuser(email, PASSWORD)
