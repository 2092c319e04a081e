"""The vision lab with all that a tenant can have: what its pages ask most with."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from billing.catalog import subscriptions, version_terms
from billing.limits import limits
from billing.limits.limits import LimitTerms
from billing.models import (
    GrantEvery,
    Plan,
    PlanVersion,
    QuotaAction,
    QuotaCredits,
    QuotaEvery,
    QuotaMeasure,
    WalletScope,
)
from billing.quotas import quotas, review
from billing.quotas.quotas import Setter
from billing.quotas.terms import QuotaTerms
from billing.rules.money import TOKENS
from billing.wallets import grants, wallet_terms
from billing.wallets.wallet_terms import Rule
from portal.core.tenants.models import Tenant
from tests import builders, stories
from tests.builders import LONG_AGO, a_job
from tests.paying import pays
from tests.scenarios.test_reservations import reserve
from tests.terms import GRADUATED, TENS, VOLUME, a_version
from tests.web.house import House, a_house, plan

MARCH = builders.at("2026-03-01")


def a_full_house() -> House:
    """A plan with tiers, an allowance, a commitment, a fee and discounts; wallets of two units; budgets of each kind
    with a pool; reservations; a change of plan to come; and March corrected after its close."""
    now = datetime.now(UTC).replace(microsecond=0)
    house = a_house(close=False)
    vision, cluster = house.vision, house.cluster
    builders.own(vision, cluster, "robots", project="Robots")
    with_wallets(vision)
    stories.close("2026-03", accept="the lab's")
    subscriptions.subscribe(tenant=vision, plan=a_plan_of_tiers(vision), since=builders.at("2026-04-01"))
    with_discounts(PlanVersion.objects.get(plan__name="vision-deal"), vision)  # of March, too
    builders.ingest(
        cluster,
        a_job(started="2026-03-20 10:00", ended="2026-03-20 16:00", account="robots"),
        *(job_of(now - timedelta(days=days), account) for days in (1, 20, 40) for account in ACCOUNTS),
        a_job(
            started=seconds(now - timedelta(hours=8)), ended=None, seen_until=seconds(now), state="RUNNING"
        ),
        as_of=f"{now:%Y-%m-%d %H:%M:%S}",
    )
    with_budgets(vision, now)
    later = datetime(now.year + 2, 1, 1, tzinfo=UTC)  # no job that is asked about runs into it
    subscriptions.subscribe(tenant=vision, plan=builders.a_plan("next"), since=later)
    for number, key in ((1, "a"), (2, "b")):
        assert reserve(cluster, number, number, key, now=now, job_id=f"471{number}").reservation
    review.review_quotas(moment=now)
    return house


def a_payer_house() -> House:
    """The same where the vision lab pays for others since June, the speech lab on a plan of tiers and fees of its own.

    In May the faculty paid for the vision lab. In July and August the speech lab paid for itself.
    """
    house = a_full_house()
    faculty, sound = (
        builders.a_tenant(name, plan=plan(f"{name}-deal", "1.00"), accounts=[(house.cluster, name)])
        for name in ("faculty", "sound")
    )
    tiers = a_plan_of_tiers(house.speech, "speech-tiers")
    subscriptions.subscribe(tenant=house.speech, plan=tiers, since=builders.at("2026-04-01"))
    pays(faculty, house.vision, "2026-05-01", "2026-06-01")
    pays(house.vision, house.speech, "2026-06-01", "2026-07-01")
    pays(house.vision, house.speech, "2026-09-01")
    pays(house.vision, sound, "2026-06-01")
    now = datetime.now(UTC).replace(microsecond=0)
    builders.ingest(
        house.cluster,
        *(job_of(now - timedelta(days=days), "sound") for days in (1, 20, 40)),
        a_job(started="2026-05-20 10:00", ended="2026-05-20 16:00"),
        a_job(started="2026-06-20 10:00", ended="2026-06-20 16:00", account="speech"),
        as_of=f"{now:%Y-%m-%d %H:%M:%S}",
    )
    review.review_quotas(moment=now)
    return house


ACCOUNTS = ("vision", "robots", "speech")


def seconds(moment: datetime) -> int:
    return int(moment.timestamp())


def job_of(started: datetime, account: str) -> Any:
    return a_job(
        account=account, started=seconds(started), ended=seconds(started + timedelta(hours=3)), gpus=8
    )


def a_plan_of_tiers(tenant: Tenant, name: str = "standard") -> Plan:
    version = a_version(
        (GRADUATED, {"gpu_model": ["a100"]}),
        (VOLUME, {"gpu_model": ["h100"]}),
        (TENS, {"gpu_model": ["l40s"]}),
        name=name,
        allowance="10",
    )
    version_terms.set_fee(version=version, name="Platform fee", amount=Decimal(50), in_advance=True)
    version_terms.set_commitment(version=version, amount=Decimal(1000), overage_factor=Decimal("1.5"))
    with_discounts(version, tenant)
    return version.plan


def with_discounts(version: PlanVersion, vision: Tenant) -> None:
    """One for all on it, in whose place the lab has its own."""
    for tenant, percent in ((None, 10), (vision, 20)):
        version_terms.set_discount(
            version=version, name="Friends", valid_from=LONG_AGO, percent=Decimal(percent), tenant=tenant
        )


def with_wallets(vision: Tenant) -> None:
    for unit in ("USD", TOKENS):
        scheme = wallet_terms.set_scheme(
            tenant=vision, unit=unit, scope=WalletScope.TENANT, overdraft=0, since=MARCH
        )
        rule = Rule(name="to begin with", amount=100, every=GrantEvery.MONTH, begins_at=MARCH)
        wallet_terms.set_rule(scheme=scheme, rule=rule)
    grants.tend(moment=MARCH)


def with_budgets(vision: Tenant, now: datetime) -> None:
    """Of money as it is billed, of hours, over each kind of period, with what is carried over; and a pool."""
    own, robots = vision.projects.exclude(name="Robots").get(), vision.projects.get(name="Robots")
    begun = now - timedelta(days=100)

    def set_budget(
        name: str, every: QuotaEvery, measure: QuotaMeasure = QuotaMeasure.MONEY, **terms: Any
    ) -> Any:
        quota = replace(QuotaTerms(measure=measure, amount=Decimal(100), every=every), **terms)
        return quotas.set_quota(tenant=vision, name=name, terms=quota, by=Setter.OPERATOR, moment=begun)

    set_budget("year", QuotaEvery.YEAR, credits=QuotaCredits.PAID, with_paid=True)
    set_budget("month", QuotaEvery.MONTH, credits=QuotaCredits.NET, carry_over=50, carry_overdraft=True)
    set_budget("quarter", QuotaEvery.QUARTER, carry_over=100)
    set_budget("large", QuotaEvery.BILLING_PERIOD, action=QuotaAction.NO_GPU_JOBS, amount=Decimal(100_000))
    set_budget("rolling", QuotaEvery.ROLLING, QuotaMeasure.GPU_HOURS, hours=24)
    set_budget("user", QuotaEvery.ROLLING, user="ben", hours=36)
    set_budget("day", QuotaEvery.DAY, QuotaMeasure.CREDITS, unit=TOKENS)
    set_budget("gpu", QuotaEvery.YEAR)
    pool = set_budget("shared", QuotaEvery.MONTH, lends=True)
    set_budget("own", QuotaEvery.MONTH, project=own, borrows_from=pool)
    set_budget("robots", QuotaEvery.MONTH, project=robots, borrows_from=pool)
    limits.set_limit(tenant=vision, name="once", terms=LimitTerms(gpus=64), moment=now)
    review.review_quotas(moment=begun)
