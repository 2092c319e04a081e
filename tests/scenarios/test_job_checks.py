"""Ben asks whether his job may run: yes; or no, with the budget, what is left, and the longest time limit that fits."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.admission.check import JobCheck, check_job
from billing.admission.reserve import reserve_job
from billing.admission.wording import answer_text, limit_text
from billing.models import BillingPeriod, QuotaAction, QuotaEvery, QuotaMeasure, QuotaRelease
from billing.quotas.terms import QuotaError
from billing.simulation.quotes import QuoteError
from clusters.models import Cluster
from portal.core.tenants import ownership
from portal.core.tenants.models import Ownership, Tenant
from portal.ops.quotas import check_data
from tests import builders
from tests.builders import a_cluster, a_plan, a_tenant, at
from tests.quota_stories import a_quota, look, shrink, spend
from tests.terms import GRADUATED, a_version
from tests.web.test_accrued import a_lab

pytestmark = pytest.mark.django_db

NOW = at("2026-03-05 12:00")
ACTS: dict[str, Any] = {"action": QuotaAction.NO_GPU_JOBS}


@pytest.fixture
def cluster() -> Cluster:
    return a_cluster()


@pytest.fixture
def vision(cluster: Cluster) -> Tenant:
    return a_tenant("vision", plan=a_plan(), accounts=[(cluster, "vision")])


def ask(tenant: Tenant, hours: float = 6, gpus: int = 8, *, now: Any = NOW, **fields: Any) -> JobCheck:
    begin = int(now.timestamp())
    job = builders.a_job(
        **{"account": "", "gpus": gpus, "started": begin, "ended": begin + int(hours * 3600)} | fields
    )
    return check_job(tenant=tenant, cluster="gpu1", job=job, now=now)


def test_quota_045_yes_where_it_fits_exactly_and_no_with_the_longest_limit_that_does(
    vision: Tenant, cluster: Cluster
) -> None:
    a_quota(vision, **ACTS)
    spend(cluster, "904.00")
    fits = ask(vision)  # 8 × 2.00 × 6 h
    assert (fits.may_run, fits.longest, [str(need.amount) for need in fits.needs]) == (True, None, ["96"])
    spend(cluster, "0.50", day="2026-03-03")
    refused = ask(vision)
    (need,) = refused.refusing
    assert (refused.may_run, str(need.status.left), str(need.amount)) == (False, "191/2", "96")
    assert refused.longest == 5 * 3600 + 58 * 60  # a minute costs 0.2667
    assert ask(vision, hours=refused.longest / 3600).may_run


def test_quota_045_it_is_a_question_that_keeps_nothing(vision: Tenant, cluster: Cluster) -> None:
    a_quota(vision, **ACTS)
    before = BillingPeriod.objects.count()
    assert [ask(vision, hours=62.5).may_run for _ in range(3)] == [True] * 3  # 1,000.00 each
    assert BillingPeriod.objects.count() == before


def test_quota_045_tiers_make_the_longest_limit_one_that_fits() -> None:
    cluster, lab = a_lab(a_version(GRADUATED))
    builders.ingest(cluster, builders.a_job(gpus=95, started="2026-03-02 10:00", ended="2026-03-02 11:00"))
    a_quota(lab, amount=Decimal(305), **ACTS)  # 285.00 are used; 5 hours at 3.00 are left, then 2.50
    assert ask(lab, hours=7, gpus=1).may_run  # 15.00 + 5.00
    refused = ask(lab, hours=8, gpus=1)
    assert (refused.may_run, refused.longest) == (False, 7 * 3600)
    assert ask(lab, hours=7, gpus=1).may_run


def test_quota_045_many_budgets_that_a_job_with_tiers_does_not_fit_are_searched_together() -> None:
    _, lab = a_lab(a_version(GRADUATED))
    a_quota(lab, "strict", amount=Decimal("5.99"), **ACTS)
    with CaptureQueriesContext(connection) as alone:
        assert ask(lab, hours=8, gpus=2).longest == 59 * 60
    for number in range(9):
        a_quota(lab, f"loose-{number}", amount=Decimal(20 + number))
    with CaptureQueriesContext(connection) as together:
        refused = ask(lab, hours=8, gpus=2)
    assert refused.longest == 59 * 60
    assert len(together) < 4 * len(alone)
    for need in refused.needs:
        assert need.longest is not None
        assert need.longest >= 59 * 60
        shorter = ask(lab, hours=need.longest / 3600, gpus=2)
        assert [one.fits for one in shorter.needs if one.status.quota == need.status.quota] == [True]


def test_quota_045_gpu_hours_credits_and_slices_are_counted_in_their_own_unit(vision: Tenant) -> None:
    a_quota(vision, "hours", measure=QuotaMeasure.GPU_HOURS, amount=Decimal(10), **ACTS)
    assert ask(vision, hours=5, gpus=2).may_run
    refused = ask(vision, hours=5.5, gpus=2)
    assert (refused.may_run, refused.longest) == (False, 5 * 3600)
    sliced = ask(vision, hours=20, gpus=2, gpu_share=(1, 4))
    assert (sliced.may_run, str(sliced.needs[0].amount)) == (True, "10")


def test_quota_005_the_strictest_of_several_decides_and_each_that_refuses_is_named(
    vision: Tenant, cluster: Cluster
) -> None:
    a_quota(vision, **ACTS)
    a_quota(vision, "hours", measure=QuotaMeasure.GPU_HOURS, amount=Decimal(16), **ACTS)
    builders.own(vision, cluster, "nlp", until="2026-02-01")
    a_quota(vision, "of-nlp", account="nlp", amount=Decimal(1), **ACTS)  # counts other jobs
    spend(cluster, "920.00")  # 460 GPU-hours: none is left
    refused = ask(vision)
    assert [need.status.quota.name for need in refused.refusing] == ["hours", "monthly"]
    assert (refused.longest, [need.longest for need in refused.refusing]) == (0, [0, 5 * 3600])


def test_quota_063_the_refusal_names_budget_window_used_left_reset_and_whom_to_ask(
    vision: Tenant, cluster: Cluster
) -> None:
    a_quota(vision, cap=Decimal(1000), **ACTS)
    spend(cluster, "920.00")
    assert answer_text(ask(vision)) == (
        "Budget monthly (everything, each month): $920.00 of $1,000.00 used, $80.00 left; this job needs up to $96.00. "
        "A time limit of 5:00:00 fits. It resets on 2026-04-01 00:00 UTC. "
        "Ask the operators of the cluster to raise it."
    )
    a_quota(vision, **ACTS)
    assert answer_text(ask(vision)).endswith(f"Ask an owner of {vision.name} to raise it.")
    assert [limit_text(seconds) for seconds in (60, 19_980, 95_400)] == ["0:01:00", "5:33:00", "1-02:30:00"]


def test_quota_063_it_says_what_is_reserved_and_each_kind_of_budget_has_its_stable_type(
    vision: Tenant, cluster: Cluster
) -> None:
    a_quota(vision, amount=Decimal(100), **ACTS)
    spend(cluster, "40.00")
    begin = int(NOW.timestamp())
    other = builders.a_job(gpus=8, started=begin, ended=begin + 7200)
    reserve_job(cluster=cluster, key="other", job=other, now=NOW)
    assert answer_text(ask(vision)).startswith(
        "Budget monthly (everything, each month): $40.00 of $100.00 used, $32.00 reserved, $28.00 left; this job needs "
        "up to $96.00. A time limit of 1:45:00 fits. It resets on 2026-04-01 00:00 UTC. Ask "
    )
    scope: dict[str, Any] = {"project": vision.projects.get(), "account": "vision", "cluster": "gpu1"}
    scope |= {"user": "ben", "qos": "low", "queue": "gpu", "gpu_model": "a100"}
    for name, value in scope.items():
        a_quota(vision, f"of-{name}".replace("_", "-"), amount=Decimal(1), **{name: value})
    a_quota(vision, "of-both", amount=Decimal(1), user="ben", queue="gpu")  # the narrowest says it
    data = check_data(ask(vision, user="ben", qos="low", queue="gpu"))
    kinds = {
        need["name"]: need["type"].removeprefix("urn:clustertab:problem:quota-used-up-")
        for need in data["quotas"]
    }
    names = [name.replace("_", "-") for name in scope]
    assert kinds == {"monthly": "tenant", "of-both": "user"} | {f"of-{name}": name for name in names}


def test_quota_031_only_what_acts_on_such_a_job_keeps_it_from_running(
    vision: Tenant, cluster: Cluster
) -> None:
    spend(cluster, "10.00")
    a_quota(vision, amount=Decimal(10))
    told = ask(vision)
    assert told.may_run
    assert answer_text(told).startswith(
        "This job may run.\nNotifies only: Budget monthly (everything, each month)"
    )
    a_quota(vision, amount=Decimal(10), watch=True, **ACTS)
    assert ask(vision).may_run
    a_quota(vision, amount=Decimal(10), **ACTS)
    assert not ask(vision).may_run
    assert ask(vision, gpus=0).may_run  # jobs without GPUs still start
    a_quota(vision, amount=Decimal(10), action=QuotaAction.NO_SUBMISSIONS)
    assert not ask(vision, gpus=0).may_run
    QuotaRelease.objects.create(
        tenant=vision, reason="-", released_at=at("2026-03-05"), until=at("2026-03-06")
    )
    assert ask(vision).may_run


def test_quota_023_a_budget_of_nothing_lets_nothing_run(vision: Tenant) -> None:
    a_quota(vision, amount=Decimal(0), **ACTS)
    assert (ask(vision).may_run, ask(vision).longest) == (False, 0)
    assert answer_text(ask(vision)).count("No time limit fits.") == 1


def test_quota_012_only_what_falls_into_the_period_counts(vision: Tenant, cluster: Cluster) -> None:
    a_quota(vision, amount=Decimal(40), **ACTS)
    late = at("2026-03-31 22:00")
    check = ask(vision, now=late)  # two hours of it are March's: 32.00
    assert (check.may_run, str(check.needs[0].amount)) == (True, "32")
    a_quota(vision, "day", every=QuotaEvery.ROLLING, hours=1, amount=Decimal(16), **ACTS)
    assert [need.amount for need in ask(vision, now=late).needs] == [16, 32]
    a_quota(vision, "grant", every=QuotaEvery.TERM, first_day=at("2026-03-01").date(),
            end_day=at("2026-03-05").date(), amount=Decimal(0), **ACTS)  # fmt: skip
    assert [need.status.quota.name for need in ask(vision, now=late).needs] == ["day", "monthly"]


def test_quota_004_a_budget_of_a_user_tells_where_the_user_is_named(vision: Tenant) -> None:
    a_quota(vision, "of-ben", user="ben", amount=Decimal(1))
    assert [need.fits for need in ask(vision, user="ben").needs] == [False]
    assert ask(vision, user="eve").needs == []


def test_quota_045_what_no_price_covers_is_told(cluster: Cluster) -> None:
    prices = [("gpu-hour", {"gpu_model": ["a100"]}, "2.00", at("2026-01-01").date())]
    lab = a_tenant("vision", plan=a_plan(prices=prices), accounts=[(cluster, "vision")])
    a_quota(lab, **ACTS)
    assert answer_text(ask(lab, gpu_model="h100")) == (
        "This job may run.\nNo price covers gpu, so its full cost is not known."
    )


def test_quota_045_the_queries_are_as_many_for_thirty_budgets_as_for_three(
    vision: Tenant, cluster: Cluster
) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as seen:
            ask(vision)
        return len(seen)

    spend(cluster, "100.00")
    for number in range(3):
        a_quota(vision, f"q{number}", **ACTS)
    ask(vision)
    few = queries()
    for number in range(3, 30):
        a_quota(vision, f"q{number}", **ACTS)
    assert queries() == few <= 15


def test_quota_045_the_queries_are_as_many_however_many_periods_end_before_the_job(
    vision: Tenant, cluster: Cluster
) -> None:
    def queries(hours: int) -> int:
        with CaptureQueriesContext(connection) as seen:
            ask(vision, hours=hours)
        return sum("SAVEPOINT" not in query["sql"] for query in seen if query["sql"])

    spend(cluster, "100.00")
    a_quota(vision, "year", every=QuotaEvery.YEAR, **ACTS)
    ask(vision)
    one = queries(1)
    for every in (QuotaEvery.DAY, QuotaEvery.WEEK, QuotaEvery.MONTH, QuotaEvery.QUARTER):
        a_quota(vision, every.value, every=every, **ACTS)
    ask(vision, hours=300)
    assert queries(300) == one
    assert queries(6000) == one + 1  # months that nobody has billing periods for yet


def test_quota_045_the_queries_are_as_many_for_many_jobs_as_for_one(vision: Tenant, cluster: Cluster) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as seen:
            ask(vision)
        return len(seen)

    a_quota(vision, **ACTS)
    spend(cluster, "1.00")
    ask(vision)
    one = queries()
    for _ in range(20):
        spend(cluster, "1.00")
    ask(vision)
    assert queries() == one


def test_quota_045_what_was_changed_since_the_last_question_counts_in_the_next(
    vision: Tenant, cluster: Cluster
) -> None:
    """However often it was asked on the same connection: price, budget, release, block, and whose the account is."""
    a_quota(vision, amount=Decimal(100), **ACTS)
    assert [ask(vision).may_run for _ in range(7)] == [True] * 7  # 96.00
    a_plan(prices=[("gpu-hour", {}, "3.00", NOW.date())], effective_from=NOW.date())
    assert str(ask(vision).refusing[0].amount) == "144"
    a_quota(vision, amount=Decimal(150), **ACTS)
    assert ask(vision).may_run
    a_quota(vision, "of-ben", user="ben", amount=Decimal(1), action=QuotaAction.HOLD_JOBS)
    assert [need.status.quota.name for need in ask(vision, user="ben").refusing] == ["of-ben"]
    spend(cluster, "10.00", day="2026-03-04")
    assert [need.status.quota.name for need in ask(vision, user="eve").refusing] == ["monthly"]

    eve = a_tenant("eve", plan=None, accounts=[])
    account = Ownership.objects.get(tenant=vision).account
    ownership.assign(account=account, tenant=eve, since=NOW)
    with pytest.raises(QuoteError):
        ask(vision, account="vision")
    a_quota(eve, "eves", measure=QuotaMeasure.GPU_HOURS, amount=Decimal(47), **ACTS)
    assert [need.status.quota.name for need in ask(eve, account="vision").refusing] == ["eves"]


def test_quota_045_the_command_says_it_by_its_exit_code(
    vision: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    a_quota(vision, amount=Decimal(5), every=QuotaEvery.ROLLING, hours=24, made="2026-03-01", **ACTS)
    job = ["vision", "--cluster", "gpu1", "--gpus", "2", "--json", "--hours"]
    call_command("check_job", *job, "1")
    assert json.loads(capsys.readouterr().out)["may_run"] is True
    with pytest.raises(SystemExit) as ended:
        call_command("check_job", *job, "2")
    data = json.loads(capsys.readouterr().out)
    assert (ended.value.code, data["may_run"], data["longest_seconds"]) == (1, False, 75 * 60)
    assert data["quotas"][0]["type"] == "urn:clustertab:problem:quota-used-up-tenant"
    with pytest.raises((SystemExit, CommandError)):
        call_command("check_job", *job, "0")


def test_no_quota_takes_the_address_of_checks(vision: Tenant) -> None:
    with pytest.raises(QuotaError, match="No quota can be named check"):
        a_quota(vision, "check")


def test_quota_045_of_a_month_that_is_asked_for_hours_fit_and_are_found() -> None:
    """At $3.00 an hour in the first tier two hours fit what is left, though 30 days were asked for."""
    _, lab = a_lab(a_version(GRADUATED))
    a_quota(lab, amount=Decimal(6), action=QuotaAction.NO_GPU_JOBS)

    refused = ask(lab, hours=24 * 30, gpus=1)

    assert not refused.may_run
    assert refused.longest
    assert ask(lab, hours=refused.longest / 3600, gpus=1).may_run
    assert refused.longest >= 3600


def test_a_budget_that_still_blocks_keeps_a_job_out_though_a_little_is_left(
    vision: Tenant, cluster: Cluster
) -> None:
    a_quota(vision, action=QuotaAction.NO_GPU_JOBS)
    job = spend(cluster, "1000")
    look("2026-03-04")
    shrink(cluster, job, "995")

    check = ask(vision, hours=1, gpus=1)

    assert not check.may_run
    assert "It still blocks the account." in answer_text(check)
    look("2026-03-05")
    assert ask(vision, hours=1, gpus=1).may_run


def test_a_budget_that_stops_gpu_jobs_says_of_others_that_it_does_not_stop_them(
    vision: Tenant, cluster: Cluster
) -> None:
    a_quota(vision, amount=Decimal(10), action=QuotaAction.NO_GPU_JOBS)
    spend(cluster, "10")

    check = ask(vision, gpus=0)

    assert check.may_run
    assert "Does not stop this job: Budget monthly" in answer_text(check)
