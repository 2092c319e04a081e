"""What a period of a quota leaves, or overdraws, and what of it the next one has."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.models import Notice, Quota, QuotaAction, QuotaBlock, QuotaEvery, QuotaMeasure
from billing.quotas import quotas, status
from billing.quotas.quotas import Setter
from billing.quotas.terms import QuotaError, QuotaTerms
from billing.rules.quotas import carried
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from tests import builders
from tests.documentation import table
from tests.quota_stories import a_quota, look, shrink, spend, subjects, told_events

database = pytest.mark.django_db(transaction=True)


@pytest.fixture
def cluster() -> Cluster:
    return builders.a_cluster()


@pytest.fixture
def vision(cluster: Cluster) -> Tenant:
    return builders.a_tenant("vision", plan=builders.a_plan(), accounts=[(cluster, "vision")])


def standing(quota: Quota, moment: str) -> tuple[str, str, str]:
    """(what may be used, used, left) of its period at the moment."""
    rows = list(quotas.list_quotas().filter(pk=quota.pk))
    (one,) = status.load_statuses(rows, moment=builders.at(moment))
    return one.text(one.amount), one.text(one.figure.used), one.text(one.left)


@database
@pytest.mark.parametrize(
    ("percent", "overdraft", "march", "april"),
    [
        (20, False, "700", "$1,200.00"),  # 300 are left, of which 20 % of the amount are carried
        (20, False, "900", "$1,100.00"),
        (100, False, "700", "$1,300.00"),
        (0, True, "700", "$1,000.00"),  # only what is overdrawn is carried
        (20, False, "1050", "$1,000.00"),
        (20, True, "1050", "$950.00"),
        (0, True, "2300", "$0.00"),  # nothing may run, and the rest of it waits for May
    ],
)
def test_quota_016_what_is_left_or_overdrawn_is_carried_as_the_budget_says(
    vision: Tenant, cluster: Cluster, percent: int, overdraft: bool, march: str, april: str
) -> None:
    quota = a_quota(vision, made="2026-03-01", carry_over=percent, carry_overdraft=overdraft)
    spend(cluster, march)
    look("2026-03-31")

    look("2026-04-01 00:01")

    assert standing(quota, "2026-04-02")[0] == april


@database
def test_quota_016_an_overdraft_beyond_a_whole_period_is_carried_on(vision: Tenant, cluster: Cluster) -> None:
    quota = a_quota(vision, made="2026-03-01", carry_overdraft=True)
    spend(cluster, "2300")
    for moment in ("2026-03-31", "2026-04-30", "2026-05-02"):
        look(moment)

    assert standing(quota, "2026-05-02") == ("$700.00", "$0.00", "$700.00")


@database
def test_quota_016_what_was_carried_and_not_used_is_carried_again_up_to_the_bound(
    vision: Tenant, cluster: Cluster
) -> None:
    quota = a_quota(vision, made="2026-03-01", carry_over=20)
    spend(cluster, "900")
    look("2026-03-31")  # 100 left: April has 1,100
    spend(cluster, "1000", "2026-04-02")
    look("2026-04-30")

    assert standing(quota, "2026-05-02")[0] == "$1,100.00"


@database
def test_quota_016_a_budget_carries_nothing_from_before_it_was_made(vision: Tenant, cluster: Cluster) -> None:
    spend(cluster, "100")

    quota = a_quota(vision, made="2026-04-03", carry_over=100)

    assert standing(quota, "2026-04-03")[0] == "$1,000.00"


@database
def test_nothing_is_carried_from_before_a_budget_counted_by_other_periods(
    vision: Tenant, cluster: Cluster
) -> None:
    """June 2026 begins on a Monday: its first week is not June, which was looked at when the budget was a month's."""
    a_quota(vision, made="2026-05-20", carry_overdraft=True)
    spend(cluster, "150", "2026-06-02")
    look("2026-06-05")

    quota = a_quota(
        vision, made="2026-06-09", every=QuotaEvery.WEEK, amount=Decimal(100), carry_overdraft=True
    )

    assert standing(quota, "2026-06-09")[0] == "$100.00"
    spend(cluster, "130", "2026-06-10")
    assert standing(quota, "2026-06-16")[0] == "$100.00"  # the week in which it was changed hands on nothing
    spend(cluster, "130", "2026-06-16")
    assert standing(quota, "2026-06-23")[0] == "$70.00"


@database
def test_nothing_is_carried_from_what_was_counted_otherwise(vision: Tenant, cluster: Cluster) -> None:
    """1,000 GPU-hours, of which 600 were used for $1,200.00, are no overdraft of a budget in dollars."""
    a_quota(vision, made="2026-03-01", measure=QuotaMeasure.GPU_HOURS, carry_overdraft=True)
    spend(cluster, "1200")
    look("2026-03-31")
    look("2026-04-01 00:01")

    quota = a_quota(vision, made="2026-04-02", amount=Decimal(2000), carry_overdraft=True)

    assert standing(quota, "2026-04-02")[0] == "$2,000.00"


@database
@pytest.mark.parametrize("looks", [["2026-03-31"], ["2026-03-31", "2026-04-30"], []])
def test_quota_018_a_worker_that_slept_over_a_period_forgets_no_overdraft(
    vision: Tenant, cluster: Cluster, looks: list[str]
) -> None:
    quota = a_quota(vision, made="2026-03-01", carry_overdraft=True)
    spend(cluster, "2300")
    for moment in looks:
        look(moment)

    look("2026-05-02")

    assert standing(quota, "2026-05-02")[0] == "$700.00"


@database
def test_quota_018_days_that_nobody_looked_at_pay_off_an_overdraft_all_the_same(
    vision: Tenant, cluster: Cluster
) -> None:
    """500 of 100 on the 2nd: the 3rd and the 4th give their 100 each, and the 7th has its own again."""
    quota = a_quota(
        vision, made="2026-03-01", every=QuotaEvery.DAY, amount=Decimal(100), carry_overdraft=True
    )
    spend(cluster, "500", "2026-03-02")
    look("2026-03-02 23:59")

    assert standing(quota, "2026-03-04 01:00")[0] == "$0.00"
    assert standing(quota, "2026-03-06 01:00")[0] == "$0.00"
    assert standing(quota, "2026-03-07 01:00")[0] == "$100.00"


@database
def test_quota_015_a_raise_shortly_before_the_border_counts_though_nobody_looked_since(
    vision: Tenant, cluster: Cluster
) -> None:
    a_quota(vision, made="2026-03-01", carry_overdraft=True)
    spend(cluster, "1500")
    look("2026-03-31 20:00")
    raised = QuotaTerms(
        measure=QuotaMeasure.MONEY, amount=Decimal(1500), every=QuotaEvery.MONTH, carry_overdraft=True
    )
    moment = builders.at("2026-03-31 23:59:50")
    quota = quotas.set_quota(tenant=vision, name="monthly", terms=raised, by=Setter.OPERATOR, moment=moment)

    look("2026-04-01 00:00:10")

    assert standing(quota, "2026-04-02")[0] == "$1,500.00"


@database
def test_thresholds_notices_and_blocks_go_by_what_may_be_used(vision: Tenant, cluster: Cluster) -> None:
    """Ann's April has $1,200.00: 80 % of it are 960, and it blocks at 1,200."""
    quota = a_quota(
        vision, made="2026-03-01", carry_over=20, thresholds=("80%",), action=QuotaAction.NO_GPU_JOBS
    )
    spend(cluster, "700")
    look("2026-03-31")
    spend(cluster, "900", "2026-04-02")
    look("2026-04-03")
    assert (told_events(), subjects()) == ([], [])

    spend(cluster, "100", "2026-04-03")
    look("2026-04-04")
    assert told_events() == ["used 80%"]
    assert Notice.objects.get().details["quotas"][0]["amount"] == "1200.00"
    assert not QuotaBlock.objects.exists()

    spend(cluster, "200", "2026-04-04")
    look("2026-04-05")
    assert QuotaBlock.objects.get().why == "budget monthly of vision: $1,200.00 of $1,200.00 used"
    assert standing(quota, "2026-04-05")[2] == "$0.00"


@database
def test_what_turns_out_later_of_the_period_before_changes_what_it_left(
    vision: Tenant, cluster: Cluster
) -> None:
    quota = a_quota(vision, made="2026-03-01", carry_over=20)
    job = spend(cluster, "1000")
    look("2026-03-31")
    look("2026-04-01 00:01")
    assert standing(quota, "2026-04-02")[0] == "$1,000.00"

    shrink(cluster, job, "850")

    assert standing(quota, "2026-04-02")[0] == "$1,150.00"


@database
def test_an_overdraft_that_leaves_nothing_goes_on_blocking_over_the_border(
    vision: Tenant, cluster: Cluster
) -> None:
    """Of March 2,300 of 1,000: April has nothing, before anything of it is used."""
    quota = a_quota(vision, made="2026-03-01", carry_overdraft=True, action=QuotaAction.NO_GPU_JOBS)
    spend(cluster, "2300")
    look("2026-03-31")

    look("2026-04-01 00:01")
    assert standing(quota, "2026-04-01 00:01") == ("$0.00", "$0.00", "$0.00")
    assert QuotaBlock.objects.get().state == "requested"

    look("2026-05-01 00:01")
    look("2026-06-01 00:01")
    assert QuotaBlock.objects.get().state == "lifting"


@database
def test_gpu_hours_are_carried_in_thousandths(vision: Tenant, cluster: Cluster) -> None:
    quota = a_quota(
        vision, made="2026-03-01", measure=QuotaMeasure.GPU_HOURS, amount=Decimal(100), carry_over=100
    )
    builders.ingest(
        cluster, builders.a_job(started="2026-03-02 00:00", ended="2026-03-02 00:00:01", gpus=1)
    )  # 1/3600 of a GPU-hour
    look("2026-03-31")

    assert standing(quota, "2026-04-02")[0] == "200 GPU-hours"


@database
@pytest.mark.parametrize(
    ("terms", "sentence"),
    [
        ({"carry_over": 101}, "A period carries over 0 to 100 percent of the amount, not 101."),
        ({"carry_over": -1}, "A period carries over 0 to 100 percent of the amount, not -1."),
        (
            {"carry_over": 20, "every": QuotaEvery.ROLLING, "hours": 168},
            "A fixed term and a rolling window have no period before: choose another period, or carry nothing over.",
        ),
    ],
)
def test_what_cannot_be_carried_is_refused(vision: Tenant, terms: dict[str, Any], sentence: str) -> None:
    values: dict[str, Any] = {
        "measure": QuotaMeasure.MONEY,
        "amount": Decimal(1000),
        "every": QuotaEvery.MONTH,
    } | terms

    with pytest.raises(QuotaError) as refusal:
        quotas.set_quota(
            tenant=vision, name="monthly", terms=QuotaTerms(**values), by=Setter.OPERATOR,
            moment=builders.at("2026-03-01"),
        )  # fmt: skip

    assert str(refusal.value) == sentence


@given(left=st.fractions(-10_000, 10_000), amount=st.fractions(0, 10_000), percent=st.integers(0, 100))
def test_what_is_carried_is_never_more_than_was_left_nor_than_its_share(
    left: Fraction, amount: Fraction, percent: int
) -> None:
    value = carried(left, amount=amount, percent=percent, overdraft=True)

    assert value == left if left < 0 else 0 <= value <= min(left, amount * percent / 100)


def dollars(text: str) -> Fraction:
    return Fraction(text.removeprefix("$").replace(",", ""))


@pytest.mark.parametrize("row", table("explanation/quotas.md", "Carry-over"))
def test_the_table_of_the_docs_says_what_is_carried(row: dict[str, str]) -> None:
    value = carried(
        dollars(row["the period before had"]) - dollars(row["it used"]),
        amount=Fraction(1000),
        percent=int(row["`carry_over`"]),
        overdraft=row["`carry_overdraft`"] == "yes",
    )

    assert max(1000 + value, Fraction(0)) == dollars(row["the next may use"].partition(";")[0])
