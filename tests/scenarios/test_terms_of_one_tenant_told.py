"""What one tenant has of its own: in the file, in the administration, in trials and in what has accrued."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from billing.catalog import version_terms
from billing.models import Allowance, BillingPeriod, Commitment, Discount, Fee, PlanVersion
from billing.queries.accrued_charges import accrued
from billing.rules.money import Money
from billing.simulation import what_if
from clusters.models import Cluster
from portal.config_file import drafts
from portal.config_file.export import plan_text
from portal.config_file.schema import parse
from portal.core.audit.models import AuditEntry
from portal.core.tenants.models import Tenant
from tests.builders import an_operator, at
from tests.configuring_terms import apply, refused
from tests.history import history
from tests.on_terms import a_lab, used
from tests.scenarios.test_terms_of_one_tenant import agrees
from tests.stories import close, closed, prove
from tests.terms import TWO_DOLLARS, a_version
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db


# The file, the command that tries plans, and what has accrued


SITE = """
[[cluster]]
name = "gpu1"
kind = "import"
timezone = "UTC"
[[plan]]
name = "club"
currency = "USD"
charges = ["gpu"]
from = 2026-01-01
allowance = [
    { name = "Included hours", hours = 100, rollover = true },
    { name = "Included hours", hours = "12.5", tenant = "vision-lab", from = 2026-03-17, until = 2026-05-01 },
]
fee = [
    { name = "Base fee", amount = "99.00", in_advance = true },
    { name = "Base fee", amount = "49.00", tenant = "vision-lab", until = 2026-05-01 },
    { name = "Base fee", amount = "0", tenant = "vision-lab", from = 2026-05-01 },
]
commitment = [
    { amount = 500, overage_factor = "1.5" },
    { amount = 0, tenant = "vision-lab", from = 2026-03-17 },
]
discount = [
    { name = "Launch offer", percent = "20", until = 2026-07-01 },
    { name = "Launch offer", percent = "0", tenant = "vision-lab", from = 2026-04-11 },
]
[[plan.price]]
meter = "gpu-hour"
unit_price = "2.00"
allowance = "Included hours"
[[tenant]]
slug = "vision-lab"
name = "Vision Lab"
plan = "club"
plan_from = 2026-03-10
accounts = [{ cluster = "gpu1", account = "vision" }]
"""


def test_a_file_says_what_is_for_one_tenant_alone() -> None:
    changes = apply(SITE)
    for sentence in (
        (
            "plan club from 2026-01-01, allowance Included hours of vision-lab from 2026-03-17: new "
            "(hours 12.5, rollover yes, from 2026-03-17, until 2026-05-01)"
        ),
        (
            "plan club from 2026-01-01, fee Base fee of vision-lab from 2026-01-01: new "
            "(amount 49, in advance yes, from 2026-01-01, until 2026-05-01)"
        ),
        (
            "plan club from 2026-01-01, commitment Minimum commitment of vision-lab from 2026-03-17: new "
            "(amount 0, overage factor 1, from 2026-03-17)"
        ),
        (
            "plan club from 2026-01-01, discount Launch offer of vision-lab from 2026-04-11: new "
            "(percent 0, from 2026-04-11)"
        ),
    ):
        assert sentence in changes, changes
    assert apply(SITE) == ["Nothing to change."]
    assert apply(SITE.replace('"49.00"', '"39.00"')) == [
        "plan club from 2026-01-01, fee Base fee of vision-lab from 2026-01-01: amount 49 -> 39"
    ]


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ('tenant = "vision-lab", until', 'tenant = "nobody", until', "tenant is 'nobody', which neither"),
        ('tenant = "vision-lab", until', "until", "until goes with `tenant`"),
        ('"0", tenant = "vision-lab", from = 2026-05-01', '"0", tenant = "vision-lab", from = 2026-04-30',
         "Base fee of vision-lab from 2026-04-30 overlaps that from 2026-01-01 until 2026-05-01"),
        ('"12.5", tenant', '"12.5", rollover = false, tenant', "rolls over as the plan's does"),
        ('Included hours", hours = "12.5"', 'Other hours", hours = "12.5"', "has no allowance 'Other hours' for all"),
        ("from = 2026-03-17, until = 2026-05-01", "from = 2026-03-17, until = 2026-03-17", "before it begins"),
        ('amount = "49.00"', 'amount = "-1"', "A fee is zero or more, not -1."),
    ],
)  # fmt: skip
def test_case_042_own_terms_that_cannot_be_are_refused(before: str, after: str, sentence: str) -> None:
    assert before in SITE
    errors = refused(SITE.replace(before, after))
    assert any(sentence in error for error in errors), errors


def used_for_three_months(vision: Tenant) -> None:
    cluster = Cluster.objects.get()
    cluster.complete_through = None
    for day in ("2026-03-20", "2026-04-20", "2026-05-20"):
        used(cluster, 150, day=day)
    for month in ("2026-03", "2026-04", "2026-05"):
        closed(month, vision, accept="read to the end")


def test_what_is_tried_is_what_was_billed_and_what_has_accrued_what_a_close_says(tmp_path: Path) -> None:
    apply(SITE)
    vision = Tenant.objects.get()
    used_for_three_months(vision)
    for month in ("2026-03", "2026-04", "2026-05"):
        agrees(vision, month, tmp_path)
    prove()

    (tried,) = what_if.simulate_plan(
        tenants=[vision],
        months=((2026, 3), (2026, 5)),
        draft=lambda name: drafts.write(parse(SITE).plans, name),
    )
    assert [(row.line, row.now, row.tried) for row in tried.rows if row.now != row.tried] == []

    june = BillingPeriod.objects.get(tenant=vision, start=at("2026-06-01"))
    version_terms.set_fee(
        version=PlanVersion.objects.get(), name="Racks", amount=Decimal(300), tenant=vision,
        valid_from=date(2026, 6, 16),
    )  # fmt: skip
    used(Cluster.objects.get(), 200, day="2026-06-10")
    charges = accrued(tenant=vision, period=june)
    assert charges is not None
    assert ("Racks", Money.of("150.00", "USD")) in charges.terms
    (outcome,) = close("2026-06", vision, accept="previewed", preview=True)
    assert charges.due == [outcome.total]


def test_a_version_is_written_back_with_what_is_for_one_tenant() -> None:
    apply(SITE)
    version = PlanVersion.objects.get()
    text = plan_text(version)
    assert apply(text) == ["Nothing to change."]
    following = plan_text(version, since=date(2026, 4, 15))
    assert 'tenant = "vision-lab"\nuntil = 2026-05-01' in following  # from the version's day on
    assert parse(following).plans[0].fees[2].amount == 0
    assert 'amount = "49"' not in plan_text(version, since=date(2026, 5, 1))


def test_every_change_is_in_the_history() -> None:
    apply(SITE)
    apply(SITE.replace('"49.00"', '"39.00"'))
    fee = Fee.objects.get(tenant__slug="vision-lab", valid_from=date(2026, 1, 1))
    assert history(fee, "amount") == [("insert", 49), ("update", 39)]


# The administration


@pytest.fixture
def op(client: Client) -> Client:
    client.force_login(an_operator())
    return client


def sent(op: Client, model: str, what: str, form: dict[str, Any], *args: Any) -> list[str]:
    answer = op.post(reverse(f"admin:billing_{model}_{what}", args=args), form, follow=True)
    assert answer.redirect_chain, answer.context["adminform"].errors
    return [str(message) for message in answer.context["messages"]]


def test_op_gives_one_tenant_a_fee_of_its_own_and_ends_it(op: Client) -> None:
    version = a_version(TWO_DOLLARS)
    version_terms.set_fee(version=version, name="Platform fee", amount=Decimal(310), in_advance=True)
    _, vision = a_lab(version)
    form = {
        "version": version.pk, "tenant": vision.pk, "name": "Platform fee", "amount": "155",
        "valid_from": "2026-03-17", "valid_until": "",
    }  # fmt: skip
    sent(op, "fee", "add", form)
    own = Fee.objects.get(tenant=vision)
    assert (own.amount, own.in_advance, own.valid_from) == (Decimal(155), True, date(2026, 3, 17))
    second = op.post(reverse("admin:billing_fee_add"), form | {"amount": "1", "valid_from": "2026-04-01"})
    assert "The tenant has a fee of its own in these days already: end the earlier one" in words(
        second.content.decode()
    )
    sent(op, "fee", "change", {"valid_until": "2026-05-01"}, own.pk)
    own.refresh_from_db()
    assert own.valid_until == date(2026, 5, 1)
    assert AuditEntry.objects.of(own).latest("pk").who == "op@cluster.example"

    closed("2026-03", vision)
    (message,) = sent(op, "fee", "delete", {"post": "yes"}, own.pk)
    assert "was billed by its own Platform fee, so it can only be ended" in message
    everyones = Fee.objects.get(tenant=None)
    assert op.get(reverse("admin:billing_fee_delete", args=[everyones.pk])).status_code == 403


def test_op_gives_one_tenant_hours_a_commitment_and_a_discount_of_its_own(op: Client) -> None:
    version = a_version(TWO_DOLLARS, allowance="10")
    _, vision = a_lab(version)
    form = {"version": version.pk, "tenant": vision.pk, "valid_from": "2026-03-01", "valid_until": ""}
    sent(op, "allowance", "add", {**form, "name": "Included hours", "hours": "20"})
    sent(op, "commitment", "add", {**form, "amount": "100", "overage_factor": "1.5"})
    sent(op, "discount", "add", {**form, "name": "Welcome", "percent": "10", "amount": ""})
    assert Allowance.objects.get(tenant=vision).hours == 20
    assert Commitment.objects.get(tenant=vision).overage_factor == Decimal("1.5")
    discount = Discount.objects.get(tenant=vision)
    sent(op, "discount", "delete", {"post": "yes"}, discount.pk)
    assert not Discount.objects.exists()


def test_the_plans_page_says_whose_each_is(op: Client) -> None:
    apply(SITE)
    text = words(op.get("/operator/plans/club/").content.decode())
    assert (
        "Base fee $99.00, in advance Base fee, for vision-lab alone $49.00, in advance, from 1 Jan 2026"
        in text
    )
    assert "Included hours 100 hours included; unused hours roll over" in text
    assert "Minimum commitment at least $500.00; overage is charged 1.5 times" in text
    assert "Launch offer, for vision-lab alone 0 % off, from 11 Apr 2026" in text
