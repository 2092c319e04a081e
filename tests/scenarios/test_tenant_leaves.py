"""The vision lab leaves: what it used is billed, its documents stay, and its people are forgotten."""

from __future__ import annotations

import json
from datetime import date
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import call_command
from django.db.models import ProtectedError
from django.test import Client

from billing.catalog import subscriptions
from billing.catalog.plans import PlanError
from billing.invoicing import credit_notes, manual_lines, offboarding
from billing.invoicing.offboarding import ArchiveError
from billing.models import (
    Archive,
    AutomaticTopUp,
    BillingAccount,
    Invoice,
    InvoiceDocument,
    Notice,
    Plan,
    SavedMethod,
    TopUp,
    Wallet,
    WalletScope,
)
from billing.payments import automatic, checkout_sessions, customers, top_ups
from billing.payments.checkout_sessions import ReturnUrls
from billing.payments.gateway_access import CollectionError
from billing.rules.money import Money
from billing.wallets import wallet_terms
from clusters.models import Account, Cluster
from portal.core.outbox import outbox
from portal.core.tenants import ownership
from portal.core.tenants.models import Membership, Ownership, Tenant, User
from portal.core.tenants.ownership import OwnershipConflictError
from portal.ops.cli import RefusedError
from tests import stories
from tests.builders import a_cluster, a_job, a_person, a_plan, a_tenant, an_operator, at, ingest
from tests.collecting import a_scenario
from tests.configuring_terms import apply, refused
from tests.stories import close, invoice_of, pay, prove, total

pytestmark = pytest.mark.django_db

GONE = at("2026-03-10 12:00")
LATER = at("2026-05-01")


@pytest.fixture
def vision() -> Tenant:
    """Ann's lab has held a GPU at 2.00 since 10 March, 11:00; the job runs on when the lab leaves at noon."""
    cluster = a_cluster(complete_through="2026-04-02")
    tenant = a_tenant(
        "vision-lab",
        plan=a_plan(),
        accounts=[(cluster, "vision")],
        email="ann@vision.example",
        address="Gate 1",
    )
    ingest(cluster, a_job(started="2026-03-10 11:00", ended="2026-03-10 18:00"))
    return tenant


def what_is_left(tenant: Tenant) -> list[str]:
    with pytest.raises(ArchiveError) as refusal:
        offboarding.archive_tenant(tenant=tenant, by="Op", reason="Contract ended", moment=LATER)
    return list(refusal.value.sentences)


def test_case_086_a_tenant_with_unbilled_use_and_an_unpaid_invoice_is_closed_first(vision: Tenant) -> None:
    assert what_is_left(vision) == [
        "It owns an account: end that with --leave, or give them to another tenant.",
        "It is on plan standard: end that with --leave.",
        "14.00 USD before tax are not billed yet: close the months until March 2026.",
    ]
    assert offboarding.end_services(tenant=vision, at=GONE) == 1
    assert offboarding.end_services(tenant=vision, at=GONE) == 0
    assert what_is_left(vision) == [
        "2.00 USD before tax are not billed yet: close the months until March 2026.",  # the hour until noon
    ]
    close("2026-03")
    closing_invoice = invoice_of(vision, "2026-03")
    assert total(closing_invoice) == "2.00"
    assert what_is_left(vision) == [
        "INV-2026-0001 has 2.00 USD due: have it paid, credit it, or write it off."
    ]
    pay(closing_invoice, "3.00")
    assert what_is_left(vision) == ["1.00 USD of INV-2026-0001 is to be paid back: record that."]
    pay(closing_invoice, "-1.00")

    archive = offboarding.archive_tenant(tenant=vision, by="Op", reason="Contract ended", moment=LATER)
    assert (archive.at, archive.by, archive.reason) == (LATER, "Op", "Contract ended")
    assert (
        offboarding.archive_tenant(tenant=vision, by="Oda", reason="again", moment=at("2026-06-01"))
        == archive
    )
    prove()


def test_case_086_a_credited_invoice_and_lines_by_hand_count_too(vision: Tenant) -> None:
    offboarding.end_services(tenant=vision, at=GONE)
    close("2026-03")
    credit_notes.issue_credit_note(
        invoice=invoice_of(vision, "2026-03"), reason="Farewell", by="Op", on=date(2026, 4, 3)
    )
    line = manual_lines.add_manual_line(
        tenant=vision,
        description="Disks",
        net=Money.of("5.00", "USD"),
        reason="left",
        by="Op",
        on=date(2026, 4, 3),
    )
    assert what_is_left(vision) == [
        "1 line by hand waits for its next invoice: remove it, or close its month."
    ]
    manual_lines.remove_manual_line(line=line)
    offboarding.archive_tenant(tenant=vision, by="Op", reason="Contract ended", moment=LATER)
    assert Archive.objects.get().tenant == vision


def test_case_086_documents_are_retained_and_personal_data_is_erased(vision: Tenant) -> None:
    other = a_tenant("speech-lab")
    ann, ben = a_person("ann@vision.example", vision), a_person("ben@vision.example", vision)
    a_person("ben@vision.example", other)
    offboarding.end_services(tenant=vision, at=GONE)
    close("2026-03")
    outbox.drain()
    invoice = invoice_of(vision, "2026-03")
    pay(invoice, "2.00")
    with pytest.raises(ArchiveError, match="vision-lab is not archived"):
        offboarding.erase_tenant(tenant=vision, moment=LATER)
    offboarding.archive_tenant(tenant=vision, by="Op", reason="Contract ended", moment=LATER)
    document = bytes(InvoiceDocument.objects.get().pdf)

    assert offboarding.erase_tenant(tenant=vision, moment=LATER) == ["ann@vision.example"]

    assert not User.objects.filter(pk=ann.pk).exists()
    assert list(Membership.objects.values_list("user", "tenant")) == [(ben.pk, other.pk)]
    vision.refresh_from_db()
    assert (vision.email, vision.address, vision.name) == ("", "", "Vision Lab")
    assert Archive.objects.get().erased_at == LATER
    invoice.refresh_from_db()
    assert invoice.buyer["address"] == "Gate 1"
    assert bytes(InvoiceDocument.objects.get().pdf) == document
    assert offboarding.erase_tenant(tenant=vision, moment=at("2026-06-01")) == []
    assert Archive.objects.get().erased_at == LATER


def test_case_086_an_address_that_the_mail_server_refused_is_erased_with_the_others(vision: Tenant) -> None:
    offboarding.end_services(tenant=vision, at=GONE)
    close("2026-03")
    pay(invoice_of(vision, "2026-03"), "2.00")
    offboarding.archive_tenant(tenant=vision, by="Op", reason="Contract ended", moment=LATER)
    fields = {"tenant": vision, "kind": "reminder", "created_at": GONE, "not_before": GONE}
    refusal = "The mail server refused it: {'ann@vision.example': (550, b'No such user')}"
    Notice.objects.create(key="1", state="failed", to=["ann@vision.example"], reason=refusal, **fields)
    Notice.objects.create(key="2", state="skipped", reason="Nothing is due any more.", **fields)
    offboarding.erase_tenant(tenant=vision, moment=LATER)
    assert list(Notice.objects.filter(kind="reminder").order_by("key").values_list("to", "reason")) == [
        ([], "What the mail server said of its address is erased."),
        ([], "Nothing is due any more."),
    ]


def test_case_086_a_tenant_that_was_billed_cannot_be_deleted(vision: Tenant) -> None:
    close("2026-03")
    with pytest.raises(ProtectedError):
        vision.delete()
    assert Invoice.objects.exists()


def test_case_086_op_archives_and_erases_at_the_shell(
    vision: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    a_person("ann@vision.example", vision)
    with pytest.raises(RefusedError, match="It owns an account"):
        call_command("archive_tenant", "vision-lab", why="Contract ended")
    with pytest.raises(SystemExit):
        call_command(
            "archive_tenant", "vision-lab", why="x", leave=True, at="2026-03-10T12:00:00Z", json=True
        )
    assert json.loads(capsys.readouterr().out) == {
        "tenant": "vision-lab",
        "archived_at": None,
        "accounts_ended": 1,
        "left": ["2.00 USD before tax are not billed yet: close the months until March 2026."],
    }
    call_command("close_period", "2026-03", as_of="2026-04-03")
    pay(invoice_of(vision, "2026-03"), "2.00")
    capsys.readouterr()
    call_command("archive_tenant", "vision-lab", why="Contract ended")
    call_command("erase_tenant", "vision-lab", why="Ann asked for it")
    assert capsys.readouterr().out.splitlines() == [
        "vision-lab is archived. Its invoices stay.",
        "1 person and the contact of vision-lab are erased. Its documents stay as they were issued.",
    ]


def gone(vision: Tenant) -> Tenant:
    """The lab has left, with everything paid, and is archived."""
    offboarding.end_services(tenant=vision, at=GONE)
    close("2026-03")
    pay(invoice_of(vision, "2026-03"), "2.00")
    offboarding.archive_tenant(tenant=vision, by="Op", reason="Contract ended", moment=LATER)
    return vision


def test_case_086_a_tenant_that_has_left_is_put_on_no_plan_again(vision: Tenant) -> None:
    gone(vision)
    with pytest.raises(PlanError) as refusal:
        subscriptions.subscribe(tenant=vision, plan=Plan.objects.get(), since=at("2026-06-01"))
    assert str(refusal.value) == (
        "vision-lab has left, and is archived since 2026-05-01: put a new tenant on plan standard."
    )
    file = """
[[tenant]]
slug = "vision-lab"
plan = "standard"
plan_from = 2026-06-01
"""
    assert any("vision-lab has left, and is archived" in error for error in refused(file))
    assert vision.subscriptions.filter(until=None).count() == 0


def test_case_086_a_tenant_that_has_left_is_given_no_account_again(vision: Tenant) -> None:
    gone(vision)
    apply('[[cluster]]\nname = "gpu1"\nkind = "import"\ntimezone = "UTC"\n')
    account, robots = (
        Account.objects.get(),
        Account.objects.create(cluster=Cluster.objects.get(), name="robots"),
    )
    sentence = (
        "vision-lab has left and is archived, so it owns no account any more: give gpu1/robots to another tenant, "
        "or say until when, before it left, vision-lab had it."
    )
    with pytest.raises(OwnershipConflictError) as refusal:
        ownership.assign(account=robots, tenant=vision, since=at("2026-06-01"))
    assert str(refusal.value) == sentence
    with pytest.raises(RefusedError, match="vision-lab has left and is archived"):
        call_command("assign_account", "gpu1", "robots", "vision-lab")
    file = """
[[tenant]]
slug = "vision-lab"
accounts = [{ cluster = "gpu1", account = "robots" }]
"""
    assert any("vision-lab has left and is archived" in error for error in refused(file))
    client = Client()
    client.force_login(an_operator())
    form = {"account": robots.pk, "tenant": vision.pk, "since_0": "2026-06-01", "since_1": "00:00"}
    page = client.post("/admin/tenants/ownership/add/", form, follow=True)
    assert [str(message) for message in page.context["messages"]] == [sentence]
    with pytest.raises(OwnershipConflictError, match="vision-lab has left and is archived"):
        ownership.amend(ownership=Ownership.objects.get(account=account), since=None, until=None)
    assert Ownership.objects.filter(tenant=vision).count() == 1

    before = ownership.assign(account=robots, tenant=vision, since=at("2026-03-01"), until=at("2026-03-05"))
    assert ownership.amend(ownership=before, since=None, until=at("2026-03-04")).until == at("2026-03-04")


def test_case_086_money_that_is_under_way_keeps_a_tenant_from_being_archived_and_erased() -> None:
    with a_scenario() as scenario:
        scenario.save_account()
        scenario.collect()  # a debit takes days
        lab = scenario.lab
        offboarding.end_services(tenant=lab, at=scenario.now)
        pay(scenario.invoice, "4.00")  # by transfer meanwhile
        sentence = "A payment of 4.00 USD is under way: wait until it is told how that ended."
        assert sentence in offboarding.find_obstacles(lab, moment=LATER)
        Archive.objects.create(tenant=lab, at=LATER, by="Op", reason="in spite of it")
        with pytest.raises(ArchiveError, match=r"A payment of 4\.00 USD is under way"):
            offboarding.erase_tenant(tenant=lab, moment=LATER)
        assert SavedMethod.objects.get().last4


def test_case_086_a_wallet_that_tops_itself_up_is_told_to_stop_first() -> None:
    """Else it would go on buying credit for nobody, from an empty wallet and the saved card."""
    with a_scenario() as scenario:
        lab = scenario.lab
        wallet_terms.set_scheme(
            tenant=lab, unit="USD", scope=WalletScope.TENANT, overdraft=0, since=at("2026-03-01")
        )
        wallet = Wallet.objects.get()
        automatic.set_rule(
            wallet=wallet, active=True, below=1000, amount=2000, most=9000, by="ann", moment=scenario.now
        )
        sentence = "Its wallet in USD tops itself up from its card: turn that off on the wallet's page."
        assert sentence in offboarding.find_obstacles(lab, moment=LATER)
        automatic.turn_off(wallet=wallet, by="ann", moment=scenario.now)
        assert sentence not in offboarding.find_obstacles(lab, moment=LATER)


def test_case_086_a_tenant_that_has_left_saves_no_card_and_buys_no_credit() -> None:
    with a_scenario() as scenario:
        lab, now = scenario.lab, scenario.now
        wallet_terms.set_scheme(
            tenant=lab, unit="USD", scope=WalletScope.TENANT, overdraft=0, since=at("2026-03-01")
        )
        scenario.save_card()
        wallet = Wallet.objects.get()
        low: dict[str, Any] = {
            "active": True,
            "below": 1000,
            "amount": 2000,
            "most": 9000,
            "by": "ann",
            "moment": now,
        }
        automatic.set_rule(wallet=wallet, **low)
        offboarding.end_services(tenant=lab, at=now)
        Archive.objects.create(tenant=lab, at=LATER, by="Op", reason="with its rule still on")

        assert automatic.list_due_rules() == []
        assert (
            automatic.prepare_top_up(rule=AutomaticTopUp.objects.get(), customer="cus_1", moment=now) is None
        )
        sentence = (
            "Vision Lab has left, and is archived since 2026-05-01: no card is saved and no credit bought for it "
            "any more."
        )
        to: dict[str, Any] = {"gateway": scenario.gateway, "who": "ann", "moment": now}
        back = ReturnUrls("https://tab.example/back/", "https://tab.example/")
        for refused_now in (
            lambda: automatic.set_rule(wallet=wallet, **low),
            lambda: top_ups.charge_top_up(wallet=wallet, amount=5000, key=uuid4(), back=back, **to),
            lambda: top_ups.open_page(wallet=wallet, amount=5000, key=uuid4(), back=back, **to),
            lambda: checkout_sessions.open_card_page(tenant=lab, back=back, **to),
        ):
            with pytest.raises(CollectionError) as refusal:
                refused_now()
            assert str(refusal.value) == sentence
        automatic.turn_off(wallet=wallet, by="ann", moment=now)
        assert not AutomaticTopUp.objects.get().active
        assert scenario.charged == []


def test_case_086_who_is_archived_while_stripe_is_asked_buys_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with a_scenario() as scenario:
        lab = scenario.lab
        wallet_terms.set_scheme(
            tenant=lab, unit="USD", scope=WalletScope.TENANT, overdraft=0, since=at("2026-03-01")
        )
        scenario.save_card()
        original = customers.get_customer

        def slowly(tenant: Tenant, **options: Any) -> str:
            Archive.objects.get_or_create(
                tenant=tenant, defaults={"at": LATER, "by": "Op", "reason": "Meanwhile"}
            )
            return original(tenant, **options)

        monkeypatch.setattr(customers, "get_customer", slowly)
        with pytest.raises(CollectionError, match="Vision Lab has left"):
            top_ups.charge_top_up(
                wallet=Wallet.objects.get(),
                amount=5000,
                key=uuid4(),
                gateway=scenario.gateway,
                back=ReturnUrls("https://tab.example/back/", "https://tab.example/"),
                who="ann",
                moment=scenario.now,
            )
        assert (scenario.charged, TopUp.objects.count()) == ([], 0)


def test_case_086_what_is_shown_of_cards_is_erased_and_op_is_told_of_the_customer_at_stripe(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with a_scenario() as scenario:
        scenario.save_card()
        scenario.collect()
        lab = scenario.lab
        assert scenario.settlement == "paid"
        offboarding.end_services(tenant=lab, at=scenario.now)
        stories.close("2026-04", lab, on="2026-05-01", accept="it has left")
        offboarding.archive_tenant(tenant=lab, by="Op", reason="Contract ended", moment=LATER)

        call_command("erase_tenant", "vision-lab", why="Ann asked for it")

        card, account = SavedMethod.objects.get(), BillingAccount.objects.get()
        assert (card.brand, card.last4, card.exp_year, card.fingerprint, card.state) == (
            "",
            "",
            None,
            "",
            "gone",
        )
        assert account.params == {}
        assert capsys.readouterr().out.splitlines()[1] == (
            f"Stripe still knows it as customer {account.customer}, with its cards: delete that there."
        )
        scenario.books_agree()
