"""The pages of prepaid balances: what Ben and Ann see of theirs, and Eve does not."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from billing.models import GrantEvery, Wallet, WalletScope
from billing.rules.money import TOKENS
from billing.wallets import booking, wallet_terms
from billing.wallets.wallet_terms import Rule
from portal.core.tenants.models import Role, Tenant, User
from tests import builders
from tests.builders import at
from tests.web.house import a_house, page, signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db


@pytest.fixture
def lab() -> Tenant:
    """Ben used 8 × RTX 3090 for 5 hours of the 100 tokens he had; Zoe 3 hours more than she had."""
    cluster = builders.a_cluster()
    plan = builders.a_plan(
        "tokens", TOKENS, prices=[("gpu-hour", {}, "1", builders.LONG_AGO)], settles="wallet"
    )
    tenant = builders.a_tenant(plan=plan, accounts=[(cluster, "vision")])
    scheme = wallet_terms.set_scheme(
        tenant=tenant, unit=TOKENS, scope=WalletScope.USER, overdraft=10 * 10**6, since=at("2026-03-01")
    )
    wallet_terms.set_rule(
        scheme=scheme,
        rule=Rule(name="to begin with", amount=10**8, every=GrantEvery.ONCE, begins_at=at("2026-03-01")),
    )
    builders.ingest(
        cluster,
        builders.a_job(gpus=8, ended="2026-03-02 15:00"),
        builders.a_job(user="zoe", gpus=10, started="2026-03-04 10:00", ended="2026-03-04 20:18"),
    )
    booking.book(tenant=tenant, moment=at("2026-03-05 08:00"))
    return tenant


def test_ann_sees_every_wallet_and_who_is_in_debt(lab: Tenant) -> None:
    text = page(builders.a_person("ann@vision.example", lab), f"/t/{lab.slug}/wallets/")
    assert (
        "Depending on your plan, they pay for usage as it happens, or for invoices when these are issued."
        in text
    )
    assert "60 tokens" in text
    assert "-3 tokens" in text
    assert "Debt" in text
    assert "Total: <strong>57 tokens</strong>" in text


def test_a_month_of_a_wallet_is_summed_up_in_german_for_who_reads_german(lab: Tenant) -> None:
    ben = builders.a_person("ben@vision.example", lab, Role.MEMBER)
    User.objects.filter(pk=ben.pk).update(language="de")
    wallet = Wallet.objects.get(user="ben")
    text = words(page(ben, f"/t/{lab.slug}/wallets/{wallet.pk}/statement/?month=2026-03"))
    assert f"Benutzer · {lab.name}" in text
    assert "Gegeben" in text
    assert "Given" not in text


def test_a_statement_says_what_was_booked_and_what_was_left_after_it(lab: Tenant) -> None:
    ben = builders.a_person("ben@vision.example", lab, Role.MEMBER)
    wallet = Wallet.objects.get(user="ben")
    text = page(ben, f"/t/{lab.slug}/wallets/{wallet.pk}/")
    for sentence in (
        "+100 tokens",
        "-40 tokens",
        "Use of 2026-03-02",
        "to begin with",
        "60 tokens",
        "70 tokens",
    ):
        assert sentence in text


def test_the_overview_leads_to_the_wallets(lab: Tenant) -> None:
    text = page(builders.a_person("ann@vision.example", lab), f"/t/{lab.slug}/")
    assert "Prepaid balance" in text
    assert f'<a href="/t/{lab.slug}/wallets/">in 2 wallets</a>' in text


def test_a_tenant_without_one_is_told_how_it_pays() -> None:
    tenant = builders.a_tenant("speech-lab")
    text = page(builders.a_person("eve@speech.example", tenant), "/t/speech-lab/wallets/")
    assert "Usage here is paid by invoice." in text


def test_eve_finds_nothing_under_the_number_of_anothers_wallet(lab: Tenant) -> None:
    wallet = Wallet.objects.get(user="ben")
    eves = builders.a_tenant("speech-lab")
    client: Client = signed_in(builders.a_person("eve@speech.example", eves))
    assert client.get(f"/t/{lab.slug}/wallets/{wallet.pk}/").status_code == 404
    assert client.get(f"/t/speech-lab/wallets/{wallet.pk}/").status_code == 404
    assert client.get(f"/t/speech-lab/wallets/{2**63}/").status_code == 404


def test_the_menu_has_wallets_on_every_page_of_a_tenant_that_has_some_and_on_none_of_others() -> None:
    house = a_house()
    assert house.wallet.tenant == house.vision
    entry = 'href="/t/{}/wallets/"'
    for path in ("", "jobs/", "live/", "quote/", "invoices/", "wallets/"):
        assert entry.format("vision-lab") in page(house.ann, f"/t/vision-lab/{path}"), path
        assert entry.format("speech-lab") not in page(house.eve, f"/t/speech-lab/{path}"), path


def test_a_long_statement_goes_on_behind_a_cursor_with_the_same_balances(lab: Tenant) -> None:
    cluster = builders.a_cluster()
    for day in range(1, 29):
        for month in ("05", "06"):
            builders.ingest(
                cluster,
                builders.a_job(
                    started=f"2026-{month}-{day:02d} 10:00", ended=f"2026-{month}-{day:02d} 11:00"
                ),
            )
    booking.book(tenant=lab, moment=at("2026-07-01"))
    ann = builders.a_person("ann@vision.example", lab)
    wallet = Wallet.objects.get(user="ben")
    address = f"/t/{lab.slug}/wallets/{wallet.pk}/"
    newest = page(ann, address)
    assert "4 tokens" in newest
    older = newest.partition('class="btn" href="?before=')[2].partition('"')[0]
    earlier = page(ann, f"{address}?before={older}")
    assert "Use of 2026-03-02" in earlier
    assert "+100 tokens" in earlier


def test_a_months_statement_goes_from_its_opening_to_its_closing_balance(lab: Tenant) -> None:
    builders.ingest(
        builders.a_cluster(), builders.a_job(gpus=7, started="2026-04-02 10:00", ended="2026-04-02 11:00")
    )
    booking.book(tenant=lab, moment=at("2026-04-03 08:00"))
    ann = builders.a_person("ann@vision.example", lab)
    address = f"/t/{lab.slug}/wallets/{Wallet.objects.get(user='ben').pk}/statement/"

    march = table_text(page(ann, f"{address}?month=2026-03"))
    assert "March 2026" in march
    assert "Opening balance 0 tokens Given +100 tokens Used -40 tokens Closing balance 60 tokens" in march
    april = table_text(page(ann, f"{address}?month=2026-04"))
    assert "Opening balance 60 tokens Used -7 tokens Closing balance 53 tokens" in april
    assert "Opening balance 53 tokens Closing balance 53 tokens" in table_text(
        page(ann, f"{address}?month=2026-05")
    )
    assert "Nothing was booked in this month." in page(ann, f"{address}?month=2026-05")
    rows = bytes(signed_in(ann).get(f"{address}csv?month=2026-04").content).decode().splitlines()
    assert rows == [
        "booked,what,service_day,amount,balance,unit",
        "2026-04-01T00:00:00+0000,Opening balance,,,60.000000,TOK",
        "2026-04-03T08:00:00+0000,Use of 2026-04-02,2026-04-02,-7.000000,53.000000,TOK",
        "2026-05-01T00:00:00+0000,Closing balance,,,53.000000,TOK",
    ]
    for query in ("?month=soon", "?month=9999-12"):
        assert signed_in(ann).get(f"{address}{query}").status_code == 404


def table_text(text: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", text).split())
