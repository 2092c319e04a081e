"""What a table of the administration refuses is said in a sentence, and no name of the database's reaches Op."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.db.models import BaseConstraint, CheckConstraint, Model, UniqueConstraint
from django.test import Client, RequestFactory
from django.urls import reverse

from billing.models import PlanVersion
from clusters.models import Account
from portal.constraint_sentences import SENTENCES
from tests import builders
from tests.web.house import signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

LEFT_TO_THE_USE_CASE = {
    *("manual_line_is_not_nothing", "payment_is_not_nothing"),  # their amount is no field of the form
    *("account_has_one_owner_at_a_time", "tenant_has_one_payer_at_a_time", "tenant_has_one_plan_at_a_time"),
    *("subscription_ends_after_it_starts",),  # its end is none either
    "payment_is_recorded_once",
}
RATE = "Enter the tax rate as a percentage from 0 to 100."
END = "It has to end later than it begins."


@pytest.fixture
def op() -> Client:
    return signed_in(builders.an_operator())


def tables() -> list[type[Model]]:
    """Those that Op adds rows to."""
    request = RequestFactory().get("/admin/")
    request.user = builders.an_operator()
    admin.autodiscover()
    return [model for model, table in admin.site._registry.items() if table.has_add_permission(request)]


def names_itself(constraint: BaseConstraint) -> bool:
    """Whether Django's error has the constraint's name: of columns that are unique it has theirs."""
    if isinstance(constraint, UniqueConstraint) and constraint.condition is None:
        return False
    return str(constraint.violation_error_message) == str(CheckConstraint.default_violation_error_message)


def test_every_constraint_of_a_form_has_its_sentence() -> None:
    names = {
        constraint.name
        for model in tables()
        if model._meta.label_lower != "tenants.user"  # whose flags no form has
        for constraint in model._meta.constraints
        if names_itself(constraint)
    }
    assert names - SENTENCES.keys() - LEFT_TO_THE_USE_CASE == set()
    assert not [sentence for sentence in SENTENCES.values() if not sentence.endswith(".")]


def test_op_reads_what_to_enter(op: Client) -> None:
    plan = builders.a_plan()
    lab = builders.a_tenant("vision-lab", plan=plan)
    payer = builders.a_tenant("university", plan=plan)
    version = PlanVersion.objects.get()
    account = Account.objects.create(cluster=builders.a_cluster(), name="vision")
    own = {"version": version.pk, "tenant": lab.pk, "name": "Support", "valid_from": "2026-05-01"}
    entered: list[tuple[str, dict[str, Any], str]] = [
        ("tenants_tenant", tenant_form(tax_rate="500"), RATE),
        ("billing_fee", {**own, "amount": "-1"}, SENTENCES["fee_is_not_negative"]),
        ("billing_fee", {**own, "amount": "1", "valid_until": "2026-04-01"}, END),
        ("billing_discount", {**own, "percent": "500"}, SENTENCES["discount_is_a_percentage_or_an_amount"]),
        (
            "billing_operatingcost",
            {"currency": "usd", "amount": "1", "valid_from": "2026-01-01"},
            SENTENCES["operating_cost_has_a_currency"],
        ),
        (
            "tenants_ownership",
            {
                "account": account.pk,
                "tenant": lab.pk,
                "since_0": "2026-05-01",
                "since_1": "00:00:00",
                "until_0": "2026-04-01",
                "until_1": "00:00:00",
            },
            END,
        ),
        (
            "billing_payer",
            {"tenant": lab.pk, "payer": payer.pk, "since": "2026-05-01", "until": "2026-04-01"},
            SENTENCES["payer_ends_no_earlier_than_it_begins"],
        ),
        (
            "clusters_declaredmeter",
            {"name": "LLM Tokens", "title": "Tokens", "unit": "token", "per_unit": 1, "decimals": 0},
            SENTENCES["meter_name_is_one_word"],
        ),
    ]
    for table, form, sentence in entered:
        text = words(op.post(reverse(f"admin:{table}_add"), form).content.decode())
        assert sentence in text, table
        assert "is violated" not in text, table


def tenant_form(**typed: str) -> dict[str, Any]:
    counts = {f"projects-{name}_FORMS": 0 for name in ("TOTAL", "INITIAL")}
    fields = {"slug": "robotics", "name": "Robotics", "timezone": "UTC", "anchor_day": 1, "language": "en"}
    return {**counts, **fields, "tax_category": "standard", "payment_terms_days": 30, **typed}
