"""A run that never was is rated by one statement, as a batch is by its tables."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from msgspec.structs import replace

from billing.catalog import billing_periods, plans
from billing.models import PlanVersion, RatedJob, RatedUsage
from billing.rating.single_run import cut_run, cut_run_in_tables
from billing.rules import hours as clock
from billing.simulation.quote_inputs import QuoteInputs
from billing.simulation.quotes import cut_job
from portal.core.tenants.models import Ownership, Project
from tests import builders
from tests.terms import TENS, TWO_DOLLARS, a_version
from tests.web.test_accrued import PLANS, Make, a_lab

pytestmark = pytest.mark.django_db

VERSIONS: dict[str, Any] = {
    "per unit": PLANS["per unit"],
    "allowance": PLANS["allowance"],
    "by shape": lambda: a_version(
        (TWO_DOLLARS, {"gpu_model": ["a100"], "queue": ["gpu"]}),
        (TWO_DOLLARS, {"gpu_model": ["h100"], "qos": ["low"]}),
        (TWO_DOLLARS, {"mig_profile": ["1g.5gb"], "cluster": ["gpu1"]}),
    ),
    "by use": lambda: a_version(
        (TWO_DOLLARS, {"use": ["busy"]}), (TWO_DOLLARS, {"use": ["unknown", "idle"]})
    ),
}
RUNS: list[dict[str, Any]] = [
    {"gpus": 8, "queue": "gpu"},
    {"gpus": 8, "gpu_model": "h100", "qos": "low", "ended": "2026-04-02 11:00"},  # over the end of a month
    {"gpus": 3, "gpu_share": (1, 7), "mig_profile": "1g.5gb", "suspended": 1234},
    {"gpus": 0, "cpu_milli": 16_000},
    {"gpus": 2, "gpu_model": "mi300"},  # which one of these plans has no price for
]


@pytest.mark.parametrize("plan", VERSIONS)
def test_one_statement_cuts_and_prices_a_run_as_the_tables_of_a_batch_do(plan: str) -> None:
    _, lab = a_lab(VERSIONS[plan]())
    billing_periods.ensure(tenant=lab, since=builders.at("2026-03-20"), until=builders.at("2026-04-20"))
    account = Ownership.objects.filter(tenant=lab).earliest("pk").account_id
    for fields in RUNS:
        run = builders.a_job(**{"started": "2026-03-30 10:00:07", "ended": "2026-03-30 22:00"} | fields)
        cuts = cut_run(account, run)
        assert cuts == cut_run_in_tables(account, run)
        assert cuts or not run.gpus
    assert cut_run(account + 4711, run) is None


def nights() -> PlanVersion:
    version = a_version(TWO_DOLLARS)
    night = clock.of_terms(
        {"zone": "tenant", "windows": [{"days": "mon-sun", "from": "20:00", "to": "07:00"}]}
    )
    plans.set_price(
        version=version, meter="gpu-hour", where={}, model=TENS, valid_from=builders.LONG_AGO, hours=night
    )
    return version


@pytest.mark.parametrize("make", [*VERSIONS.values(), nights], ids=[*VERSIONS, "nights"])
def test_a_run_is_shortened_as_a_shorter_one_is_cut(make: Make) -> None:
    _, lab = a_lab(make())
    billing_periods.ensure(tenant=lab, since=builders.at("2026-03-20"), until=builders.at("2026-04-20"))
    owner = Ownership.objects.filter(tenant=lab).select_related("account__cluster", "project").earliest("pk")
    for fields in RUNS:
        run = builders.a_job(**{"started": "2026-03-30 10:00:07", "ended": "2026-04-03 11:00"} | fields)
        run = replace(run, suspended=0)  # as whatever is quoted
        inputs = QuoteInputs(lab)
        whole = cut_job(run, account=owner, now=builders.at("2026-03-30"), inputs=inputs)
        for seconds in (1, 61, 86_400, 3 * 86_400 - 1):
            end = (run.started or 0) + seconds
            if end <= (run.ended or 0):
                shorter = replace(run, ended=end, seen_until=end)
                assert whole.cuts_until(end) == cut_run(owner.account_id, shorter)


def test_one_statement_cuts_a_run_as_it_is_rated_once_it_ran() -> None:
    cluster = builders.a_cluster()
    plan = a_version(TWO_DOLLARS, (TWO_DOLLARS, {"state": ["FAILED"]})).plan
    zone = "Europe/Berlin"  # whose clocks go forward within the run
    lab, guest = (builders.a_tenant(slug, plan=plan, timezone=zone) for slug in ("lab", "guest"))
    newer = plans.new_version(plan=plan, effective_from=date(2026, 3, 29), charges=["gpu", "cpu"])
    for tenant, meter in ((None, "gpu-hour"), (lab, "gpu-hour"), (None, "cpu-core-hour")):
        where: dict[str, list[str]] = {} if tenant is None else {"queue": ["gpu"]}
        plans.set_price(
            version=newer, meter=meter, where=where, model=TWO_DOLLARS, valid_from=date(2026, 3, 29), tenant=tenant
        )  # fmt: skip
    builders.own(lab, cluster, "vision", project="first")
    builders.own(lab, cluster, "vision", project="second", since="2026-03-30 05:00")
    builders.own(guest, cluster, "vision", since="2026-03-31 07:00")
    account = Ownership.objects.filter(tenant=lab).earliest("pk").account_id
    shapes: list[dict[str, Any]] = [
        {"gpus": 8, "queue": "gpu", "cpu_milli": 16_500, "suspended": 100_003},
        {"gpus": 3, "gpu_share": (1, 7), "mig_profile": "1g.5gb", "state": "FAILED", "memory_mib": 7},
    ]
    for shape in shapes:
        run = builders.a_job(started="2026-03-27 10:00:07", ended="2026-04-02 22:00", **shape)
        for tenant in (lab, guest):
            billing_periods.ensure(
                tenant=tenant, since=builders.at("2026-03-27"), until=builders.at("2026-04-03")
            )
        cuts = cut_run(account, run)
        assert cuts is not None
        builders.ingest(cluster, run)
        record = RatedJob.objects.filter(job_id=run.job_id).latest("record_id").record_id
        names = dict(Project.objects.values_list("pk", "name"))
        rated = sorted(
            (row.tenant_id, row.period_id, names[row.project_id], row.resource, row.verdict, row.price_id,
             row.service_month, row.service_from, row.service_to, row.units, row.share_num, row.share_den)
            for row in RatedUsage.objects.filter(record_id=record)
        )  # fmt: skip
        assert len(rated) >= 6
        assert rated == sorted(
            (cut.tenant, cut.period, cut.project, cut.resource, cut.verdict, cut.price,
             cut.service_month, cut.service_from, cut.service_to, cut.units, cut.share_num, cut.share_den)
            for cut in cuts
        )  # fmt: skip


def test_a_run_whose_price_depends_on_neither_hour_nor_use_takes_one_query() -> None:
    _, lab = a_lab(PLANS["per unit"]())
    billing_periods.ensure(tenant=lab, since=builders.at("2026-03-20"), until=builders.at("2026-04-20"))
    account = Ownership.objects.filter(tenant=lab).earliest("pk").account_id
    with CaptureQueriesContext(connection) as queries:
        assert cut_run(account, builders.a_job(started="2026-03-20 10:00", ended="2026-03-20 11:00"))
    assert len(queries) == 1
