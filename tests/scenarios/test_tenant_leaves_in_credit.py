"""A member leaves with money owed to it: no invoice follows that could take it off, so credit notes give it back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from billing.catalog import subscriptions, version_terms
from billing.invoicing import manual_lines, offboarding
from billing.invoicing.month_close import Outcome
from billing.models import Archive, DocumentKind, GrantKind, Invoice, PlanVersion, Wallet, WalletScope
from billing.rating import engine
from billing.rules.money import Money
from billing.wallets import grants, wallet_terms
from billing.wallets.entries import WalletError
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from tests.builders import at
from tests.documentation import table
from tests.evidence import bundle, verified
from tests.on_terms import a_lab, used
from tests.stories import close, invoice_of, pay, prove, total
from tests.terms import TWO_DOLLARS, a_version

pytestmark = pytest.mark.django_db

LATER = at("2026-05-01")


def what_is_left(tenant: Tenant) -> list[str]:
    return list(offboarding.find_obstacles(tenant, moment=LATER))


@pytest.fixture
def member() -> Tenant:
    """Since March it has paid 300.00 a month in advance, and used an hour at 2.00: 602.00 with March's invoice."""
    version = a_version(TWO_DOLLARS)
    version_terms.set_fee(version=version, name="Access", amount=Decimal(300), in_advance=True)
    cluster, member = a_lab(version)
    used(cluster, 1)
    close("2026-03")
    return member


def test_case_086_a_fee_in_advance_comes_back_as_a_credit_note_at_the_close_of_the_last_period(
    member: Tenant,
) -> None:
    """It leaves after 10 of April's 30 days, and no invoice follows that could take 200.00 off."""
    offboarding.end_services(tenant=member, at=at("2026-04-11"))
    assert what_is_left(member) == [
        "-200.00 USD before tax are not billed yet: close the months until April 2026.",
        "INV-2026-0001 has 602.00 USD due: have it paid, credit it, or write it off.",
    ]

    (april,) = close("2026-04")

    assert april.outcome is Outcome.CORRECTED
    assert [document.total.text for document in april.related_documents] == ["-200.00"]
    assert what_is_left(member) == [
        "INV-2026-0001 has 402.00 USD due: have it paid, credit it, or write it off."
    ]
    pay(invoice_of(member, "2026-03"), "602.00")
    assert what_is_left(member) == ["200.00 USD of INV-2026-0001 is to be paid back: record that."]
    pay(invoice_of(member, "2026-03"), "-200.00")
    offboarding.archive_tenant(tenant=member, by="Op", reason="Contract ended", moment=LATER)
    assert close("2026-05")[0].outcome is Outcome.NOTHING
    prove()


@pytest.mark.parametrize(
    "row", table("explanation/amounts.md", "A tenant that leaves"), ids=lambda row: row["closing invoice"]
)
def test_case_086_what_it_used_last_is_billed_with_it(
    member: Tenant, row: Mapping[str, str], tmp_path: Path
) -> None:
    assert (row["fee that was billed"], row["owed"]) == ("300.00", "100.00")
    if hours := int(row["GPU-hours in April"]):
        used(Cluster.objects.get(), hours, day="2026-04-05")
    offboarding.end_services(tenant=member, at=at("2026-04-11"))
    close("2026-04")
    totals = {
        invoice.kind: total(invoice) for invoice in Invoice.objects.filter(tenant=member).order_by("pk")[1:]
    }
    expected = {"invoice": row["closing invoice"], "credit-note": row["credit note"]}
    assert totals == {kind: amount for kind, amount in expected.items() if amount != "none"}
    for invoice in Invoice.objects.of_periods():
        code, text = verified(bundle(invoice), tmp_path)
        assert code == 0, text
    prove()


def test_who_goes_to_another_plan_has_it_taken_off_the_next_invoice(member: Tenant) -> None:
    other = a_version(TWO_DOLLARS, name="other")
    subscriptions.subscribe(tenant=member, plan=other.plan, since=at("2026-04-11"))
    engine.rate_tenants([member])
    assert [(one.outcome, one.related_documents) for one in close("2026-04")] == [(Outcome.CARRIED, ())]
    used(Cluster.objects.get(), 150, day="2026-05-05")
    close("2026-05")
    assert total(invoice_of(member, "2026-05")) == "100.00"
    prove()


def test_case_086_who_is_known_late_to_have_left_is_given_back_at_the_next_close(member: Tenant) -> None:
    """April was closed with May's fee in it before anybody said so."""
    close("2026-04")
    offboarding.end_services(tenant=member, at=at("2026-04-11"))
    blockers = list(offboarding.find_obstacles(member, moment=at("2026-05-04")))
    assert blockers[0] == (
        "-500.00 USD before tax are not billed yet: close the months until May 2026, which can be closed from "
        "2026-06-01 00:00 UTC on."
    )
    close("2026-05", on="2026-06-02", accept="it has left")
    notes = Invoice.objects.filter(kind=DocumentKind.CREDIT_NOTE).order_by("pk")
    assert [(str(note.original), total(note)) for note in notes] == [
        ("INV-2026-0001", "-200.00"),
        ("INV-2026-0002", "-300.00"),
    ]
    prove()


def test_case_086_what_is_taken_off_by_hand_holds_up_no_credit_note(member: Tenant) -> None:
    """Nothing is left to take 50.00 off, so the line waits until somebody removes it."""
    offboarding.end_services(tenant=member, at=at("2026-04-11"))
    manual_lines.add_manual_line(
        tenant=member,
        description="Goodwill",
        net=Money.of("-50.00", "USD"),
        reason="Farewell.",
        by="Op",
        on=date(2026, 4, 12),
    )
    (april,) = close("2026-04")
    assert [document.total.text for document in april.related_documents] == ["-200.00"]
    assert what_is_left(member) == [
        "1 line by hand waits for its next invoice: remove it, or close its month.",
        "INV-2026-0001 has 402.00 USD due: have it paid, credit it, or write it off.",
    ]


def test_case_086_a_discount_that_came_too_late_is_told_with_what_to_do(member: Tenant) -> None:
    offboarding.end_services(tenant=member, at=at("2026-04-11"))
    discount = version_terms.set_discount(
        version=PlanVersion.objects.get(),
        name="Farewell",
        amount=Decimal(62),
        tenant=member,
        valid_from=date(2026, 3, 1),
        valid_until=date(2026, 4, 1),
    )
    (april,) = close("2026-04")
    assert [document.total.text for document in april.related_documents] == ["-200.00"]
    assert what_is_left(member)[0] == (
        "-62.00 USD before tax are not billed yet: close April 2026 again, which credits what was billed. What a "
        "discount takes off that came later stays: take it back, and credit an invoice by hand."
    )
    version_terms.drop_term(term=discount)
    assert what_is_left(member) == [
        "INV-2026-0001 has 402.00 USD due: have it paid, credit it, or write it off."
    ]


def test_the_wallet_of_who_has_left_is_given_nothing_and_what_was_paid_for_it_is_booked() -> None:
    _, lab = a_lab(a_version(TWO_DOLLARS))
    wallet_terms.set_scheme(
        tenant=lab, unit="USD", scope=WalletScope.TENANT, overdraft=0, since=at("2026-03-01")
    )
    Archive.objects.create(tenant=lab, at=LATER, by="Op", reason="Contract ended")
    grant: dict[str, Any] = {"wallet": Wallet.objects.get(), "amount": 500, "who": "op", "moment": LATER}
    with pytest.raises(WalletError, match="archived since 2026-05-01: it would never spend the credit"):
        grants.grant(key="thanks", **grant)
    grants.grant(key="transfer", kind=GrantKind.TOP_UP, **grant)
    assert Wallet.objects.get().balance == 500
