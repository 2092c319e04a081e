"""Plans whose wallet pays invoices first: what it can is drawn when one is issued, and the rest is to be paid."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest
from django.db import DatabaseError, transaction
from hypothesis import given
from hypothesis import strategies as st

from billing.catalog import subscriptions
from billing.catalog.plans import PlanError
from billing.documents import build
from billing.documents.verify_invoice.__main__ import recompute
from billing.invoicing import credit_notes, voids
from billing.models import Invoice, Plan, Wallet, WalletEntry, WalletGrant, WalletScheme, WalletScope
from billing.models.wallets import CreditsGo
from billing.receivables import settlement
from billing.rules.money import Money
from billing.rules.wallet import Grant, pay
from billing.wallets import grants, wallet_holds, wallet_terms
from billing.wallets.entries import WalletError
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from tests.builders import LONG_AGO, a_cluster, a_job, a_plan, a_seller, a_tenant, at, ingest
from tests.configuring_terms import apply, refused
from tests.evidence import bundle, files_of, rows_of
from tests.scenarios import configuring
from tests.scenarios.real import run
from tests.stories import close, closed, draft, invoice_of, issue, prove, total

pytestmark = pytest.mark.django_db

TODAY = date(2026, 4, 9)


def a_first_plan(currency: str = "USD", price: str = "2.00") -> Plan:
    return a_plan("prepaid", currency, prices=[("gpu-hour", {}, price, LONG_AGO)], settles="wallet-first")


def a_lab(*, credits_go: CreditsGo = CreditsGo.WALLET, **fields: Any) -> tuple[Cluster, Tenant, Wallet]:
    """A tenant with an empty wallet in dollars."""
    a_seller()
    cluster = a_cluster(complete_through="2026-09-01")
    vision = a_tenant(plan=a_first_plan(), accounts=[(cluster, "vision")], **fields)
    scheme = wallet_terms.set_scheme(
        tenant=vision,
        unit="USD",
        scope=WalletScope.TENANT,
        overdraft=100_00,
        since=at("2026-03-01"),
        credits_go=credits_go,
    )
    return cluster, vision, Wallet.objects.get(scheme=scheme)


def top_up(
    wallet: Wallet, cents: int, key: str = "R1", on: str = "2026-03-01 09:00", **options: Any
) -> WalletGrant:
    return grants.grant(wallet=wallet, amount=cents, key=key, who="op", moment=at(on), **options)


def used(cluster: Cluster, hours: int, day: str = "2026-03-20") -> None:
    ingest(cluster, a_job(gpus=hours, started=f"{day} 10:00", ended=f"{day} 11:00"))


def drawn(invoice: Invoice) -> dict[str, int]:
    """By grant what left it for the invoice, in cents."""
    rows = WalletEntry.objects.filter(invoice=invoice, side="balance").select_related("grant").order_by("pk")
    return {row.grant.key: -row.amount for row in rows if row.grant}


def left() -> dict[str, int]:
    return dict(WalletGrant.objects.order_by("pk").values_list("key", "left"))


def test_the_wallet_pays_what_it_can_and_the_rest_is_due() -> None:
    cluster, vision, wallet = a_lab(tax_rate="19")
    top_up(wallet, 50_00)
    used(cluster, 40)

    closed("2026-03", vision)

    (entry,) = run("show_invoices")["invoices"]
    # 40 × 2.00 = 80.00; the tax is on all of it: 15.20
    assert (entry["subtotal"], entry["tax"], entry["total"]) == ("80.00", "15.20", "95.20")
    assert (entry["from_wallet"], entry["paid"], entry["due"]) == ("50.00", "0.00", "45.20")
    assert entry["settlement"] == "past_due"
    invoice = invoice_of(vision, "2026-03")
    assert drawn(invoice) == {"R1": 50_00}
    wallet.refresh_from_db()
    assert wallet.balance == 0
    document = build.document_of(invoice)
    (shown,) = run("show_wallets")["wallets"]
    assert [shown[side] for side in ("balance", "granted", "used", "spent", "invoice", "expired")] == [
        "0.00",
        "50.00",
        "0.00",
        "0.00",
        "50.00",
        "0.00",
    ]
    listed = "(granted 50.00, used 0.00, spent 0.00, paid on invoices 50.00, expired 0.00)"
    assert listed in configuring.run("show_wallets")
    assert document.prepaid == (("Paid from wallet", "-$50.00"),)
    assert (document.total, document.amount_due) == ("$95.20", "$45.20")
    assert "Paid from the wallet: $50.00 of R1." in document.notes
    prove()


def test_what_the_wallet_pays_in_full_is_paid() -> None:
    cluster, vision, wallet = a_lab()
    top_up(wallet, 100_00)
    used(cluster, 40)
    closed("2026-03", vision)
    stand = settlement.load_balance(invoice=invoice_of(vision, "2026-03"), on=TODAY)
    assert (stand.from_wallet.text, stand.due.text, stand.settlement) == ("80.00", "0.00", "paid")
    assert left() == {"R1": 20_00}
    prove()


def test_the_evidence_says_which_grants_paid_and_is_computed_again() -> None:
    cluster, vision, wallet = a_lab(tax_rate="19")
    top_up(wallet, 30_00, "R1", expires_on=date(2026, 6, 1))
    top_up(wallet, 30_00, "R2")
    used(cluster, 40)
    closed("2026-03", vision)
    content = bundle(invoice_of(vision, "2026-03"))
    document, usage = json.loads(files_of(content)["invoice.json"]), rows_of(content)
    assert document["wallet"] == [
        {"grant": "R1", "expires": "2026-06-01", "amount": 30_00},
        {"grant": "R2", "expires": "", "amount": 30_00},
    ]
    assert (document["prepaid"], document["due"]) == (60_00, 35_20)
    assert recompute(document, usage) == []
    document["wallet"][0]["amount"] = 29_00
    assert recompute(document, usage) == [
        "the wallet's entries add up to 59.00 USD, the invoice says 60.00 USD"
    ]


def test_neither_overdraft_nor_what_is_held_pays_an_invoice() -> None:
    cluster, vision, wallet = a_lab()
    top_up(wallet, 50_00)
    wallet_holds.hold(wallet=wallet, amount=20_00, key="job 7", moment=at("2026-03-30"))
    used(cluster, 40)
    closed("2026-03", vision)
    assert invoice_of(vision, "2026-03").prepaid == 30_00
    wallet.refresh_from_db()
    assert (wallet.balance, wallet.held) == (20_00, 20_00)
    prove()


def test_case_065_grants_pay_by_priority_then_by_what_expires_first() -> None:
    cluster, vision, wallet = a_lab()
    top_up(wallet, 30_00, "gift", priority=10)
    top_up(wallet, 30_00, "never")
    top_up(wallet, 30_00, "june", expires_on=date(2026, 6, 1))
    used(cluster, 40)
    closed("2026-03", vision)
    assert drawn(invoice_of(vision, "2026-03")) == {"gift": 30_00, "june": 30_00, "never": 20_00}


def test_case_066_a_grant_that_expires_in_the_period_pays_for_the_days_before_alone() -> None:
    cluster, vision, wallet = a_lab()
    top_up(wallet, 100_00, "R1", expires_on=date(2026, 3, 16))
    used(cluster, 10, "2026-03-15")
    used(cluster, 30, "2026-03-16")
    grants.tend(moment=at("2026-04-02"))  # long expired, but March is not invoiced yet
    assert left() == {"R1": 100_00}

    closed("2026-03", vision)

    assert drawn(invoice_of(vision, "2026-03")) == {"R1": 20_00}  # 10 of the 40 hours
    grants.tend(moment=at("2026-04-04"))
    assert left() == {"R1": 0}
    assert WalletEntry.objects.get(side="expired").amount == 80_00
    prove()


def test_case_066_a_fee_is_spread_evenly_where_nothing_was_used() -> None:
    apply("""
[[plan]]
name = "flat"
currency = "USD"
settles = "wallet-first"
charges = ["gpu"]
from = 2026-01-01
fee = [{ name = "Access", amount = "310.00" }]

[[tenant]]
slug = "vision-lab"
name = "Vision Lab"
plan = "flat"
plan_from = 2026-03-01
[[tenant.wallet]]
for = "tenant"
unit = "USD"
from = 2026-03-01
credits = "pay-back"
grants = [{ every = "once", amount = "500", lasts_days = 10 }]
""")
    (outcome,) = close("2026-03")
    assert outcome.outcome == "issued"
    assert Invoice.objects.get().prepaid == 100_00  # 10 of 31 days
    assert WalletScheme.objects.get().credits == "pay-back"
    prove()


def test_case_068_void_gives_back_to_the_same_grants_and_the_next_invoice_draws_again() -> None:
    cluster, vision, wallet = a_lab()
    top_up(wallet, 30_00, "short", expires_on=date(2026, 4, 1))
    top_up(wallet, 30_00, "long")
    used(cluster, 20)
    closed("2026-03", vision)
    march = invoice_of(vision, "2026-03")
    assert drawn(march) == {"short": 30_00, "long": 10_00}
    grants.tend(moment=at("2026-04-08"))

    voids.void_invoice(invoice=march, reason="Wrong address.", by="op", on=TODAY)

    assert left() == {"short": 30_00, "long": 30_00}
    assert WalletEntry.objects.filter(side="invoice", invoice=march).count() == 2
    grants.tend(moment=at("2026-04-20"))
    assert left() == {"short": 30_00, "long": 30_00}  # for March, which is open again, and nothing else
    prove()
    used(cluster, 25, "2026-04-02")
    closed("2026-03", vision, on="2026-04-21")
    assert drawn(invoice_of(vision, "2026-03")) == {"short": 30_00, "long": 10_00}
    closed("2026-04", vision)
    assert drawn(invoice_of(vision, "2026-04")) == {"long": 20_00}
    prove()


def test_case_068_what_an_expired_grant_gets_back_of_a_credit_note_stays_expired() -> None:
    cluster, vision, wallet = a_lab()
    top_up(wallet, 50_00, "short", expires_on=date(2026, 4, 1))
    used(cluster, 20)
    closed("2026-03", vision)
    grants.tend(moment=at("2026-04-08"))
    note = credit_notes.issue_credit_note(
        invoice=invoice_of(vision, "2026-03"),
        reason="Goodwill.",
        by="op",
        on=TODAY,
        net=Money.of("15.00", "USD"),
    )
    assert note.prepaid == -15_00
    assert left() == {"short": 0}
    prove()


@pytest.mark.parametrize(
    ("policy", "back", "due"), [(CreditsGo.WALLET, 25_00, "0.00"), (CreditsGo.PAY_BACK, 0, "-25.00")]
)
def test_a_credit_note_gives_back_to_the_wallet_what_was_not_due_by_policy(
    policy: CreditsGo, back: int, due: str
) -> None:
    cluster, vision, wallet = a_lab(credits_go=policy)
    top_up(wallet, 70_00)
    used(cluster, 40)  # 80.00, of which 10.00 are due
    closed("2026-03", vision)
    march = invoice_of(vision, "2026-03")

    note = credit_notes.issue_credit_note(
        invoice=march, reason="Goodwill.", by="op", on=TODAY, net=Money.of("35.00", "USD")
    )

    assert left() == {"R1": back}
    march.refresh_from_db()
    stand = settlement.load_balance(invoice=march, on=TODAY)
    assert stand.from_wallet.minor == 70_00 - back
    assert stand.due.text == due
    assert build.document_of(note).prepaid == ((("Given back to the wallet", "$25.00"),) if back else ())
    prove()


def test_usage_that_shrank_comes_back_to_the_wallet_by_way_of_its_credit_note() -> None:
    cluster, vision, wallet = a_lab(corrections="credit-note")
    top_up(wallet, 100_00)
    ingest(cluster, a_job(source_key="7@1", ended="2026-03-03 10:00"))  # 24 h
    closed("2026-03", vision)
    ingest(cluster, a_job(source_key="7@1", ended="2026-03-02 20:00"))  # 10 h after all
    closed("2026-04", vision)
    assert left() == {"R1": 80_00}
    note = Invoice.objects.get(kind="credit-note")
    assert (note.total, note.prepaid) == (-28_00, -28_00)
    prove()


def test_what_is_given_after_the_period_but_before_its_invoice_pays_too() -> None:
    cluster, vision, wallet = a_lab()
    used(cluster, 40)
    top_up(wallet, 80_00, on="2026-04-02 09:00")
    closed("2026-03", vision)
    assert invoice_of(vision, "2026-03").prepaid == 80_00


def test_closing_again_draws_nothing_more_and_a_previewed_close_nothing_at_all() -> None:
    cluster, vision, wallet = a_lab()
    top_up(wallet, 50_00)
    used(cluster, 40)
    close("2026-03", vision, preview=True)
    assert not WalletEntry.objects.filter(side="invoice").exists()
    closed("2026-03", vision)
    assert closed("2026-03", vision).outcome == "already issued"
    assert WalletEntry.objects.filter(side="invoice").count() == 1


def test_a_tenant_without_credit_pays_all_of_it_by_invoice() -> None:
    cluster, vision, _ = a_lab()
    used(cluster, 40)
    closed("2026-03", vision)
    assert (total(invoice_of(vision, "2026-03")), invoice_of(vision, "2026-03").prepaid) == ("80.00", 0)


def test_the_database_refuses_a_share_of_the_wallet_that_it_did_not_pay() -> None:
    cluster = a_cluster(complete_through="2026-09-01")
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    used(cluster, 40)
    march = draft(vision, "2026-03")
    Invoice.objects.filter(pk=march.pk).update(prepaid=10_00)
    with pytest.raises(DatabaseError, match="has not paid"), transaction.atomic():
        issue(march, on=TODAY)
    with pytest.raises(DatabaseError, match="wallet_pays_a_part_of_the_total"), transaction.atomic():
        Invoice.objects.filter(pk=march.pk).update(prepaid=80_01)


def test_wallets_of_projects_and_users_pay_no_invoice() -> None:
    _, vision, _ = a_lab()
    euros = a_plan("euros", "EUR", settles="wallet-first")
    arguments = {"tenant": vision, "unit": "EUR", "overdraft": 0, "since": at("2026-03-01")}
    wallet_terms.set_scheme(scope=WalletScope.USER, **arguments)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match=r"and each user has one: that is one wallet, for the tenant\."):
        subscriptions.subscribe(tenant=vision, plan=euros, since=at("2026-05-01"))
    other = a_tenant("audio", plan=a_plan("prepaid-2", settles="wallet-first"))
    with pytest.raises(WalletError, match="has its wallet in USD pay invoices first"):
        wallet_terms.set_scheme(
            tenant=other, unit="USD", scope=WalletScope.PROJECT, overdraft=0, since=at("2026-03-01")
        )


def test_tokens_pay_no_invoice() -> None:
    assert refused("""
[[plan]]
name = "tokens"
currency = "TOK"
settles = "wallet-first"
charges = ["gpu"]
from = 2026-01-01
""") == ['plan "tokens": No invoice is in tokens: a plan in TOK has settles = "wallet".']


DAYS = [date(2026, 3, day) for day in range(1, 32)]


@given(
    parts=st.lists(st.tuples(st.sampled_from(DAYS), st.integers(0, 100)), max_size=6).map(sorted),
    grants=st.lists(
        st.tuples(st.integers(1, 100), st.integers(0, 2), st.none() | st.sampled_from(DAYS)), max_size=4
    ),
    limit=st.integers(0, 200),
)
def test_no_grant_pays_more_than_it_has_nor_for_days_behind_it(
    parts: list[tuple[date, int]], grants: list[tuple[int, int, date | None]], limit: int
) -> None:
    rows = [Grant(key, left, place, DAYS[0], ends) for key, (left, place, ends) in enumerate(grants)]
    amounts = {piece.grant: piece.amount for piece in pay(parts, rows, limit=limit)}
    owed = sum(amount for _, amount in parts)
    assert sum(amounts.values()) <= min(limit, owed)
    for row in rows:
        before = sum(amount for day, amount in parts if row.expires_on is None or day < row.expires_on)
        assert 0 <= amounts.get(row.key, 0) <= min(row.left, before)
    if all(row.expires_on is None for row in rows):
        assert sum(amounts.values()) == min(limit, owed, sum(row.left for row in rows))
