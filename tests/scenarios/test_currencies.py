"""One tenant, two currencies: each invoice has one, nothing is converted, and none is changed inside a period."""

from __future__ import annotations

import csv
import io
from datetime import date, datetime
from decimal import Decimal

import pytest
from pypdf import PdfReader

from billing.catalog import subscriptions, version_terms
from billing.catalog.plans import PlanError
from billing.documents import build, pdf
from billing.invoicing import manual_lines, offboarding
from billing.invoicing.month_close import Outcome
from billing.models import ApprovalLimit, DocumentKind, Invoice, Plan, WalletScope
from billing.queries import line_usage
from billing.rating import engine
from billing.rules.money import Money
from billing.wallets import booking, grants, wallet_terms
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from tests import sharing
from tests.builders import LATER, a_cluster, a_job, a_plan, a_seller, a_tenant, at, ingest
from tests.stories import close, closed, invoice_of, lines_of, prove, total
from tests.web.house import page

pytestmark = pytest.mark.django_db

MARCH = {"account": "vision", "source_key": "1", "started": "2026-03-10 10:00"}
APRIL = {"account": "vision", "started": "2026-04-10 10:00", "ended": "2026-04-10 11:00"}
MAY = {"account": "vision", "started": "2026-05-10 10:00", "ended": "2026-05-10 11:00"}


def a_price(name: str, currency: str, unit_price: str = "2.00") -> Plan:
    return a_plan(name, currency, prices=[("gpu-hour", {}, unit_price, date(2017, 1, 1))])


def a_lab() -> Tenant:
    """In dollars until April, in euros from then on; used 2 hours in March, one in April."""
    a_seller()
    cluster = a_cluster(complete_through="2027-01-01")
    dollars, euros = a_price("dollars", "USD"), a_price("euros", "EUR", "1.50")
    lab = a_tenant(plan=dollars, accounts=[(cluster, "vision")], tax_rate=Decimal(20))
    subscriptions.subscribe(tenant=lab, plan=euros, since=at("2026-04-01"))
    ingest(cluster, a_job(**MARCH, ended="2026-03-10 12:00"), a_job(**APRIL))
    return lab


begun, lab = sharing.fixtures(a_lab, "lab")


def gpu1() -> Cluster:
    return Cluster.objects.get()


def documents(tenant: Tenant) -> list[tuple[str, str, int]]:
    """Each as (kind, currency, total in the smallest unit), in the order in which they were issued."""
    invoices = Invoice.objects.filter(tenant=tenant).order_by("pk")
    return [(invoice.kind, invoice.currency, invoice.total) for invoice in invoices]


def test_case_061_late_use_in_the_old_currency_has_an_invoice_of_its_own(lab: Tenant) -> None:
    close("2026-03")
    ingest(gpu1(), a_job(account="vision", started="2026-03-20 10:00", ended="2026-03-20 13:00"))

    outcome = closed("2026-04", lab)

    assert (outcome.outcome, outcome.total) == (Outcome.ISSUED, Money.of("1.80", "EUR"))
    assert [str(invoice.total.text) for invoice in outcome.related_documents] == ["7.20"]
    assert documents(lab) == [
        ("invoice", "USD", 480),
        ("invoice", "EUR", 180),
        ("correction", "USD", 720),
    ]
    apart = Invoice.objects.get(kind=DocumentKind.CORRECTION)
    assert build.document_of(apart).kind == "Invoice of corrections"
    assert [(line.correction, line.amount) for line in lines_of(apart)] == [(True, 600)]
    assert closed("2026-05", lab).outcome is Outcome.NOTHING
    prove()


def test_case_086_a_tenant_that_leaves_is_told_what_is_unbilled_in_each_currency(lab: Tenant) -> None:
    close("2026-03")
    ingest(gpu1(), a_job(account="vision", started="2026-03-20 10:00", ended="2026-03-20 13:00"))
    sentences = list(offboarding.find_obstacles(lab, moment=at("2026-05-10")))
    assert [sentence for sentence in sentences if "billed" in sentence] == [
        "1.50 EUR before tax are not billed yet: close the months until April 2026.",
        "6.00 USD before tax are not billed yet: close the months until April 2026.",
    ]


def test_case_093_lines_in_other_currencies_count_into_the_bound_of_lines(lab: Tenant) -> None:
    """One line of April in euros, and one of March in dollars."""
    close("2026-03")
    ingest(gpu1(), a_job(account="vision", started="2026-03-20 10:00", ended="2026-03-20 13:00"))
    ApprovalLimit.objects.create(metric="lines", limit=1)

    pending = closed("2026-04", lab)

    assert pending.outcome is Outcome.PENDING_APPROVAL
    assert pending.reason.startswith("It has 2 lines, and 1 are the most that are issued unseen. Approve")
    ApprovalLimit.objects.update(limit=2)
    assert closed("2026-04", lab).outcome is Outcome.ISSUED


def test_case_061_what_shrank_in_the_old_currency_is_credited_where_it_was_billed(lab: Tenant) -> None:
    close("2026-03")
    ingest(gpu1(), a_job(**MARCH, ended="2026-03-10 11:00"))
    close("2026-04")
    assert documents(lab) == [
        ("invoice", "USD", 480),
        ("invoice", "EUR", 180),
        ("credit-note", "USD", -240),
    ]
    assert Invoice.objects.get(kind=DocumentKind.CREDIT_NOTE).original == invoice_of(lab, "2026-03")
    prove()


def test_case_061_a_fee_in_advance_is_billed_in_the_currency_that_comes(lab: Tenant) -> None:
    """March's invoice is in dollars; April's fee is in euros, and due with it."""
    version = Plan.objects.get(name="euros").versions.get()
    Tenant.objects.get().subscriptions.filter(plan__name="euros").delete()
    engine.rate_tenants(Tenant.objects.all())
    euros = a_price("euros-with-a-fee", "EUR", "1.50")
    version_terms.set_fee(
        version=euros.versions.get(), name="Support", amount=Decimal("30.00"), in_advance=True
    )
    subscriptions.subscribe(tenant=lab, plan=euros, since=at("2026-04-01"))
    engine.rate_tenants(Tenant.objects.all())
    assert version.plan != euros

    close("2026-03")

    assert documents(lab) == [("invoice", "USD", 480), ("correction", "EUR", 3600)]
    apart = Invoice.objects.get(kind=DocumentKind.CORRECTION)
    assert build.document_of(apart).kind == "Invoice"
    close("2026-04")
    assert documents(lab)[2:] == [("invoice", "EUR", 3780)]  # an hour, and May's fee
    prove()


def test_case_061_a_line_by_hand_in_the_old_currency_does_not_wait_for_ever(lab: Tenant) -> None:
    close("2026-03")
    by_hand(lab, "10.00", "Setup")
    by_hand(lab, "-2.50", "Goodwill")
    close("2026-04")
    assert documents(lab)[1:] == [("invoice", "EUR", 180), ("correction", "USD", 900)]


def test_case_061_late_use_in_the_old_currency_is_billed_though_more_is_taken_off_by_hand(
    lab: Tenant,
) -> None:
    """Three hours that are known late, at 2.00 and 20 %; the goodwill waits for something to be taken off."""
    close("2026-03")
    ingest(gpu1(), a_job(account="vision", started="2026-03-20 10:00", ended="2026-03-20 13:00"))
    by_hand(lab, "-50.00", "Goodwill")
    close("2026-04")
    by_hand(lab, "60.00", "Setup")
    ingest(gpu1(), a_job(**MAY))

    close("2026-05")

    assert documents(lab) == [
        ("invoice", "USD", 480),
        ("invoice", "EUR", 180),
        ("correction", "USD", 720),
        ("invoice", "EUR", 180),
        ("correction", "USD", 1200),  # 60.00 less 50.00
    ]
    prove()


def test_case_061_late_use_in_the_old_currency_is_billed_with_its_discount_and_without_a_later_one(
    lab: Tenant,
) -> None:
    """All that can wait is found again: lines by hand where they are kept, a discount by the term that says it."""
    close("2026-03")
    ingest(gpu1(), a_job(account="vision", started="2026-03-20 10:00", ended="2026-03-20 13:00"))
    dollars = Plan.objects.get(name="dollars").versions.get()
    version_terms.set_discount(
        version=dollars, name="Launch", valid_from=date(2026, 3, 1), percent=Decimal(100), tenant=lab
    )
    by_hand(lab, "1.00", "Setup")

    close("2026-04")  # 6.00 less the 10.00 of both months' use, and 1.00

    assert documents(lab)[2:] == [("correction", "USD", 720)]
    by_hand(lab, "20.00", "Storage")
    ingest(gpu1(), a_job(**MAY))
    close("2026-05")
    assert documents(lab)[4:] == [("correction", "USD", 1320)]  # 21.00 less 10.00
    prove()


def by_hand(tenant: Tenant, net: str, what: str) -> None:
    manual_lines.add_manual_line(
        tenant=tenant,
        description=what,
        net=Money.of(net, "USD"),
        reason="Agreed.",
        by="op",
        on=date(2026, 4, 2),
    )


def test_case_061_a_currency_changes_where_a_period_begins_and_nowhere_else(lab: Tenant) -> None:
    yen = a_price("yen", "JPY", "300")
    with pytest.raises(PlanError) as refusal:
        subscriptions.subscribe(tenant=lab, plan=yen, since=at("2026-06-15"))
    assert str(refusal.value) == (
        "vision-lab would change from EUR to JPY inside a billing period: a currency changes where one begins, "
        "such as 2026-06-01 00:00 UTC."
    )
    subscriptions.subscribe(tenant=lab, plan=yen, since=at("2026-06-01"))


def test_case_061_a_currency_changes_where_the_period_that_is_kept_begins_though_the_tenant_has_moved() -> (
    None
):
    """April and May were kept in Berlin; June begins where May ends there, six hours before New York's."""
    a_seller()
    cluster = a_cluster(complete_through="2027-01-01")
    dollars, euros = a_price("dollars", "USD"), a_price("euros", "EUR", "1.50")
    lab = a_tenant(plan=euros, accounts=[(cluster, "vision")], timezone="Europe/Berlin")
    ingest(cluster, a_job(**APRIL), a_job(**MAY))
    lab.timezone = "America/New_York"
    lab.save()
    for since, border in (
        ("2026-05-01 04:00", "2026-04-30 22:00"),  # kept
        ("2026-06-01 04:00", "2026-05-31 22:00"),  # not kept yet, and follows what is
        ("2026-07-15 12:00", "2026-07-01 04:00"),
    ):
        with pytest.raises(PlanError, match=f"begins, such as {border} UTC"):
            subscriptions.subscribe(tenant=lab, plan=dollars, since=at(since))

    subscriptions.subscribe(tenant=lab, plan=dollars, since=at("2026-05-31 22:00"))

    ingest(cluster, a_job(account="vision", started="2026-05-31 21:00", ended="2026-06-01 06:00"))
    for month, day in (("2026-04", "2026-05-03"), ("2026-05", "2026-06-03"), ("2026-06", "2026-07-03")):
        close(month, on=day)
    assert documents(lab) == [("invoice", "EUR", 150), ("invoice", "EUR", 300), ("invoice", "USD", 1600)]
    prove()


@pytest.fixture
def prepaid() -> Tenant:
    """On a plan in dollars that a wallet pays, with 5.00 in it."""
    a_seller()
    cluster = a_cluster(complete_through="2027-01-01")
    plan = a_plan("prepaid", "USD", settles="wallet")
    lab = a_tenant(plan=plan, accounts=[(cluster, "vision")])
    scheme = wallet_terms.set_scheme(
        tenant=lab, unit="USD", scope=WalletScope.TENANT, overdraft=0, since=at("2026-01-01")
    )
    grants.grant(
        wallet=scheme.wallets.get(),
        amount=500,
        key="first",
        who="op",
        moment=datetime(2026, 1, 2, tzinfo=LATER.tzinfo),
    )
    return lab


def test_case_062_a_currency_is_not_changed_over_an_open_wallet(prepaid: Tenant) -> None:
    euros = a_price("euros", "EUR")
    with pytest.raises(PlanError) as refusal:
        subscriptions.subscribe(tenant=prepaid, plan=euros, since=at("2026-04-01"))
    assert str(refusal.value) == (
        "vision-lab has a wallet in USD with 5.00 in it, and nothing is converted: use it up, or let it expire, "
        "before it changes to EUR."
    )
    subscriptions.subscribe(
        tenant=prepaid, plan=a_price("dollars", "USD"), since=at("2026-04-01")
    )  # the same currency


def test_case_062_once_it_is_used_up_it_is(prepaid: Tenant) -> None:
    ingest(
        gpu1(),
        a_job(account="vision", started="2026-03-10 10:00", ended="2026-03-10 12:30"),
        as_of="2026-03-11",
    )
    booking.book_due(moment=at("2026-03-12"))
    subscriptions.subscribe(tenant=prepaid, plan=a_price("euros", "EUR"), since=at("2026-04-01"))


@pytest.mark.parametrize(
    ("currency", "price", "net", "gross", "shown"),
    [("JPY", "333", "833", "1000", "¥1,000"), ("KWD", "0.333", "0.833", "1.000", "KWD\xa01.000")],
)
def test_currencies_without_decimals_and_with_three(
    currency: str, price: str, net: str, gross: str, shown: str
) -> None:
    """2.5 hours: 832.5 yen are 833, and 20 % of them 166.6 are 167; 0.8325 dinars are 0.833 (0.167)."""
    a_seller()
    cluster = a_cluster(complete_through="2027-01-01")
    lab = a_tenant(plan=a_price("far", currency, price), accounts=[(cluster, "vision")], tax_rate=Decimal(20))
    ingest(cluster, a_job(account="vision", started="2026-03-10 10:00", ended="2026-03-10 12:30"))
    close("2026-03")
    march = invoice_of(lab, "2026-03")
    assert (Money.from_minor(march.subtotal, currency).text, total(march)) == (net, gross)

    document = build.document_of(march)
    text = PdfReader(io.BytesIO(pdf.render(document))).pages[0].extract_text()
    assert shown.replace("\xa0", " ") in text.replace("\xa0", " ")

    table = b"".join(line_usage.as_csv(march, lines_of(march))).decode()
    (row,) = csv.DictReader(io.StringIO(table))
    assert (row["currency"], row["kind"]) == (currency, "usage")

    from tests.builders import a_person

    ann = a_person("ann@vision.example", lab)
    for path in ("/t/vision-lab/invoices/", f"/t/vision-lab/invoices/{march.number}/"):
        assert shown in page(ann, path).replace("&nbsp;", "\xa0"), path
    prove()
