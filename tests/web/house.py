"""Two tenants on one cluster, their people, and a closed March: what most pages are looked at with."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cached_property

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils.crypto import get_random_string

from billing.models import (
    GatewayPayout,
    Invoice,
    Plan,
    PreviewKind,
    Quota,
    QuotaEvery,
    QuotaMeasure,
    RatedJob,
    SavedMethod,
    Transfer,
    Wallet,
    WalletScope,
)
from billing.quotas import quotas
from billing.quotas.quotas import Setter
from billing.quotas.terms import QuotaTerms
from billing.wallets import wallet_terms
from clusters.models import Cluster, Quarantined
from portal.core.tenants.models import Role, Tenant, User
from portal.core.webhooks import addresses, endpoints
from portal.core.webhooks.models import Webhook
from portal.web import previews, tasks
from tests import builders, stories
from tests.statements import Line, camt, imported

APRIL = "2026-04-20"  # as far as the cluster has been read
PLAN_DRAFT = """[[plan]]
name = "vision-deal"
currency = "USD"
charges = ["gpu"]
from = 2030-01-01
[[plan.price]]
meter = "gpu-hour"
where = { gpu_model = "h100", qos = "low", queue = "gpu" }
unit_price = "2.50"
[[plan.price]]
meter = "gpu-hour"
unit_price = "2.25"
"""


@dataclass
class House:
    """Ann owns the vision lab, where Carla pays and Ben runs jobs; Eve owns the speech lab; Op runs the cluster."""

    cluster: Cluster
    vision: Tenant
    speech: Tenant
    ann: User
    carla: User
    ben: User
    eve: User
    op: User

    @property
    def invoice(self) -> Invoice:
        return stories.invoice_of(self.vision, "2026-03")

    @property
    def wallet(self) -> Wallet:
        """The vision lab's, of dollars; opened when it is first asked for."""
        wallet_terms.set_scheme(
            tenant=self.vision,
            unit="USD",
            scope=WalletScope.TENANT,
            overdraft=0,
            since=builders.at("2026-03-01"),
        )
        return Wallet.objects.get(tenant=self.vision, scheme__unit="USD")

    @property
    def budget(self) -> Quota:
        """Vision Lab's of the year; set when it is first asked for."""
        terms = QuotaTerms(measure=QuotaMeasure.MONEY, amount=Decimal(100), every=QuotaEvery.YEAR)
        moment = builders.at("2026-03-01")
        return quotas.set_quota(
            tenant=self.vision, name="gpu", terms=terms, by=Setter.OPERATOR, moment=moment
        )

    @property
    def webhook(self) -> Webhook:
        """The vision lab's; the operators have one of the same name. Made when it is first asked for."""
        moment = builders.at("2026-03-01")
        target = addresses.Target("https://hooks.example/", "hooks.example", ("93.184.216.34",))
        for tenant, maker in ((None, self.op), (self.vision, self.ann)):
            saved = endpoints.put_webhook(
                tenant=tenant, name="hook", target=target, types=(), maker=maker, moment=moment
            )
        return saved.webhook

    @property
    def card(self) -> SavedMethod:
        """The vision lab's; saved when it is first asked for."""
        fields = {"kind": "card", "brand": "visa", "last4": "4242", "exp_month": 4, "exp_year": 2030}
        return SavedMethod.objects.get_or_create(
            tenant=self.vision,
            external_id="pm_of_vision",
            defaults={**fields, "preferred": True, "added_at": builders.at("2026-03-01")},
        )[0]

    @property
    def payout(self) -> GatewayPayout:
        """What Stripe paid out to Op; read when it is first asked for."""
        fields = {"amount": 358, "currency": "USD", "state": "paid", "arrives_on": date(2026, 4, 4)}
        return GatewayPayout.objects.get_or_create(
            pk="po_of_op", defaults={**fields, "created_at": builders.at("2026-04-03")}
        )[0]

    @property
    def transfer(self) -> Transfer:
        """Money that came to Op's account and names nothing; taken in when it is first asked for."""
        if not Transfer.objects.exists():
            imported(camt(Line(amount="7.00", text="thank you")))
        return Transfer.objects.get()

    @property
    def row(self) -> Quarantined:
        """A row that could not be true; read when it is first asked for."""
        if not Quarantined.objects.exists():
            builders.ingest(self.cluster, builders.a_bad_row())
        return Quarantined.objects.get()

    def record(self, job_id: str) -> int:
        return RatedJob.objects.get(job_id=job_id).record_id

    @cached_property
    def parts_of_addresses(self) -> dict[str, str]:
        """The vision lab's own objects by the parts of routes that they stand in; all are made when first asked for."""
        return {
            "<slug:area>": "invoices",
            "<int:record>": str(self.record("17")),
            "<path:number>": self.invoice.number or "",
            "<int:position>": "1",
            "<int:wallet>": str(self.wallet.pk),
            "<int:method>": str(self.card.pk),
            "<uuid:attempt>": "5f0e3c1a-7d2b-4c8e-9a61-0b2d4f6a8c10",
            "<path:name>": self.cluster.name,
            "<slug:name>": "vision-deal",
            "<slug:hook>": self.webhook.name,
            "<slug:budget>": self.budget.name,
            "<str:payout>": self.payout.pk,
            "<int:transfer>": str(self.transfer.pk),
            "<str:month>": "2026-03",
            "<int:place>": "1",
            "<int:row>": str(self.row.pk),
            "<int:export>": "1",
            "<int:preview>": str(a_preview(PreviewKind.DOCUMENTS, month="2026-03", tenant="vision-lab")),
            "<int:plan_preview>": str(
                a_preview(PreviewKind.PLAN, plan="vision-deal", text=PLAN_DRAFT, form=None, effect=None)
            ),
            "<slug:kind>": "hold",
            "<slug:finding>": "idle-tail",
            "<path:page>": "explanation/efficiency",
        }


def a_preview(kind: PreviewKind, **inputs: str | None) -> int:
    """The id of one that a worker has computed."""
    row = previews.request_preview(kind, inputs=inputs, by="op@cluster.example", moment=datetime.now(UTC))
    tasks.perform_preview(preview_id=row.pk)
    return row.pk


def a_house(*, close: bool = True) -> House:
    """March: Ben's 17 held 2 GPUs for 3 hours and 18 one for half an hour, at 2.00; Eve's 19 at 1.25."""
    cluster = builders.a_cluster()
    builders.a_seller(iban="DE89370400440532013000", vat_id="DE123456789")
    vision = builders.a_tenant(
        "vision-lab",
        plan=plan("vision-deal", "2.00"),
        accounts=[(cluster, "vision")],
        address="Gate 1\n10115 Berlin",
    )
    speech = builders.a_tenant("speech-lab", plan=plan("speech-deal", "1.25"), accounts=[(cluster, "speech")])
    builders.ingest(
        cluster,
        builders.a_job(
            job_id="17", name="train", gpus=2, started="2026-03-02 10:00", ended="2026-03-02 13:00"
        ),
        builders.a_job(job_id="18", user="ada", started="2026-03-03 10:00", ended="2026-03-03 10:30"),
        builders.a_job(job_id="19", account="speech", user="eve"),
        as_of=APRIL,
    )
    if close:
        stories.close("2026-03")
    return House(
        cluster,
        vision,
        speech,
        ann=builders.a_person("ann@vision.example", vision, Role.OWNER),
        carla=builders.a_person("carla@vision.example", vision, Role.BILLING),
        ben=builders.a_person("ben@vision.example", vision, Role.MEMBER),
        eve=builders.a_person("eve@speech.example", speech, Role.OWNER),
        op=builders.an_operator(),
    )


def plan(name: str, price: str) -> Plan:
    return builders.a_plan(name, prices=[("gpu-hour", {"gpu_model": ["a100"]}, price, builders.LONG_AGO)])


def signed_in(person: User) -> Client:
    """With a session of its own, written in one statement instead of the 16 of `force_login`."""
    values = {
        SESSION_KEY: str(person.pk),
        BACKEND_SESSION_KEY: settings.AUTHENTICATION_BACKENDS[0],
        HASH_SESSION_KEY: person.get_session_auth_hash(),
    }
    session = Session(
        session_key=get_random_string(32),
        session_data=SessionStore().encode(values),
        expire_date=datetime.now(UTC) + timedelta(days=1),
    )
    session.save(force_insert=True)
    client = Client()
    client.cookies[settings.SESSION_COOKIE_NAME] = session.session_key
    return client


def page(person: User, path: str, **headers: str) -> str:
    """The text of a page that opens."""
    response = signed_in(person).get(path, headers=headers)
    assert response.status_code == 200, (path, response.status_code)
    return bytes(response.getvalue()).decode()
