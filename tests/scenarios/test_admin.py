"""What Op does in the admin has the same effect, and the same limits, as in a file or at the shell."""

from __future__ import annotations

import re
from datetime import date
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from billing.invoicing import month_close
from billing.models import Invoice, Payment, Seller, Subscription
from billing.receivables import credit_balance
from clusters.models import Account, Cluster, Quarantined, UsageRecord
from portal.core.outbox import outbox
from portal.core.tenants.models import Ownership, Tenant, User
from tests import builders
from tests.builders import a_job, at, ingest
from tests.scenarios.configuring import gpu_seconds, owed

pytestmark = pytest.mark.django_db


@pytest.fixture
def op(client: Client) -> Client:
    client.force_login(builders.an_operator())
    return client


def page(model: str, what: str = "changelist", *args: Any) -> str:
    return reverse(f"admin:{model}_{what}", args=args)


def messages(client: Client, url: str, data: dict[str, Any]) -> list[str]:
    """Post the form; what the next page says. A form that comes back with errors fails the test."""
    answer = client.post(url, data, follow=True)
    assert answer.redirect_chain, re.findall(r"errorlist.*?</ul>", answer.content.decode(), re.DOTALL)
    return [str(message) for message in answer.context["messages"]]


def a_month() -> Cluster:
    """Vision's March on philly: 2 GPU-hours at 2.00, one job of nobody, one row in quarantine, closed."""
    cluster = builders.a_cluster("philly")
    builders.a_seller()
    builders.a_tenant("vision-lab", plan=builders.a_plan(), accounts=[(cluster, "vision")])
    ingest(
        cluster,
        a_job(gpus=2, job_id="17", started="2026-03-02 10:00", ended="2026-03-02 11:00"),
        a_job(account="nobodys"),
        builders.a_bad_row(),
        as_of="2026-04-02",
    )
    list(month_close.close_month(tenants=Tenant.objects.all(), year=2026, month=3, moment=at("2026-04-02")))
    return cluster


@pytest.mark.parametrize(
    "model",
    [
        "clusters_account",
        "clusters_quarantined",
        "clusters_usagerecord",
        "tenants_ownership",
        "tenants_membership",
        "billing_invoice",
        "billing_subscription",
        "audit_auditentry",
    ],
)
def test_longer_lists_cost_no_more_queries(op: Client, model: str) -> None:
    cluster = a_month()

    def more(number: int) -> None:
        name = f"lab-{number}"
        plan = builders.a_plan(f"plan-{number}")
        tenant = builders.a_tenant(name, plan=plan, accounts=[(cluster, name)])
        builders.a_person(f"{name}@x.example", tenant)
        ingest(cluster, a_job(account=name), builders.a_bad_row(raw=name), as_of="2026-04-02")
        list(month_close.close_month(tenants=[tenant], year=2026, month=3, moment=at("2026-04-02")))

    def queries() -> int:
        with CaptureQueriesContext(
            connection,
        ) as captured:
            assert op.get(page(model)).status_code == 200
        return len(captured)

    more(1)
    queries()  # whatever is looked up once per process
    before = queries()
    for number in range(2, 6):
        more(number)
    assert queries() == before


def test_whoever_is_not_staff_sees_none_of_it(client: Client) -> None:
    client.force_login(builders.a_person(tenant=builders.a_tenant()))
    answer = client.get(page("clusters_cluster"))
    assert (answer.status_code, answer["Location"].partition("?")[0]) == (302, "/admin/login/")


def test_an_account_that_is_handed_over_is_rated_again(op: Client) -> None:
    cluster = builders.a_cluster("philly")
    builders.a_tenant("vision-lab", plan=builders.a_plan(), accounts=[(cluster, "vision")])
    robotics = builders.a_tenant("robotics")
    ingest(cluster, a_job(started="2026-03-02 10:00", ended="2026-03-02 11:00"))
    form = {
        "account": Account.objects.get().pk,
        "tenant": robotics.pk,
        "project_name": "Grasping",
        "since_0": "2026-03-02",
        "since_1": "10:20:00",
        "until_0": "",
        "until_1": "",
    }
    messages(op, page("tenants_ownership", "add"), form)
    outbox.drain()
    assert (gpu_seconds("vision-lab"), gpu_seconds("robotics")) == (1200, 2400)

    grasping = Ownership.objects.get(project__name="Grasping")
    back = {"since_0": "2026-03-02", "since_1": "10:30:00", "until_0": "", "until_1": ""}
    messages(op, page("tenants_ownership", "change", grasping.pk), back)
    outbox.drain()
    assert (gpu_seconds("vision-lab"), gpu_seconds("robotics")) == (1200, 1800)

    op.post(page("tenants_ownership", "delete", grasping.pk), {"post": "yes"})
    outbox.drain()
    assert (gpu_seconds("vision-lab"), gpu_seconds("robotics")) == (1200, 0)


def test_an_owner_who_would_displace_another_is_refused_in_a_sentence(op: Client) -> None:
    a_month()
    robotics = builders.a_tenant("robotics")
    form = {
        "account": Account.objects.get(name="vision").pk,
        "tenant": robotics.pk,
        "since_0": "",
        "since_1": "",
        "until_0": "",
        "until_1": "",
    }
    (message,) = messages(op, page("tenants_ownership", "add"), form)
    assert message.startswith("philly/vision belongs to vision-lab from the beginning, for ever")
    assert Ownership.objects.filter(tenant=robotics).count() == 0


def test_a_tenant_moves_to_another_plan(op: Client) -> None:
    cluster = builders.a_cluster("philly")
    lab = builders.a_tenant("vision-lab", plan=builders.a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(started="2026-03-31 23:00", ended="2026-04-01 02:00"))
    dear = builders.a_plan("dear", prices=[("gpu-hour", {}, "10", date(2017, 1, 1))])
    form = {"tenant": lab.pk, "plan": dear.pk, "since_0": "2026-04-01", "since_1": "00:00:00"}
    messages(op, page("billing_subscription", "add"), form)
    outbox.drain()
    assert owed("vision-lab") == {"2": "2", "10": "20"}
    assert [s.until for s in Subscription.objects.order_by("since")] == [at("2026-04-01"), None]


def test_rows_are_dismissed_with_a_reason_and_only_so(op: Client) -> None:
    a_month()
    row = Quarantined.objects.get()
    action = {"action": "dismiss", "_selected_action": [row.pk]}
    assert messages(op, page("clusters_quarantined"), {**action, "reason": " "}) == [
        "Say why these rows are dismissed; the reason is kept with them."
    ]
    assert messages(op, page("clusters_quarantined"), {**action, "reason": "a test line"}) == [
        "Dismissed: 1."
    ]
    row.refresh_from_db()
    assert row.resolved_at is not None
    assert row.resolution == "Dismissed by op@cluster.example: a test line"


def test_the_watermark_cannot_be_moved_by_hand(op: Client) -> None:
    cluster = a_month()
    form = {
        "name": "philadelphia",
        "kind": "import",
        "timezone": "UTC",
        "complete_through_0": "2030-01-01",
    }
    messages(op, page("clusters_cluster", "change", cluster.pk), form)
    cluster.refresh_from_db()
    assert (cluster.name, cluster.complete_through) == ("philadelphia", at("2026-04-02"))


def test_the_zone_of_a_cluster_with_usage_stays_with_a_sentence(op: Client) -> None:
    cluster = a_month()
    form = {"name": "philly", "kind": "import", "timezone": "Europe/Berlin"}
    answer = op.post(page("clusters_cluster", "change", cluster.pk), form).content.decode()
    assert "Give the other zone to a new cluster." in answer
    cluster.refresh_from_db()
    assert cluster.timezone == "UTC"


def test_usage_is_found_by_its_job_and_shown_in_utc(op: Client) -> None:
    a_month()
    listed = op.get(page("clusters_usagerecord"), {"q": "17"}).content.decode()
    assert listed.count('<th class="field-job_id">') == 1
    assert "2026-03-02 10:00:00" in listed
    record = UsageRecord.objects.get(job_id="17")
    assert op.post(page("clusters_usagerecord", "change", record.pk), {"gpus": 1}).status_code == 403


def test_a_transfer_is_recorded_once_and_wrong_ones_are_refused(op: Client) -> None:
    a_month()
    invoice = Invoice.objects.get()
    form = {"invoice": invoice.pk, "paid": "4.00", "received_on": "2026-04-10", "reference": "SEPA 1"}
    for _ in range(2):
        messages(op, page("billing_payment", "add"), form)
    payment = Payment.objects.get()
    assert (payment.amount, payment.recorded_by, payment.tenant_id) == (
        400,
        "op@cluster.example",
        invoice.tenant_id,
    )
    assert str(payment) == "SEPA 1: 4.00 USD"
    for wrong in ("4,00", "4.001", "much"):
        assert op.post(page("billing_payment", "add"), {**form, "paid": wrong}).status_code == 200
    for sign in ("", "-"):
        html = op.post(page("billing_payment", "add"), {**form, "paid": sign + "9" * 28}).content.decode()
        assert "It is beyond 10000000000000.00 USD." in html
    (message,) = messages(op, page("billing_payment", "add"), {**form, "paid": "-9"})
    assert message == "Only 4.00 was paid; no more can be taken back."
    assert Payment.objects.count() == 1


def test_case_080_what_is_recorded_too_much_is_said_to_be_credit(op: Client) -> None:
    a_month()
    invoice = Invoice.objects.get()
    form = {"invoice": invoice.pk, "paid": "9.50", "received_on": "2026-04-10", "reference": "SEPA 1"}
    sentences = messages(op, page("billing_payment", "add"), form)
    assert sentences[0] == (f"Overpaid by $5.50: added to the credit balance of {invoice.tenant}.")
    assert credit_balance.get_balance(invoice.tenant, "USD") == 550


def test_a_line_beyond_all_bounds_is_refused_with_a_sentence(op: Client) -> None:
    a_month()
    tenant = Tenant.objects.get()
    form = {
        "tenant": tenant.pk,
        "description": "Rack",
        "net": "9" * 28,
        "currency": "USD",
        "why": "asked for",
    }
    assert (
        "It is beyond 10000000000000.00 USD."
        in op.post(page("billing_manualline", "add"), form).content.decode()
    )


def test_an_invoice_leads_to_its_pdf_and_cannot_be_changed(op: Client) -> None:
    a_month()
    invoice = Invoice.objects.get()
    shown = op.get(page("billing_invoice", "change", invoice.pk)).content.decode()
    assert f'href="/t/vision-lab/invoices/{invoice.number}/pdf"' in shown
    for text in ("$4.00", "$2.00", "March 2026", "VAT 0 %", "Name: Vision Lab<br>"):
        assert text in shown
    assert op.post(page("billing_invoice", "change", invoice.pk), {"state": "void"}).status_code == 403
    assert op.post(page("billing_invoice", "delete", invoice.pk), {"post": "yes"}).status_code == 403


def test_a_person_is_added_by_address_and_can_sign_in(op: Client, client: Client) -> None:
    form = {
        "email": "Ben@vision.example",
        "usable_password": "true",
        "password1": "a quiet harbour",
        "password2": "a quiet harbour",
    }
    messages(op, page("tenants_user", "add"), form)
    ben = User.objects.get(email="ben@vision.example")
    assert ben.check_password("a quiet harbour")
    assert not ben.is_staff


def test_history_says_who_changed_what_from_what_to_what(op: Client) -> None:
    builders.a_seller(name="Northern")
    seller = Seller.objects.get()
    form = {
        "code": "default",
        "name": "Southern",
        "invoice_prefix": "INV",
        "credit_prefix": "CN",
        "tax_name": "VAT",
        "corrections": "next-invoice",
        "zero_invoices": "skip",
    }
    messages(op, page("billing_seller", "change", seller.pk), form)
    listed = op.get(page("audit_auditentry"), {"happened": "update", "of": "billing_seller"}).content.decode()
    assert "name: Northern → Southern" in listed
    assert '<td class="field-author">op@cluster.example – page /admin/billing/seller/' in listed


def test_history_names_the_member_who_changed_how_a_tenant_pays(op: Client) -> None:
    """No use case names Ann: she is who was signed in. What nobody was signed in for says so."""
    vision = builders.a_tenant("vision-lab", plan=builders.a_plan())
    ann = builders.a_person("ann@vision.example", tenant=vision)
    anns = Client()
    anns.force_login(ann)
    anns.post("/t/vision-lab/payment/automatic/", {"automatic": "no"})
    listed = op.get(page("audit_auditentry"), {"of": "billing_billingaccount"}).content.decode()
    assert "automatic: True → False" in listed
    assert (
        '<td class="field-author">ann@vision.example – page /t/vision-lab/payment/automatic/</td>' in listed
    )
    listed = op.get(page("audit_auditentry"), {"of": "tenants_tenant"}).content.decode()
    assert '<td class="field-author">nobody named</td>' in listed
