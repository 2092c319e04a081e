"""Rows as the administration shows them: money as on the pages, terms in lines, no JSON, and the way to the portal."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from django import forms
from django.contrib import admin
from django.db.models import Model
from django.test import Client, RequestFactory
from django.urls import reverse

from billing.catalog import version_terms
from billing.models import (
    CloseProof,
    PaymentAttempt,
    Plan,
    PlanVersion,
    Quota,
    Subscription,
    Wallet,
    WalletEntry,
)
from billing.quotas import quotas
from billing.quotas.quotas import Setter
from billing.wallets import grants
from clusters.models import Cluster
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


def test_nobody_types_json(house: House) -> None:
    admin.autodiscover()
    request: Any = RequestFactory().get("/")
    request.user = house.op
    for model, table in admin.site._registry.items():
        row = model._default_manager.first()
        for obj in filter(None, (row, None)):
            form = table.get_form(request, obj, change=obj is not None)
            sets = [formset.form for formset, _ in table.get_formsets_with_inlines(request, obj)]
            typed = [field for one in (form, *sets) for field in one.base_fields.values()]
            assert not [field for field in typed if isinstance(field, forms.JSONField)], model


def test_what_is_kept_as_json_stands_in_lines(op: Client) -> None:
    text = shown(op, CloseProof.objects.earliest("pk"))
    assert "{&quot;" not in text
    assert "<br>" in text.partition("field-sums")[2].partition("</fieldset>")[0]


@pytest.mark.parametrize(
    ("typed", "shares"),
    [
        ("a100 1g.10gb 1/4\na100 2g.20gb 2/7\n\n", {"a100": {"1g.10gb": "1/4", "2g.20gb": "2/7"}}),
        ("", {}),
        ("shard 1/4", {"": {"shard": "1/4"}}),
        ("a100 1/4", "Write one a line: the GPU&#x27;s model, the MIG profile or shard, and the share"),
        ("a100 1g.10gb 5/4", "5/4"),
    ],
)
def test_shares_of_mig_slices_are_lines(op: Client, house: House, typed: str, shares: Any) -> None:
    cluster = house.cluster
    form = {"name": cluster.name, "kind": cluster.kind, "timezone": cluster.timezone, "shares": typed}
    answer = op.post(change_page(cluster), form)
    if isinstance(shares, str):
        assert shares in answer.content.decode()
        assert Cluster.objects.get().shares == {}
    else:
        assert answer.status_code == 302
        assert Cluster.objects.get().shares == shares
        assert typed.strip() in shown(op, cluster)


def test_a_version_shows_its_prices_and_terms_and_leads_to_its_editor(op: Client) -> None:
    version = PlanVersion.objects.get(plan__name="vision-deal")
    version_terms.set_fee(
        version=version,
        name="Rack",
        amount=Decimal(150),
        tenant=Subscription.objects.get(plan=version.plan).tenant,
        valid_from=date(2026, 5, 1),
    )
    text = shown(op, version)
    for part in ("$2.00 per GPU-hour", "Rack", "$150.00", "/operator/plan-editor/?plan=vision-deal"):
        assert part in text
    assert 'name="_save"' not in text
    assert op.post(change_page(version), {"charges": ["cpu"]}).status_code == 403
    assert op.get(reverse("admin:billing_planversion_add")).status_code == 403


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


def test_a_row_leads_to_its_page_on_the_portal(op: Client, house: House) -> None:
    assert (house.wallet.tenant, house.budget.tenant) == (house.vision, house.vision)
    pages = {
        house.vision: "/operator/tenants/vision-lab/",
        house.invoice: f"/t/vision-lab/invoices/{house.invoice.number}/",
        Plan.objects.get(name="vision-deal"): "/operator/plans/vision-deal/",
        PlanVersion.objects.get(plan__name="vision-deal"): "/operator/plans/vision-deal/",
        Cluster.objects.get(): f"/operator/clusters/{house.cluster.name}/",
        Wallet.objects.get(): f"/t/vision-lab/wallets/{Wallet.objects.get().pk}/",
        Quota.objects.get(): "/t/vision-lab/budgets/at/gpu/",
    }
    for row, address in pages.items():
        assert f'<a href="{address}" class="viewsitelink">View on portal</a>' in shown(op, row)
        assert op.get(address).status_code == 200, address


def test_a_budget_that_is_over_leads_to_the_tenants_budgets(op: Client, house: House) -> None:
    quotas.end_quota(tenant=house.budget.tenant, name="gpu", by=Setter.OPERATOR, moment=at("2026-04-20"))
    assert '<a href="/t/vision-lab/budgets/" class="viewsitelink">' in shown(op, Quota.objects.get())
