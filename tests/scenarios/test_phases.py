"""Subscriptions in phases: a trial and what follows it, a downgrade that is planned and taken back."""

from __future__ import annotations

import pytest

from portal.core.tenants.models import Tenant
from tests.builders import a_cluster, a_job, ingest
from tests.configuring_terms import apply, refused
from tests.stories import close, closed, invoice_of, lines_of, prove

pytestmark = pytest.mark.django_db

PLANS = """
[[cluster]]
name = "gpu1"

[[plan]]
name = "trial"
currency = "USD"
charges = ["gpu"]
from = 2026-01-01
price = [{ meter = "gpu-hour", unit_price = "0" }]

[[plan]]
name = "gold"
currency = "USD"
charges = ["gpu"]
from = 2026-01-01
price = [{ meter = "gpu-hour", unit_price = "2.00" }]
fee = [{ name = "Gold", amount = "310.00" }]

[[plan]]
name = "basic"
currency = "USD"
charges = ["gpu"]
from = 2026-01-01
price = [{ meter = "gpu-hour", unit_price = "3.00" }]

[[tenant]]
slug = "vision-lab"
name = "Vision Lab"
timezone = "Europe/Berlin"
accounts = [{ cluster = "gpu1", account = "vision" }]
"""
TRIAL = '[[tenant.phase]]\nplan = "trial"\nfrom = 2026-03-02\ndays = 20\n[[tenant.phase]]\nplan = "gold"\n'
DOWN = '[[tenant.phase]]\nplan = "basic"\nfrom = 2026-05-01\n'


def on() -> list[tuple[str, str]]:
    """The plans of the tenant and the day of its zone from which each holds."""
    tenant = Tenant.objects.get()
    rows = tenant.subscriptions.select_related("plan").order_by("since")
    return [(row.plan.name, f"{row.since.astimezone(tenant.zone):%Y-%m-%d %H:%M}") for row in rows]


def used(day: str) -> None:
    ingest(a_cluster(), a_job(gpus=10, started=f"{day} 10:00", ended=f"{day} 11:00"), as_of="2026-08-10")


def test_after_a_trial_of_twenty_days_the_plan_that_follows_is_billed_by_seconds() -> None:
    apply(PLANS + TRIAL)
    assert on() == [("trial", "2026-03-02 00:00"), ("gold", "2026-03-22 00:00")]
    assert not [line for line in apply(PLANS + TRIAL) if "subscription" in line]
    used("2026-03-21")
    used("2026-03-23")
    tenant = Tenant.objects.get()
    closed("2026-03", tenant)
    lines = [(line.description, line.amount) for line in lines_of(invoice_of(tenant, "2026-03"))]
    # March has 743 hours in Berlin, and gold holds for 239 of them: 310.00 × 239 / 743
    assert sorted(lines) == [("GPU time", 0), ("GPU time", 20_00), ("Gold", 99_72)]
    prove()


def test_case_044_a_planned_downgrade_holds_from_its_day_and_is_taken_back_by_leaving_it_out() -> None:
    apply(PLANS + TRIAL + DOWN)
    assert on()[-1] == ("basic", "2026-05-01 00:00")
    apply(PLANS + TRIAL)
    assert on() == [("trial", "2026-03-02 00:00"), ("gold", "2026-03-22 00:00")]
    apply(PLANS + TRIAL + DOWN.replace("05-01", "06-01"))
    apply(PLANS + TRIAL + DOWN.replace("05-01", "04-01"))
    assert on()[-1] == ("basic", "2026-04-01 00:00")


def test_a_phase_that_was_used_is_not_taken_back() -> None:
    apply(PLANS + TRIAL + DOWN)
    used("2026-05-05")
    assert refused(PLANS + TRIAL) == [
        'tenant "vision-lab": vision-lab has used plan basic: put it on another plan instead.'
    ]
    close("2026-03", on="2026-08-01")


def test_a_phase_may_come_between_two_others() -> None:
    apply(PLANS + TRIAL + DOWN)
    between = TRIAL + '[[tenant.phase]]\nplan = "trial"\nfrom = 2026-04-10\n' + DOWN
    apply(PLANS + between)
    assert [plan for plan, _ in on()] == ["trial", "gold", "trial", "basic"]


@pytest.mark.parametrize(
    ("phases", "sentence"),
    [
        (
            '[[tenant.phase]]\nplan = "trial"\n',
            "phase 1: from is missing; write it, or `days` in the phase before.",
        ),
        (
            TRIAL + DOWN.replace("05", "03"),
            "The phase of plan basic would begin before the one that it follows.",
        ),
        (TRIAL.replace("gold", "silver"), "plan is 'silver', which neither the file nor the database has."),
        (TRIAL + "from = 2026-04-01\n", "phase 2: from is said, and the phase before has `days`"),
        (TRIAL + "days = 3\n", "phase 2: days does not go with the last phase"),
        (TRIAL.replace("days = 20", "days = 0"), "days has to be a whole number from 1 to 36500."),
        (
            TRIAL.replace("2026-03-02", "2026-03-02T10:00:00Z"),
            "days counts from a day; write `from` as a date.",
        ),
    ],
)
def test_phases_that_cannot_be_are_refused_with_a_sentence(phases: str, sentence: str) -> None:
    assert any(sentence in error for error in refused(PLANS + phases))
