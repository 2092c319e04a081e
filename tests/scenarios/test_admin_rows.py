"""Rows as the administration shows them: money as on the pages, and what is kept as JSON in lines."""

from __future__ import annotations

import pytest
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from billing.models import (
    CloseProof,
    PaymentAttempt,
    WalletEntry,
)
from billing.wallets import grants
from tests.builders import at
from tests.web.house import House, a_house, signed_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def house() -> House:
    return a_house()


@pytest.fixture
def op(house: House) -> Client:
    return signed_in(house.op)


def change_page(row: Model) -> str:
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])


def shown(op: Client, row: Model) -> str:
    answer = op.get(change_page(row))
    assert answer.status_code == 200
    return answer.content.decode()


def test_what_is_kept_as_json_stands_in_lines(op: Client) -> None:
    text = shown(op, CloseProof.objects.earliest("pk"))
    assert "{&quot;" not in text
    assert "<br>" in text.partition("field-sums")[2].partition("</fieldset>")[0]


def test_a_wallet_is_shown_with_its_newest_entries_and_never_changed(op: Client, house: House) -> None:
    wallet = house.wallet
    grants.grant(wallet=wallet, amount=125_000, key="gift", who="op", why="For May", moment=at("2026-04-20"))
    assert "$1,250.00" in op.get(reverse("admin:billing_wallet_changelist")).content.decode()
    text = shown(op, wallet)
    for part in ("$1,250.00", "-$1,250.00", "For May", f"?wallet__id__exact={wallet.pk}"):
        assert part in text
    listed = op.get(reverse("admin:billing_walletentry_changelist"), {"wallet__id__exact": wallet.pk})
    assert listed.content.decode().count('class="field-amount_text"') == WalletEntry.objects.count() == 2
    for row in (wallet, WalletEntry.objects.earliest("pk")):
        assert op.post(change_page(row), {"balance": 1}).status_code == 403


def test_amounts_of_a_row_are_money_and_never_smallest_units(op: Client, house: House) -> None:
    attempt = PaymentAttempt.objects.create(
        tenant=house.vision,
        invoice=house.invoice,
        amount=1300,
        currency="USD",
        fee=30,
        fee_currency="USD",
        created_at=at("2026-04-20"),
    )
    text = shown(op, attempt)
    assert "$13.00" in text
    assert "1300" not in text
    assert "$0.30" in text
