"""What e-invoices want to be told of seller and tenants is entered in a file and in the administration alike."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.test import Client
from django.urls import reverse

from billing.models import Seller
from portal.core.tenants.models import Tenant
from tests import builders
from tests.scenarios.configuring import PHILLY, Op

SELLER = {
    "postcode": "20457",
    "city": "Hamburg",
    "contact_name": "Customer accounts",
    "contact_phone": "+49 40 5550123",
    "electronic_address": "9930:DE811234565",
}
TENANT = {
    "postcode": "10115",
    "city": "Berlin",
    "electronic_address": "0204:04011000-1234512345-06",
    "buyer_reference": "04011000-1234512345-06",
}
WRONG = [
    ("seller", "electronic_address", "DE811234565", "is no electronic address: write its scheme"),
    ("seller", "contact_phone", "none", "write a telephone number with at least three digits."),
    ("tenant", "electronic_address", "0001:x", "is no electronic address: write its scheme"),
    ("tenant", "buyer_reference", "04011000-1234512345-07", "its check digits do not fit"),
]

pytestmark = pytest.mark.django_db


def toml(fields: dict[str, str]) -> str:
    return "".join(f'{name} = "{value}"\n' for name, value in fields.items())


def file(seller: dict[str, str], tenant: dict[str, str]) -> str:
    return f'[seller]\nname = "North"\n{toml(seller)}\n{PHILLY}\n{toml(tenant)}'


def test_a_file_says_them(tmp_path: Path) -> None:
    op = Op(tmp_path)
    changes = "\n".join(op.applies(file(SELLER, TENANT)))
    assert Seller.objects.values(*SELLER).get() == SELLER
    assert Tenant.objects.values(*TENANT).get() == TENANT
    for value in (*SELLER.values(), *TENANT.values()):
        assert value in changes
    removals = "\n".join(op.applies(file(SELLER | {"city": ""}, TENANT | {"buyer_reference": ""})))
    assert "seller: city Hamburg -> nothing" in removals
    assert "tenant vision-lab: buyer_reference 04011000-1234512345-06 -> nothing" in removals


@pytest.mark.parametrize(("of", "field", "value", "sentence"), WRONG)
def test_a_file_with_a_mistake_is_refused(
    tmp_path: Path, of: str, field: str, value: str, sentence: str
) -> None:
    seller, tenant = (dict(party) for party in (SELLER, TENANT))
    (seller if of == "seller" else tenant)[field] = value
    (error,) = Op(tmp_path).is_refused(file(seller, tenant))
    assert f"{field} is '{value}'" in error
    assert sentence in error


@pytest.mark.parametrize(("of", "field", "value", "sentence"), WRONG)
def test_the_administrations_forms_have_them_and_refuse_the_same(
    client: Client, of: str, field: str, value: str, sentence: str
) -> None:
    client.force_login(builders.an_operator())
    row = builders.a_seller() if of == "seller" else builders.a_tenant()
    model = "billing_seller" if of == "seller" else "tenants_tenant"
    url = reverse(f"admin:{model}_change", args=[row.pk])
    shown = client.get(url).content.decode()
    for name in SELLER if of == "seller" else TENANT:
        assert f'name="{name}"' in shown
    answer = client.post(url, {field: value})
    assert sentence in answer.content.decode().replace("&#x27;", "'")
