"""Every address × every method × every kind of key: one table says what each is answered. Case 19 of the API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

from billing.catalog import third_party_payers
from billing.invoicing import close_runs
from billing.limits import limits
from billing.limits.limits import LimitTerms
from billing.models import (
    CloseKind,
    CloseRun,
    ConcurrencyLimit,
    Departure,
    FocusExport,
    Invoice,
    PaymentLink,
    PendingApproval,
    Quota,
    QuotaEvery,
    QuotaMeasure,
    QuotaPeriod,
    Reservation,
    SignUp,
    SignUpState,
)
from billing.payments import payment_links
from billing.quotas import quotas
from billing.quotas.quotas import Setter
from billing.quotas.terms import QuotaTerms
from clusters import meters
from portal.api import identifiers, keys
from portal.api.routes import routes
from portal.api.scopes import OPERATOR_SCOPES, TENANT_SCOPES
from portal.core.tenants.access import ALLOWED, OPERATOR_RIGHTS
from portal.core.tenants.models import Invitation, OperatorRole, Role, Tenant, User
from tests import builders
from tests.api.addresses import ADDRESSES, Address, filled
from tests.api.door import Answer, Door, a_key, door
from tests.hostile.filters import filters_removed
from tests.scenarios.test_reservations import reserve
from tests.scenarios.test_service_credits import a_rule as a_failure_rule
from tests.waste_stories import a_rule
from tests.web.house import House
from tests.webhooks import inner_networks

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _webhooks_of_this_machine() -> Iterator[None]:
    with inner_networks():
        yield


METHODS = ("get", "post", "put", "patch", "delete")


def test_api_019_the_table_has_every_address_with_every_method() -> None:
    ours = {
        (method.upper(), str(route.pattern))
        for route in routes
        for method in METHODS
        if hasattr(route.callback.view_class, method)  # type: ignore[attr-defined]
    }
    assert {(address.method, address.route) for address in ADDRESSES} == ours


@dataclass(frozen=True)
class Asking:
    """Who asks, and what they may; `refused`: nobody is known by this key."""

    make: Callable[[House], Door]
    role: Role | OperatorRole | None = None
    scopes: frozenset[str] | None = None  # None: all that the role allows
    stranger: bool = False
    project: bool = False

    def may(self, address: Address) -> bool:
        if isinstance(self.role, OperatorRole):
            scope, rights = address.operator, OPERATOR_RIGHTS[self.role]
            return scope in OPERATOR_SCOPES and OPERATOR_SCOPES[scope] in rights and self._has(scope)
        if self.role is None or address.tenant not in TENANT_SCOPES:
            return False
        return TENANT_SCOPES[address.tenant] in ALLOWED[self.role] and self._has(address.tenant)

    def _has(self, scope: str) -> bool:
        return self.scopes is None or scope in self.scopes


def expired(house: House) -> Door:
    long_ago = datetime.now(UTC) - timedelta(days=2)
    return door(house.ann, house.vision, moment=long_ago, expires_at=long_ago + timedelta(days=1))


def revoked(house: House) -> Door:
    new = a_key(house.ann, house.vision)
    keys.revoke(key=new.key, moment=datetime.now(UTC))
    return Door(new.secret)


def of_another_project(house: House) -> Door:
    return door(house.ann, house.vision, project=house.vision.projects.create(name="other"))


def operator(role: OperatorRole, *scopes: str) -> Callable[[House], Door]:
    def make(house: House) -> Door:
        person = User.objects.create_user(f"{role}@cluster.example", builders.PASSWORD, operator_role=role)
        allowed = [scope for scope, right in OPERATOR_SCOPES.items() if right in OPERATOR_RIGHTS[role]]
        return door(person, None, *(scopes or allowed))

    return make


CLIENTS: dict[str, Asking] = {
    "none": Asking(lambda house: Door("")),
    "expired": Asking(expired),
    "revoked": Asking(revoked),
    "eve": Asking(lambda house: door(house.eve, house.speech), Role.OWNER, stranger=True),
    "ben": Asking(lambda house: door(house.ben, house.vision), Role.MEMBER),
    "carla": Asking(lambda house: door(house.carla, house.vision), Role.BILLING),
    "usage only": Asking(
        lambda house: door(house.ann, house.vision, "usage:read"), Role.OWNER, frozenset({"usage:read"})
    ),
    "of another project": Asking(of_another_project, Role.OWNER, stranger=True, project=True),
    "ann": Asking(lambda house: door(house.ann, house.vision), Role.OWNER),
    "operator who reads": Asking(
        operator(OperatorRole.ADMIN, "ops:read"), OperatorRole.ADMIN, frozenset({"ops:read"})
    ),
    **{f"operator of {role}": Asking(operator(role), role) for role in OperatorRole},
}


def expected(address: Address, asking: Asking) -> int:
    """What the address answers this key."""
    if asking.role is None:
        return 401
    if address.route == "me":
        return 200
    if not asking.may(address):
        return 403
    if asking.project and address.whole_tenant:
        return 403
    if asking.stranger and "<" in address.route and not address.own:
        return 404
    if isinstance(asking.role, OperatorRole) and address.answer_to_operator:
        return address.answer_to_operator
    return address.answer


def ask(client: Door, address: Address, names: dict[str, str]) -> Answer:
    path = filled(address.route, names)
    wants_key = (
        {"Idempotency-Key": f"{address.method} {path}".replace(" ", "-")} if address.method == "POST" else {}
    )
    return client.send(address.method, "/" + path + address.query, address.body, **wants_key)


@pytest.mark.parametrize("client", CLIENTS)
def test_api_019_every_address_answers_each_kind_of_key_as_the_table_says(
    house: House, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portal.api.limits.WRONG_KEYS", 1000)
    monkeypatch.setattr("portal.api.limits.WRITES", 1000)
    names, asking = named(house), CLIENTS[client]
    key = asking.make(house)
    answers = {(a.method, a.route): ask(key, a, names).status for a in ADDRESSES}
    assert answers == {(a.method, a.route): expected(a, asking) for a in ADDRESSES}


OF_TENANTS = [name for name, asking in CLIENTS.items() if not isinstance(asking.role, OperatorRole)]


@pytest.mark.parametrize("client", OF_TENANTS)
def test_api_019_with_all_filters_removed_the_database_still_keeps_tenants_apart(
    house: House, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose key it is stays; that the rows are its tenant's, only the database says."""
    monkeypatch.setattr("portal.api.limits.WRONG_KEYS", 1000)
    monkeypatch.setattr("portal.api.limits.WRITES", 1000)
    names, asking = named(house), CLIENTS[client]
    key = asking.make(house)
    with filters_removed() as removed:
        answers = {address: ask(key, address, names) for address in ADDRESSES}
    assert removed.count > 0 or asking.role is None
    other = house.speech if asking.role is not None and client != "eve" else house.vision
    numbers = Invoice.objects.filter(tenant=other).values_list("number", flat=True)
    for address, answer in answers.items():
        if address.route == "status":  # clusters are chosen by ownership, outside of the tenant's rows
            continue
        assert answer.status == expected(address, asking), (address, answer.raw)
        assert other.name.partition(" ")[0].lower().encode() not in answer.raw.lower(), address
        for number in numbers:
            assert str(number).encode() not in answer.raw.replace(b"/invoices/", b""), address


def a_close() -> CloseRun:
    """A preview of April that waits for a worker."""
    moment = datetime(2026, 5, 2, tzinfo=UTC)
    return close_runs.request_run(month="2026-04", kind=CloseKind.PREVIEW, by="op", moment=moment)


def _a_link(house: House) -> PaymentLink:
    return payment_links.make_link(
        invoice=house.invoice, days=30, by=house.ann.email, moment=datetime.now(UTC)
    )


def an_approval(house: House) -> PendingApproval:
    """March's, as if a close had held it."""
    period, moment = house.invoice.period, datetime(2026, 4, 2, tzinfo=UTC)
    figures = {"reason": "large", "currency": "USD", "total": 100, "lines": 1, "since": moment}
    return PendingApproval.objects.create(tenant=house.vision, period=period, **figures)


def a_yearly_quota(house: House) -> Quota:
    terms = QuotaTerms(measure=QuotaMeasure.MONEY, amount=Decimal(100), every=QuotaEvery.YEAR)
    moment = builders.at("2025-12-01")
    quota = quotas.set_quota(
        tenant=house.vision, name="yearly", terms=terms, by=Setter.OPERATOR, moment=moment
    )
    QuotaPeriod.objects.create(
        tenant=house.vision,
        quota=quota,
        start=builders.at("2025-01-01"),
        end=builders.at("2026-01-01"),
        amount=100,
        used=0,
        counted_on=0,
        evaluated_at=moment,
    )
    return quota


def a_limit(house: House) -> ConcurrencyLimit:
    moment = builders.at("2026-03-01")
    return limits.set_limit(tenant=house.vision, name="once", terms=LimitTerms(gpus=16), moment=moment)


def an_invitation(house: House) -> Invitation:
    moment = datetime.now(UTC)
    return Invitation.objects.create(
        tenant=house.vision,
        email="dan@vision.example",
        role="viewer",
        inviter="op@cluster.example",
        created_at=moment,
        expires_at=moment + timedelta(days=7),
    )


def a_reservation(house: House) -> Reservation:
    """Of a job in April."""
    placement = reserve(house.cluster, 2, 1, "4710", now=builders.at("2026-04-20 12:00"), job_id="4710")
    assert placement.reservation is not None
    return placement.reservation


def a_sign_up(house: House) -> SignUp:
    """Dan asks for the plan of the vision lab, and waits."""
    return SignUp.objects.create(
        tenant=Tenant.objects.create(slug="orbit", name="Orbit Robotics", country="DE"),
        plan=house.vision.subscriptions.get().plan,
        email="dan@orbit.example",
        domain="orbit.example",
        state=SignUpState.APPROVAL,
        approval=True,
        card=False,
        asked_at=builders.at("2026-04-19 08:00"),
    )


def a_departure() -> Departure:
    """Of a tenant that is on a public plan."""
    row = Departure(
        tenant=builders.a_tenant("atoll"), leaves_on=date(2026, 5, 31), reason="Our project ends."
    )
    row.asked_by, row.asked_at = "fay@atoll.example", builders.at("2026-04-19 09:00")
    row.save()
    return row


def a_focus_export() -> FocusExport:
    """Of all tenants, as a worker wrote them."""
    columns, moment = b"BilledCost", builders.at("2026-04-20 12:00")
    export = FocusExport.objects.create(
        month=date(2026, 3, 1),
        format="csv",
        requested_by="op@cluster.example",
        requested_at=moment,
        started_at=moment,
        ended_at=moment,
        done=2,
        total=2,
        name="focus-1.2-all-2026-03.csv",
        status="final",
        size=len(columns),
    )
    export.parts.create(place=0, content=columns)
    return export


def named(house: House) -> dict[str, str]:
    """The vision lab's own objects, by the first part of an address."""
    payer = third_party_payers.pay_for(
        payer=builders.a_tenant("funder"), tenant=builders.a_tenant("group"), since=date(2030, 1, 1)
    )
    close = identifiers.write("close", a_close().pk)
    return {
        "invoices": str(house.invoice.number),
        "jobs": identifiers.write("job", house.record("17")),
        "wallets": identifiers.write("wal", house.wallet.pk),
        "keys": identifiers.write("key", a_key(house.ann, house.vision, "usage:read").key.pk),
        "payment-links": identifiers.write("link", _a_link(house).pk),
        "webhooks": house.webhook.name,
        "quotas": a_yearly_quota(house).name,
        "limits": a_limit(house).name,
        "waste-rules": a_rule().name,
        "failure-rules": a_failure_rule().name,
        "job-reservations": a_reservation(house).key,
        "sign-ups": identifiers.write("sgn", a_sign_up(house).pk),
        "plan-choices": "starter",
        "departures": identifiers.write("dep", a_departure().pk),
        "tenants": "vision-lab",
        "meters": meters.declare_meter(name="storage", title="Storage", unit="GB-month").name,
        "plans": "vision-deal",
        "clusters": "gpu1",
        "ownerships": identifiers.write("own", house.vision.ownerships.get().pk),
        "payers": identifiers.write("payer", payer.pk),
        "closes": close,
        "focus-exports": identifiers.write("focus", a_focus_export().pk),
        "operations": close,
        "pulls": identifiers.write("pull", house.cluster.pulls.latest("pk").pk),
        "approvals": identifiers.write("app", an_approval(house).pk),
        "invitations": identifiers.write("ivt", an_invitation(house).pk),
    }
