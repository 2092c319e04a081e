"""Allowances, flat fees, commitments and discounts: what a plan says beside its prices."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest
from django.db import connection

from billing.catalog import plans, subscriptions, terms, version_terms
from billing.models import PlanVersion, Price, Settles
from billing.rules.meters import PerUnit
from portal.core.tenants.models import Tenant
from tests.builders import LONG_AGO, a_job, at, ingest
from tests.configuring_terms import apply, refused
from tests.on_terms import a_lab, billed, used
from tests.scenarios.real import run
from tests.stories import closed, invoice_of, printed, prove, total
from tests.terms import GRADUATED, TWO_DOLLARS, a_version

pytestmark = pytest.mark.django_db


# Allowances


def test_worked_example_a_with_100_hours_included_130_hours_cost_30() -> None:
    cluster, vision = a_lab(a_version(TWO_DOLLARS, allowance="100"))
    used(cluster, 130)
    assert closed("2026-03", vision).total.text == "60.00"  # type: ignore[union-attr]

    (line,) = run("show_invoices")["invoices"][0]["lines"]
    assert (line["quantity"], line["unit_price"], line["amount"]) == ("130", "2.00", "60.00")
    assert line["detail"] == "100 of 130 GPU-hours included"
    (explained,) = run("explain_invoice", "INV-2026-0001")["lines"]
    assert explained["formula"] == (
        "130 GPU-hours of all projects less 100 included, at $2.00 = $60.00, rounded once; on the invoice $60.00"
    )
    prove()


def test_case_033_an_allowance_is_shared_by_projects_and_what_is_left_lapses() -> None:
    cluster, vision = a_lab(a_version(TWO_DOLLARS, allowance="100"), "audio", "vision")
    used(cluster, 60, "audio")
    used(cluster, 60, "vision")
    used(cluster, 40, "audio", day="2026-04-20")
    used(cluster, 110, "vision", day="2026-05-20")

    assert printed_all(vision) == {
        "2026-03": [("2026-03", "audio", "60", "20.00"), ("2026-03", "vision", "60", "20.00")],
        "2026-04": [("2026-04", "audio", "40", "0.00")],
        "2026-05": [("2026-05", "vision", "110", "20.00")],
    }
    prove()


def printed_all(tenant: Tenant) -> dict[str, list[tuple[str, str, str, str]]]:
    months = ("2026-03", "2026-04", "2026-05")
    for month in months:
        closed(month, tenant)
    return {month: printed(invoice_of(tenant, month)) for month in months}


def test_case_033_what_is_left_rolls_over_once_where_the_plan_says_so() -> None:
    version = a_version(name="rolling")
    free = version_terms.set_allowance(
        version=version, name="Included hours", hours=Decimal(100), rollover=True
    )
    plans.set_price(
        version=version, meter="gpu-hour", where={}, model=TWO_DOLLARS, valid_from=LONG_AGO, allowance=free
    )
    cluster, vision = a_lab(version)
    used(cluster, 40)  # leaves 60
    used(cluster, 50, day="2026-04-20")  # of what was left; 10 lapse, its own 100 are left
    used(cluster, 250, day="2026-05-20")  # 100 left and 100 own
    assert [rows[0][3] for rows in printed_all(vision).values()] == ["0.00", "0.00", "100.00"]
    prove()


def test_case_033_what_is_left_lapses_where_the_next_month_is_on_another_plan() -> None:
    version, other = a_version(name="rolling"), a_version(TWO_DOLLARS, name="other")
    free = version_terms.set_allowance(
        version=version, name="Included hours", hours=Decimal(100), rollover=True
    )
    plans.set_price(
        version=version, meter="gpu-hour", where={}, model=TWO_DOLLARS, valid_from=LONG_AGO, allowance=free
    )
    cluster, vision = a_lab(version)
    subscriptions.subscribe(tenant=vision, plan=other.plan, since=at("2026-04-01"))
    subscriptions.subscribe(tenant=vision, plan=version.plan, since=at("2026-05-01"))
    used(cluster, 40)  # leaves 60, which are good for April only
    used(cluster, 10, day="2026-04-20")  # on the other plan
    used(cluster, 160, day="2026-05-20")
    assert [rows[0][3] for rows in printed_all(vision).values()] == ["0.00", "20.00", "120.00"]
    prove()


def test_case_033_a_partial_period_includes_its_part_by_seconds() -> None:
    cluster, vision = a_lab(a_version(TWO_DOLLARS, allowance="93"), since=date(2026, 3, 22))  # 10 of 31 days
    used(cluster, 40, day="2026-03-25")
    assert closed("2026-03", vision).total.text == "20.00"  # type: ignore[union-attr]  # 40 − 30 = 10


def test_case_033_several_prices_use_an_allowance_in_order_of_time() -> None:
    dear = (PerUnit(Decimal("5.00")), {"gpu_model": ["h100"]})
    cluster, vision = a_lab(a_version(TWO_DOLLARS, dear, allowance="100"))
    used(cluster, 70, day="2026-03-20", gpu_model="h100")
    used(cluster, 60, day="2026-03-10")
    ingest(cluster, a_job(gpus=7, gpu_share=(1, 7), started="2026-03-25 10:00", ended="2026-03-25 11:00"))

    closed("2026-03", vision)

    assert printed(invoice_of(vision, "2026-03")) == [
        ("2026-03", "vision", "61", "2.00"),  # the 60 h of the 10th are included, the hour of the 25th is not
        ("2026-03", "vision", "70", "150.00"),  # 40 of the 70 h are included
    ]
    used(cluster, 50, day="2026-03-01")  # found late, but first in time
    used(cluster, 1, day="2026-04-20")
    closed("2026-04", vision)
    assert printed(invoice_of(vision, "2026-04"))[1:] == [
        ("2026-03", "vision", "50", "20.00"),  # 111 h, of which 100 are included
        ("2026-03", "vision", "0", "200.00"),  # none of them is left for the h100
    ]
    prove()


def test_case_034_an_allowance_for_one_gpu_does_not_pay_for_another() -> None:
    version = a_version((TWO_DOLLARS, {"gpu_model": ["a100"]}), allowance="100")
    plans.set_price(
        version=version,
        meter="gpu-hour",
        where={"gpu_model": ["h100"]},
        model=PerUnit(Decimal("5.00")),
        valid_from=LONG_AGO,
    )
    cluster, vision = a_lab(version)
    used(cluster, 10)
    used(cluster, 10, gpu_model="h100")
    closed("2026-03", vision)
    assert [row[2:] for row in printed(invoice_of(vision, "2026-03"))] == [("10", "0.00"), ("10", "50.00")]


def test_tiers_count_what_lies_beyond_the_allowance() -> None:
    cluster, vision = a_lab(a_version(GRADUATED, allowance="100"))
    used(cluster, 300)
    assert closed("2026-03", vision).total.text == "550.00"  # type: ignore[union-attr]  # 100 × 3 + 100 × 2.50


# Commitments


def a_commitment(amount: str, factor: str = "1") -> PlanVersion:
    version = a_version(TWO_DOLLARS, name="committed")
    version_terms.set_commitment(version=version, amount=Decimal(amount), overage_factor=Decimal(factor))
    return version


def test_case_035_what_is_missing_to_a_commitment_is_billed_at_the_end_of_the_period() -> None:
    cluster, vision = a_lab(a_commitment("1000"))
    used(cluster, 300)
    used(cluster, 10, day="2026-04-02")

    closed("2026-03", vision)
    assert billed(vision, "2026-03") == [  # nothing of April's, which runs
        ("2026-03", "GPU time", "600.00"),
        ("2026-03", "Minimum commitment", "400.00"),
    ]
    used(cluster, 50)
    closed("2026-04", vision)
    assert billed(vision, "2026-04") == [
        ("2026-04", "GPU time", "20.00"),
        ("2026-04", "Minimum commitment", "980.00"),
        ("2026-03", "GPU time", "100.00"),
        ("2026-03", "Minimum commitment", "-100.00"),
    ]
    prove()


def test_case_035_a_short_period_commits_to_its_part() -> None:
    _, vision = a_lab(a_commitment("1000"), since=date(2026, 3, 22))
    assert closed("2026-03", vision).total.text == "322.58"  # type: ignore[union-attr]  # 10 of 31 days
    assert run("show_invoices")["invoices"][0]["lines"][0]["detail"] == (
        "at least $1,000.00 per period; used for $0.00, for 864,000 of 2,678,400 of its seconds"
    )


def test_case_036_a_thousand_committed_twelve_hundred_used_at_one_and_a_half_is_thirteen_hundred() -> None:
    cluster, vision = a_lab(a_commitment("1000", "1.5"))
    used(cluster, 600)
    assert closed("2026-03", vision).total.text == "1300.00"  # type: ignore[union-attr]
    assert billed(vision, "2026-03")[1] == ("2026-03", "Minimum commitment", "100.00")
    prove()


# Discounts


def a_discounted(
    percent: str | None = None, amount: str | None = None, until: date | None = None
) -> PlanVersion:
    version = a_version(TWO_DOLLARS, name="discounted")
    version_terms.set_discount(
        version=version,
        name="Launch offer",
        valid_from=LONG_AGO,
        valid_until=until,
        percent=Decimal(percent) if percent else None,
        amount=Decimal(amount) if amount else None,
    )
    return version


def test_case_039_a_full_discount_leaves_nothing_and_no_tax() -> None:
    cluster, vision = a_lab(a_discounted(percent="100"))
    Tenant.objects.update(tax_rate=Decimal(19))
    used(cluster, 50)
    closed("2026-03", vision)
    invoice = invoice_of(vision, "2026-03")
    assert (invoice.subtotal, invoice.tax, invoice.total) == (0, 0, 0)
    assert billed(vision, "2026-03") == [
        ("2026-03", "GPU time", "100.00"),
        ("2026-03", "Launch offer", "-100.00"),
    ]
    prove()


def test_case_039_a_discount_never_goes_below_zero_and_the_rest_of_it_is_not_carried() -> None:
    cluster, vision = a_lab(a_discounted(amount="150"))
    used(cluster, 50)
    used(cluster, 100, day="2026-04-20")
    closed("2026-03", vision)
    closed("2026-04", vision)
    assert [total(invoice_of(vision, month)) for month in ("2026-03", "2026-04")] == ["0.00", "50.00"]
    prove()


def test_a_discount_until_the_last_day_there_is_stops_no_close() -> None:
    cluster, vision = a_lab(a_discounted(percent="50", until=date(9999, 12, 31)))
    used(cluster, 50)
    closed("2026-03", vision)
    assert total(invoice_of(vision, "2026-03")) == "50.00"


def test_a_discount_counts_for_the_seconds_that_it_is_valid() -> None:
    cluster, vision = a_lab(a_discounted(percent="31", until=date(2026, 3, 11)))  # 10 of 31 days
    used(cluster, 50)
    used(cluster, 50, day="2026-04-20")
    closed("2026-03", vision)
    closed("2026-04", vision)
    assert [total(invoice_of(vision, month)) for month in ("2026-03", "2026-04")] == ["90.00", "100.00"]


def test_late_use_gets_the_discount_of_its_month() -> None:
    cluster, vision = a_lab(a_discounted(percent="10"))
    used(cluster, 50)
    closed("2026-03", vision)
    used(cluster, 10)
    closed("2026-04", vision)
    assert billed(vision, "2026-04") == [
        ("2026-03", "GPU time", "20.00"),
        ("2026-03", "Launch offer", "-2.00"),
    ]
    prove()


SITE = """
[[plan]]
name = "club"
currency = "EUR"
charges = ["gpu"]
from = 2026-01-01
allowance = [{ name = "Included hours", hours = 100, rollover = true }]
fee = [{ name = "Base fee", amount = "99.00", in_advance = true }]
commitment = { amount = 500, overage_factor = "1.5" }
discount = [{ name = "Launch offer", percent = "20", until = 2026-07-01 }]
[[plan.price]]
meter = "gpu-hour"
unit_price = "2.00"
allowance = "Included hours"
"""


def test_a_file_says_all_of_it() -> None:
    changes = apply(SITE)
    for sentence in (
        "plan club from 2026-01-01, allowance Included hours: new (hours 100, rollover yes)",
        "plan club from 2026-01-01, fee Base fee: new (amount 99, in advance yes)",
        "plan club from 2026-01-01, commitment Minimum commitment: new (amount 500, overage factor 1.5)",
        "plan club from 2026-01-01, discount Launch offer: new (percent 20, from 2026-01-01, until 2026-07-01)",
        (
            "plan club from 2026-01-01, price of gpu-hour for any use from 2026-01-01: new (unit price 2, "
            "allowance Included hours, place 1)"
        ),
    ):
        assert sentence in changes
    assert apply(SITE) == ["Nothing to change."]
    assert Price.objects.get().allowance is not None
    assert apply(SITE.replace("99.00", "89.00")) == [
        "plan club from 2026-01-01, fee Base fee: amount 99 -> 89"
    ]


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("hours = 100", "hours = 0", "more than zero units"),
        ('amount = "99.00"', 'amount = "-1"', "A fee is zero or more, not -1."),
        ('overage_factor = "1.5"', 'overage_factor = "0.5"', "An overage factor is 1 or more, not 0.5."),
        ('percent = "20"', 'percent = "120"', "at most 100 percent, not 120."),
        ('percent = "20"', 'percent = "20", amount = 5', "a percentage or an amount"),
        ("until = 2026-07-01", "until = 2025-07-01", "would end on 2025-07-01, before it begins."),
        ('allowance = "Included hours"', 'allowance = "Other"', "The plan has no allowance 'Other'"),
        ("rollover = true", "roll = true", "there is no key 'roll'"),
    ],
)
def test_case_042_terms_that_cannot_be_are_refused_with_a_sentence(
    before: str, after: str, sentence: str
) -> None:
    assert any(sentence in error for error in refused(SITE.replace(before, after)))


def test_a_plan_that_a_wallet_pays_has_prices_alone() -> None:
    settled = SITE.replace('currency = "EUR"', 'currency = "EUR"\nsettles = "wallet"')
    assert any("paid by wallet" in error for error in refused(settled))


def test_a_plan_that_billed_a_fee_keeps_its_currency_though_nobody_used_anything() -> None:
    version = plans.new_version(
        plan=plans.set_plan(name="club", currency="EUR"), effective_from=date(2026, 3, 1), charges=["gpu"]
    )
    version_terms.set_fee(version=version, name="Base fee", amount=Decimal(100))
    _, vision = a_lab(version)
    plans.set_plan(name="club", currency="USD")  # nothing has come of it yet
    plans.set_plan(name="club", currency="EUR")
    assert closed("2026-03", vision).total.text == "100.00"  # type: ignore[union-attr]

    billed_already = "Lines have been billed by plan club"
    with pytest.raises(plans.PlanError, match=rf"{billed_already} in EUR: make another plan for USD\."):
        plans.set_plan(name="club", currency="USD")
    with pytest.raises(plans.PlanError, match=r"make another plan for what is paid by wallet-first\."):
        plans.set_plan(name="club", currency="EUR", settles=Settles.WALLET_FIRST)
    with pytest.raises(
        plans.PlanError, match=f"{billed_already} from 2026-03-01, so what it charges stays gpu"
    ):
        plans.new_version(plan=version.plan, effective_from=date(2026, 3, 1), charges=["cpu"])
    with pytest.raises(plans.PlanError, match=f"{billed_already} from 2026-03-01, so it stays"):
        plans.delete_version(version=version)
    assert closed("2026-04", vision).total.text == "100.00"  # type: ignore[union-attr]


def test_a_subscription_is_read_once_however_many_versions_its_plan_has() -> None:
    """1,000 tenants of a plan with 60 versions were 60,000 rows with all that is stored of plan and tenant."""
    version = plans.new_version(
        plan=plans.set_plan(name="club", currency="EUR"), effective_from=date(2026, 1, 1), charges=["gpu"]
    )
    version_terms.set_fee(version=version, name="Base fee", amount=Decimal(100))
    _, vision = a_lab(version)
    for month in (2, 3):
        plans.new_version(plan=version.plan, effective_from=date(2026, month, 1), charges=["gpu"])
    with connection.cursor() as cursor:
        cursor.execute(terms.sql.SUBSCRIBED, {"tenants": [vision.pk]})
        assert cursor.rowcount == 1
