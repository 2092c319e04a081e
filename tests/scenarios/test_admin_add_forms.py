"""Op adds a row to every table of the administration that can be added to, and what is right is saved."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.messages import get_messages
from django.db.models import Model
from django.test import Client, RequestFactory
from django.urls import reverse

from billing.models import Allowance, ManualLine, PlanVersion
from clusters.models import Account
from tests import builders, sharing
from tests.builders import PASSWORD
from tests.hostile.forms import forms_of
from tests.web.house import House, a_house, signed_in

pytestmark = pytest.mark.django_db

begun, house = sharing.fixtures(a_house, "house")


@pytest.fixture
def op(house: House) -> Client:
    return signed_in(house.op)


def add_page(model: type[Model]) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_add")


def values(house: House) -> dict[str, dict[str, Any]]:
    """What Op types, by table; a field that is not named is left as the form shows it."""
    account = Account.objects.create(cluster=house.cluster, name="robotics")
    next_plan = builders.a_plan("next")
    version = PlanVersion.objects.get(plan=next_plan)
    Allowance.objects.create(version=version, name="Included hours", hours=5)
    one_tenant = {"version": version.pk, "tenant": house.vision.pk, "valid_from": "2026-05-01"}
    return {
        "tenants.user": {
            "email": "dora@vision.example",
            "password1": f"{PASSWORD} 2",
            "password2": f"{PASSWORD} 2",
        },
        "tenants.membership": {"user": house.eve.pk, "tenant": house.vision.pk, "role": "member"},
        "tenants.tenant": {"slug": "robotics", "name": "Robotics"},
        "tenants.ownership": {"account": account.pk, "tenant": house.vision.pk},
        "clusters.cluster": {"name": "helios", "kind": "slurm", "timezone": "Europe/Berlin"},
        "clusters.declaredmeter": {"name": "tokens", "title": "Tokens", "unit": "token"},
        "clusters.account": {"cluster": house.cluster.pk, "name": "chemistry"},
        "billing.seller": {
            "code": "second",
            "name": "Southern Compute GmbH",
            "tax_name": "VAT",
            "invoice_prefix": "S-",
            "credit_prefix": "SC-",
        },
        "billing.taxrate": {"country": "AT", "category": "standard", "rate": "20", "since": "2026-01-01"},
        "billing.approvallimit": {"metric": "total", "currency": "USD", "limit": "5000"},
        "billing.operatingcost": {"currency": "USD", "amount": "0.85", "valid_from": "2026-01-01"},
        "billing.dunningpolicy": {"since": "2026-05-01", "suspend": "30"},
        "billing.manualline": {
            "tenant": house.vision.pk,
            "description": "Setup",
            "net": "-5",
            "currency": "USD",
            "reason": "Promised in March",
        },
        "billing.payment": {
            "invoice": house.invoice.pk,
            "paid": "1.00",
            "received_on": "2026-04-20",
            "reference": "Statement 7",
        },
        "billing.plan": {"name": "prepaid", "currency": "USD", "settles": "wallet"},
        "billing.subscription": {
            "tenant": house.vision.pk,
            "plan": next_plan.pk,
            "since_0": "2030-01-01",
            "since_1": "00:00:00",
        },
        "billing.payer": {"tenant": house.vision.pk, "payer": house.speech.pk, "since": "2030-01-01"},
        "billing.allowance": {**one_tenant, "name": "Included hours", "hours": "10"},
        "billing.fee": {**one_tenant, "name": "Support", "amount": "99"},
        "billing.commitment": {**one_tenant, "amount": "500", "overage_factor": "1.1"},
        "billing.discount": {**one_tenant, "name": "Partner", "percent": "10"},
    }


def added(op: Client, model: type[Model], typed: dict[str, Any]) -> Any:
    """The answer to the table's form with these values, sent as a browser does."""
    path = add_page(model)
    (form,) = [one for one in forms_of(path, op.get(path).content.decode()) if one.path == path]
    return op.post(path, form.fields | typed)


def test_every_form_for_a_new_row_saves_what_is_right(house: House, op: Client) -> None:
    admin.autodiscover()
    request = RequestFactory().get("/admin/")
    request.user = house.op
    typed = values(house)
    tables = [model for model, table in admin.site._registry.items() if table.has_add_permission(request)]
    assert {model._meta.label_lower for model in tables} == typed.keys()
    for model in tables:
        count = model._default_manager.count()
        answer = added(op, model, typed[model._meta.label_lower])
        errors = answer.context["errors"] if answer.context else []
        assert (answer.status_code, [*errors]) == (302, []), model._meta.label
        told = [str(message) for message in get_messages(answer.wsgi_request)]
        assert model._default_manager.count() > count, (model._meta.label, told)


def test_a_line_that_op_adds_by_hand_is_named_with_its_amount(house: House, op: Client) -> None:
    line = values(house)["billing.manualline"]
    for net, text in (("5", "Setup: 5.00 USD"), ("-5", "Setup: -5.00 USD")):
        answer = op.post(add_page(ManualLine), {**line, "net": net}, follow=True)
        (message,) = [str(one) for one in answer.context["messages"]]
        assert text in message
    assert [*ManualLine.objects.order_by("pk").values_list("amount", flat=True)] == [500, -500]
