"""Two tenants on one cluster, their people, and a closed March: what most pages are looked at with."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from django.test import Client

from billing.models import (
    GatewayPayout,
    Invoice,
    Plan,
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
from tests import builders, stories
from tests.statements import Line, camt, imported

APRIL = "2026-04-20"  # as far as the cluster has been read


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
    client = Client()
    client.force_login(person)
    return client


def page(person: User, path: str, **headers: str) -> str:
    """The text of a page that opens."""
    response = signed_in(person).get(path, headers=headers)
    assert response.status_code == 200, (path, response.status_code)
    return bytes(response.getvalue()).decode()
