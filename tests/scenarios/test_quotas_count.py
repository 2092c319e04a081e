"""What quotas count: one figure, which is the statement's own."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from django.db.models import F

from billing.limits import limits
from billing.limits.limits import LimitTerms
from billing.models import (
    BillingPeriod,
    DailyUsage,
    DayTotal,
    Plan,
    Quota,
    QuotaCredits,
    QuotaEvery,
    QuotaMeasure,
    WalletScope,
)
from billing.queries.accrued_charges import accrued
from billing.quotas import figures, quotas, review
from billing.quotas.figures import Figure
from billing.quotas.past_periods import load_past_periods
from billing.quotas.proof import prove_quotas
from billing.quotas.quotas import Setter
from billing.quotas.terms import QuotaTerms
from billing.rules.money import Money
from billing.wallets import grants, wallet_terms
from clusters.models import Cluster, Connection
from portal.config_file import apply, schema
from portal.core.tenants.models import Tenant
from tests import builders, stories

pytestmark = pytest.mark.django_db
MONEY = QuotaMeasure.MONEY
HOURS = QuotaMeasure.GPU_HOURS


@pytest.fixture
def cluster() -> Cluster:
    return builders.a_cluster()


@pytest.fixture
def vision(cluster: Cluster) -> Tenant:
    return builders.a_tenant("vision", plan=builders.a_plan(), accounts=[(cluster, "vision")])


def a_quota(tenant: Tenant, name: str = "monthly", made: str = "2026-01-01", **said: Any) -> Quota:
    terms: dict[str, Any] = {"measure": MONEY, "amount": Decimal(1000), "every": QuotaEvery.MONTH} | said
    moment = builders.at(made)
    return quotas.set_quota(
        tenant=tenant, name=name, terms=QuotaTerms(**terms), by=Setter.OPERATOR, moment=moment
    )


def figure(quota: Quota, moment: str) -> Figure:
    rows = list(quotas.list_quotas().filter(pk=quota.pk))
    return figures.load_figures(rows, moment=builders.at(moment))[quota.pk]


def used(quota: Quota, moment: str) -> Fraction:
    return figure(quota, moment).used


def run(cluster: Cluster, **fields: Any) -> None:
    builders.ingest(cluster, builders.a_job(**fields))


def going_on(cluster: Cluster, *, started: str, seen: str, **fields: Any) -> None:
    """A job that runs, of a cluster that is read up to then and pulled every five minutes."""
    fact = builders.a_job(started=started, ended=None, seen_until=seen, state="RUNNING", **fields)
    builders.ingest(cluster, fact, as_of=seen)
    Connection.objects.get_or_create(cluster=cluster, defaults={"base_url": "https://slurm.example"})


def test_quota_054_what_counts_is_what_was_used_whatever_a_limit_at_once_let_through(
    cluster: Cluster, vision: Tenant
) -> None:
    """Pods passed the limit of four GPUs for an hour, and a gang waits: the budget has the seconds that are billed."""
    limits.set_limit(tenant=vision, name="once", terms=LimitTerms(gpus=4), moment=builders.at("2026-03-01"))
    run(cluster, started="2026-03-02 10:00", ended="2026-03-02 12:00", gpus=4)
    run(cluster, started="2026-03-02 11:00", ended="2026-03-02 12:00", gpus=3)
    run(cluster, submitted="2026-03-02 11:00", started=None, ended=None, state="PENDING", gpus=64)
    hours, money = a_quota(vision, "hours", measure=HOURS, amount=Decimal(11)), a_quota(vision)
    assert used(hours, "2026-03-05") == 11
    (bill,) = stories.close("2026-03", vision, accept="only previewed", preview=True)
    assert bill.total == Money.from_minor(2200, "USD")
    assert used(money, "2026-03-05") == 22


def test_quota_001_used_is_what_the_statement_comes_to_now(cluster: Cluster, vision: Tenant) -> None:
    run(cluster, started="2026-03-02 10:00", ended="2026-03-02 10:20", gpus=1)
    run(cluster, started="2026-03-03 10:00", ended="2026-03-04 10:00", gpus=8)
    going_on(cluster, started="2026-03-05 10:00", seen="2026-03-05 11:00", gpus=2)
    quota = a_quota(vision)
    # 20 minutes of one, 192 GPU-hours, and two GPUs for an hour; then four minutes of these are counted on.
    assert used(quota, "2026-03-05 11:00") == Fraction("388.67")
    now = figure(quota, "2026-03-05 11:04")
    assert (now.rated, now.counted_on) == (Fraction("388.67"), Fraction("0.26"))
    assert now.used == Fraction("388.93")  # 194.4666… GPU-hours at 2.00, rounded once
    assert now.as_of == builders.at("2026-03-05 11:00")


def test_quota_001_in_tiers_too_and_with_fees(cluster: Cluster) -> None:
    text = """
    [[plan]]
    name = "tiers"
    currency = "USD"
    from = 2026-01-01
    charges = ["gpu"]
    [[plan.price]]
    meter = "gpu-hour"
    model = "graduated"
    tiers = [{ up_to = 10, unit_price = "3.00" }, { unit_price = "1.00" }]
    [[plan.fee]]
    name = "platform"
    amount = "100.00"
    """
    apply.apply(file=schema.parse(text))
    tenant = builders.a_tenant(
        "tiers",
        plan=Plan.objects.get(name="tiers"),
        plan_from=date(2026, 1, 1),
    )
    for account in ("vision", "speech"):
        builders.own(tenant, cluster, account, project="research")
    run(cluster, started="2026-03-02 10:00", ended="2026-03-02 18:00", gpus=1)
    run(cluster, started="2026-03-02 10:00", ended="2026-03-02 14:00", gpus=1, account="speech", user="ann")
    whole = a_quota(tenant)
    ann = a_quota(tenant, "ann", user="ann", amount=Decimal(100))
    period = BillingPeriod.objects.get(
        start__lte=builders.at("2026-03-02"), end__gt=builders.at("2026-03-02")
    )
    overview = accrued(tenant=tenant, period=period)
    assert overview is not None
    assert [money.text for money in overview.sums] == ["132.00"]  # 10 × 3 + 2 × 1, and the fee
    assert used(whole, "2026-03-10") == 132
    assert used(ann, "2026-03-10") == Fraction(32) * 4 / 12  # its part of the line
    going_on(cluster, started="2026-03-10 10:00", seen="2026-03-10 10:30", gpus=4, user="ann")
    assert used(whole, "2026-03-10 10:30") == 134
    assert figure(whole, "2026-03-10 10:33").counted_on == Fraction("0.20")  # in the second tier
    assert used(ann, "2026-03-10 10:33") == Fraction("34.20") * Fraction("6.2") / Fraction("14.2")


def test_quota_001_a_run_is_counted_on_for_one_pull_at_most(cluster: Cluster, vision: Tenant) -> None:
    going_on(cluster, started="2026-03-05 10:00", seen="2026-03-05 11:00", gpus=2)
    quota = a_quota(vision, measure=HOURS, amount=Decimal(100))
    assert used(quota, "2026-03-05 11:05") == Fraction(2) + Fraction(2 * 300, 3600)
    assert used(quota, "2026-03-05 17:00") == Fraction(2) + Fraction(2 * 300, 3600)


def test_quota_002_gpu_hours_count_waived_ones_and_credits_what_wallets_pay(cluster: Cluster) -> None:
    free = builders.a_plan("free", charges=[], prices=[])
    tenant = builders.a_tenant("free", plan=free, accounts=[(cluster, "vision")])
    run(cluster, gpus=4)
    assert used(a_quota(tenant, measure=HOURS, amount=Decimal(10)), "2026-03-03") == 4
    assert used(a_quota(tenant, "dollars"), "2026-03-03") == 0
    plan = builders.a_plan(
        "tokens", "TOK", settles="wallet", prices=[("gpu-hour", {}, "7", builders.LONG_AGO)]
    )
    other = builders.a_tenant("prepaid", plan=plan, accounts=[(cluster, "speech")])
    run(cluster, gpus=2, account="speech")
    quota = a_quota(other, "tokens", measure=QuotaMeasure.CREDITS, amount=Decimal(100))
    assert quota.unit == "TOK"
    assert used(quota, "2026-03-03") == 14


def test_quota_003_credit_lowers_a_net_quota_alone(cluster: Cluster, vision: Tenant) -> None:
    run(cluster, started="2026-03-02 00:00", ended="2026-03-03 00:00", gpus=8)
    run(cluster, started="2026-03-03 00:00", ended="2026-03-03 08:00", gpus=1)
    scheme = wallet_terms.set_scheme(
        tenant=vision, unit="USD", scope=WalletScope.TENANT, overdraft=0, since=builders.at("2026-03-01")
    )
    grants.grant(
        wallet=scheme.wallets.get(),
        amount=5000,
        key="goodwill",
        who="Op",
        moment=builders.at("2026-03-03 12:00"),
    )
    gross = a_quota(vision)
    net = a_quota(vision, "net", credits=QuotaCredits.NET)
    assert used(gross, "2026-03-04") == 400
    assert used(net, "2026-03-04") == 350
    assert used(net, "2026-04-04") == 0


def test_quota_004_a_scope_counts_what_matches_all_of_it(cluster: Cluster, vision: Tenant) -> None:
    run(cluster, gpus=3, gpu_model="a100", user="ben", queue="gpu", qos="normal")
    run(cluster, gpus=5, gpu_model="h100", user="ben", queue="gpu", qos="high")
    run(cluster, gpus=7, gpu_model="a100", user="ann", queue="cpu", qos="normal")
    rhea = builders.a_cluster("rhea")
    builders.own(vision, rhea, "nlp", project="nlp")
    run(rhea, gpus=11, account="nlp", user="ben", gpu_model="a100")
    project = vision.projects.get(name="nlp")

    def hours(name: str, **scope: Any) -> Fraction:
        return used(a_quota(vision, name, measure=HOURS, amount=Decimal(100), **scope), "2026-03-03")

    assert hours("ben-on-a100", user="ben", gpu_model="a100") == 14
    assert hours("ben-on-h100", user="ben", gpu_model="h100") == 5
    assert hours("queue", queue="gpu") == 8
    assert hours("qos", qos="normal") == 10
    assert hours("account", account="nlp") == 11
    assert hours("cluster", cluster="gpu1") == 15
    assert hours("project", project=project) == 11
    assert hours("project-there", project=project, cluster="gpu1") == 0
    assert hours("all") == 26


def test_quota_008_usage_without_owner_counts_once_it_is_assigned(cluster: Cluster, vision: Tenant) -> None:
    run(cluster, gpus=4, account="stray")
    quota = a_quota(vision, measure=HOURS, amount=Decimal(100))
    assert used(quota, "2026-03-05") == 0
    builders.own(vision, cluster, "stray")
    assert used(quota, "2026-03-05") == 4
    assert used(quota, "2026-04-05") == 0


def test_quota_010_usage_can_go_down(cluster: Cluster, vision: Tenant) -> None:
    job = {"job_id": "77", "source_key": "77@1", "submitted": "2026-03-02 10:00"}
    run(cluster, **job, ended="2026-03-02 12:00", gpus=4)
    quota = a_quota(vision)
    assert used(quota, "2026-03-05") == 16
    run(cluster, **job, ended="2026-03-02 11:00", gpus=4)
    assert used(quota, "2026-03-05") == 8


def test_quota_011_a_month_begins_at_the_tenants_midnight(cluster: Cluster) -> None:
    tenant = builders.a_tenant(
        "shanghai", plan=builders.a_plan(), accounts=[(cluster, "vision")], timezone="Asia/Shanghai"
    )
    quota = a_quota(tenant)
    run(cluster, started="2026-03-31 15:00", ended="2026-03-31 17:00", gpus=1)
    assert used(quota, "2026-03-31 15:59") == 2  # 23:59 there: the hour before midnight
    after = figure(quota, "2026-03-31 16:00")
    assert (after.used, after.window.start) == (
        Fraction(2),
        builders.at("2026-03-31 16:00"),
    )  # the hour behind it
    assert after.window.end == builders.at("2026-04-30 16:00")


@pytest.mark.parametrize(
    ("every", "first", "end", "hours"),
    [
        ("day", "2026-05-20 00:00", "2026-05-21 00:00", 1),
        ("week", "2026-05-18 00:00", "2026-05-25 00:00", 3),
        ("month", "2026-05-01 00:00", "2026-06-01 00:00", 7),
        ("quarter", "2026-04-01 00:00", "2026-07-01 00:00", 15),
        ("year", "2026-01-01 00:00", "2027-01-01 00:00", 31),
        ("billing-period", "2026-05-15 00:00", "2026-06-15 00:00", 3),
    ],
)
def test_quota_012_one_engine_for_every_period(
    cluster: Cluster, every: str, first: str, end: str, hours: int
) -> None:
    tenant = builders.a_tenant(
        "anchor", plan=builders.a_plan(), accounts=[(cluster, "vision")], anchor_day=15
    )
    days = {"05-20": 1, "05-19": 2, "05-04": 4, "04-01": 8, "01-01": 16}
    for day, gpus in days.items():
        run(cluster, started=f"2026-{day} 10:00", ended=f"2026-{day} 11:00", gpus=gpus)
    for quota, unit in (
        (a_quota(tenant, "hours", every=QuotaEvery(every), measure=HOURS), 1),
        (a_quota(tenant, "money", every=QuotaEvery(every)), 2),
    ):
        now = figure(quota, "2026-05-20 12:00")
        assert (now.window.start, now.window.end) == (builders.at(first), builders.at(end))
        assert now.used == hours * unit


def test_quota_012_a_fixed_term_holds_its_days(cluster: Cluster, vision: Tenant) -> None:
    for day in ("03-31", "04-01", "04-30", "05-01"):
        run(cluster, started=f"2026-{day} 10:00", ended=f"2026-{day} 11:00", gpus=1)
    term: dict[str, Any] = {
        "every": QuotaEvery.TERM,
        "first_day": date(2026, 4, 1),
        "end_day": date(2026, 5, 1),
    }
    assert used(a_quota(vision, **term), "2026-05-20") == 4


@pytest.mark.parametrize(
    ("every", "moment", "hours"),
    [("month", "2026-03-10", 743), ("month", "2026-11-10", 721), ("day", "2026-03-08 20:00", 23)],
)
def test_quota_013_clocks_that_change_make_periods_shorter(
    vision: Tenant, every: str, moment: str, hours: int
) -> None:
    vision.timezone = "America/Los_Angeles"
    vision.save()
    window = figure(a_quota(vision, every=QuotaEvery(every)), moment).window
    assert (window.end - window.start).total_seconds() == hours * 3600


@pytest.mark.parametrize("measure", [HOURS, MONEY])
def test_quota_014_a_rolling_window_lets_go_by_the_second(
    cluster: Cluster, vision: Tenant, measure: QuotaMeasure
) -> None:
    run(cluster, started="2026-03-02 10:00", ended="2026-03-02 11:00", gpus=168)
    run(cluster, started="2026-03-05 10:00", ended="2026-03-05 11:00", gpus=1)
    quota = a_quota(vision, measure=measure, every=QuotaEvery.ROLLING, hours=168)
    unit = 2 if measure == MONEY else 1

    def left(moment: str) -> Fraction:
        return used(quota, moment) / unit

    assert left("2026-03-02 11:00") == 168
    assert left("2026-03-09 10:00") == 169
    assert left("2026-03-09 10:15") == 127
    assert left("2026-03-09 10:59:59") == 1 + Fraction(168, 3600)
    assert left("2026-03-09 11:00") == 1
    assert left("2026-03-12 10:30") == Fraction(1, 2)
    assert left("2026-03-13 00:00") == 0


def test_quota_014_a_window_within_one_day(cluster: Cluster, vision: Tenant) -> None:
    run(cluster, started="2026-03-02 08:00", ended="2026-03-02 12:00", gpus=1)
    quota = a_quota(vision, measure=HOURS, every=QuotaEvery.ROLLING, hours=3)
    assert used(quota, "2026-03-02 12:00") == 3
    assert used(quota, "2026-03-02 14:00") == 1


def test_quota_015_another_amount_holds_at_once_and_another_zone_from_the_next_period(
    cluster: Cluster, vision: Tenant
) -> None:
    run(cluster, started="2026-03-31 20:00", ended="2026-03-31 22:00", gpus=1)
    quota = a_quota(vision)
    vision.timezone = "Asia/Shanghai"
    vision.save()
    march = figure(quota, "2026-03-31 23:00")
    assert (march.used, march.window.end) == (Fraction(4), builders.at("2026-04-01 00:00"))
    april = figure(quota, "2026-04-01 00:00")
    assert (april.used, april.window.end) == (Fraction(0), builders.at("2026-04-30 16:00"))
    assert a_quota(vision, amount=Decimal(1500)).amount == 1500


def test_quota_018_a_period_is_its_own_key_so_nothing_is_reset(cluster: Cluster, vision: Tenant) -> None:
    run(cluster, started="2026-03-31 22:00", ended="2026-04-01 03:00", gpus=1)
    quota = a_quota(vision)
    assert used(quota, "2026-03-31 23:59") == 4
    assert used(quota, "2026-04-01 03:00") == 6  # nobody looked at midnight
    review.review_quotas(moment=builders.at("2026-03-15"))
    (march,) = load_past_periods(quota, moment=builders.at("2026-04-02"))
    assert march.used == 4


def test_quota_059_figures_take_as_many_queries_for_forty_as_for_one(
    cluster: Cluster, vision: Tenant, django_assert_max_num_queries: Any
) -> None:
    run(cluster, gpus=3)
    for number in range(40):
        a_quota(vision, f"user-{number}", user=f"user-{number}", amount=Decimal(number))
    rows = list(quotas.list_quotas())
    with django_assert_max_num_queries(9):
        assert len(figures.load_figures(rows, moment=datetime(2026, 3, 5, tzinfo=UTC))) == 40


def test_quota_061_the_counter_is_the_sum_of_the_rated_rows_in_scope(
    cluster: Cluster, vision: Tenant
) -> None:
    for number, model in enumerate(("a100", "h100", "a100")):
        run(
            cluster,
            started=f"2026-03-0{number + 1} 22:00",
            ended=f"2026-03-0{number + 2} 03:0{number}",
            gpus=3,
            gpu_model=model,
            suspended=77,
        )
    a_quota(vision)
    a_quota(vision, "daily-a100", every=QuotaEvery.DAY, gpu_model="a100", measure=HOURS)
    a_quota(vision, "of-ben", every=QuotaEvery.DAY, user="ben", measure=HOURS)

    def broken() -> list[str]:
        lines = prove_quotas(moment=builders.at("2026-03-02 12:00")).broken
        return [text.split(",")[0] for text in lines]

    assert broken() == []
    DailyUsage.objects.filter(day=date(2026, 3, 2)).update(units=F("units") + 1)
    assert broken() == ["vision/of-ben"]
    DayTotal.objects.filter(day=date(2026, 3, 2)).update(units=F("units") + 1)
    assert broken() == ["vision/daily-a100", "vision/monthly", "vision/of-ben"]
