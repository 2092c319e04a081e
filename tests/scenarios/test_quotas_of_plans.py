"""Quotas that come with a plan: each subscriber has them, and they change, go and are replaced with it."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from billing.catalog import subscriptions
from billing.models import PlanQuota, Quota, QuotaAction, QuotaReview
from billing.quotas import quotas
from billing.quotas.quotas import Setter
from billing.quotas.terms import QuotaError, QuotaTerms
from portal.config_file.export import plan_text
from portal.core.audit.models import AuditEntry
from portal.core.tenants.models import Tenant
from tests.builders import at
from tests.configuring_terms import apply, refused
from tests.quota_stories import a_quota, look, spend, told_events
from tests.web.house import a_house, page
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

PLAN = """
[[plan]]
name = "standard"
currency = "USD"
charges = ["gpu"]
from = {since}
[[plan.quota]]
name = "monthly"
measure = "money"
amount = "{amount}"
every = "month"
thresholds = ["100%"]
action = "no-gpu-jobs"
[[plan.price]]
meter = "gpu-hour"
unit_price = "2.00"
"""
TENANTS = """
[[cluster]]
name = "gpu1"
kind = "import"
timezone = "UTC"
[[tenant]]
slug = "vision"
name = "Vision"
accounts = [{ cluster = "gpu1", account = "vision" }]
plan = "standard"
plan_from = 2026-01-01
[[tenant]]
slug = "speech"
name = "Speech"
"""


@pytest.fixture
def vision() -> Tenant:
    apply(PLAN.format(since="2026-01-01", amount="1000.00") + TENANTS)
    look("2026-03-05 12:00")
    return Tenant.objects.get(slug="vision")


def standing(tenant: Tenant) -> dict[str, str]:
    return {row.name: f"{row.amount.normalize():f} {row.set_by}" for row in quotas.list_quotas(tenant)}


def test_a_plans_quota_is_each_subscribers_and_follows_versions_and_subscriptions(vision: Tenant) -> None:
    speech = Tenant.objects.get(slug="speech")
    assert standing(vision) == {"plan-monthly": "1000 plan"}
    assert standing(speech) == {}
    row = Quota.objects.get()
    who = AuditEntry.objects.filter(table="billing_quota").latest("pk").who
    assert who == "plan standard from 2026-01-01"

    spend(row.tenant.ownerships.get().account.cluster, "1000.00")
    look("2026-03-05 12:01")
    assert told_events() == ["used 100%"]  # it counts and tells as any other

    apply(PLAN.format(since="2026-04-01", amount="1500.00"))
    look("2026-03-31 23:59")
    assert standing(vision) == {"plan-monthly": "1000 plan"}
    assert QuotaReview.objects.get(tenant=vision).next_at == at("2026-04-01")
    look("2026-04-01 00:00")
    assert standing(vision) == {"plan-monthly": "1500 plan"}
    assert Quota.objects.get() == row

    subscriptions.subscribe(
        tenant=speech, plan=PlanQuota.objects.all()[0].version.plan, since=at("2026-04-02")
    )
    subscriptions.unsubscribe(tenant=vision, at=at("2026-04-02"))
    look("2026-04-01 12:00")
    assert (standing(vision), standing(speech)) == ({"plan-monthly": "1500 plan"}, {})
    look("2026-04-02 00:00")
    assert (standing(vision), standing(speech)) == ({}, {"plan-monthly": "1500 plan"})
    entries = AuditEntry.objects.filter(table="billing_quota")
    written = entries.count()
    look("2026-04-02 01:00")
    assert entries.count() == written  # the same again is not written


def test_an_operators_quota_takes_the_plans_place_and_an_owners_stands_beside_it(vision: Tenant) -> None:
    def owned(name: str, amount: str) -> None:
        terms = QuotaTerms.of(Quota.objects.in_force().get(name="plan-monthly"))
        own = replace(terms, amount=Decimal(amount), action=QuotaAction.NOTIFY)
        quotas.set_quota(tenant=vision, name=name, terms=own, by=Setter.OWNER, moment=at("2026-03-06"))

    def refusal(call: Any, *args: Any, **options: Any) -> str:
        with pytest.raises(QuotaError) as error:
            call(*args, **options)
        return str(error.value)

    end = {"tenant": vision, "name": "plan-monthly", "moment": at("2026-03-06")}
    assert "comes with the plan" in refusal(quotas.end_quota, by=Setter.OWNER, **end)
    assert "comes with the plan" in refusal(owned, "plan-monthly", "1.00")
    assert "begin with plan-" in refusal(owned, "plan-mine", "1.00")
    assert "more than the 1000 of plan-monthly" in refusal(owned, "mine", "1000.01")
    owned("mine", "900.00")
    look("2026-03-06 00:01")
    assert standing(vision) == {"mine": "900 owner", "plan-monthly": "1000 plan"}

    a_quota(vision, "agreed", "2026-03-07", amount=Decimal(5000))
    assert standing(vision) == {"agreed": "5000 operator", "mine": "900 owner"}
    terms = QuotaTerms.of(Quota.objects.in_force().get(name="agreed"))
    raised = replace(terms, amount=Decimal(9000))
    quotas.set_quota(tenant=vision, name="agreed", terms=raised, by=Setter.OWNER, moment=at("2026-03-08"))
    look("2026-03-08 00:01")  # what an owner says is the owner's, and the plan's is back
    assert standing(vision) == {"agreed": "9000 owner", "mine": "900 owner", "plan-monthly": "1000 plan"}


def test_tenants_see_it_as_from_their_plan_and_have_no_button_for_it() -> None:
    house = a_house(close=False)
    plan = house.vision.subscriptions.get().plan
    entry = f'[[plan]]\nname = "of-vision"\ncurrency = "{plan.currency}"\n' + PLAN.split("\n", 4)[4]
    apply(entry.format(since="2026-01-01", amount="1000.00"))
    house.vision.subscriptions.update(plan=PlanQuota.objects.get().version.plan)
    look("2026-03-20 12:00")
    text = page(house.ann, "/t/vision-lab/budgets/?end=plan-monthly")
    assert "From your plan" in text
    assert "edit=plan-monthly" not in text
    assert "End budget plan-monthly?" not in text
    listed = words(page(house.op, "/operator/plans/of-vision/"))
    assert (
        "Budgets of each subscriber: monthly $1,000.00, each month, everything: no new GPU job starts"
        in listed
    )


def test_a_version_in_use_keeps_its_quotas_and_refuses_what_tenants_alone_have(vision: Tenant) -> None:
    text = plan_text(PlanQuota.objects.get().version)
    assert apply(text) == ["Nothing to change."]
    assert apply(text.replace('"1000"', '"1100"'))[:1] == [
        "plan standard from 2026-01-01, quota monthly: amount 1000 -> 1100"
    ]
    named = text.replace('name = "monthly"', 'name = "Monthly Spend"')
    assert "lower-case letters" in refused(named)[0]
    assert "user" in refused(text.replace('every = "month"', 'every = "month"\nuser = "ben"'))[0]
    spend(vision.ownerships.get().account.cluster, "10.00")
    (sentence,) = refused(text.replace('"1000"', '"1200"'))
    assert "Plan standard from 2026-01-01 is in use, so its quotas stay as they are" in sentence


def test_another_grace_is_in_the_list_of_changes_of_plans_and_of_tenants(vision: Tenant) -> None:
    text = plan_text(PlanQuota.objects.get().version).replace(
        '"no-gpu-jobs"', '"end-jobs"\ngrace_minutes = 60'
    )
    apply(text)
    listed = apply(text.replace("grace_minutes = 60", "grace_minutes = 120\nends_older = true"))
    assert listed == [
        "plan standard from 2026-01-01, quota monthly: ends_older nothing -> yes",
        "plan standard from 2026-01-01, quota monthly: grace_minutes 60 -> 120",
    ]
