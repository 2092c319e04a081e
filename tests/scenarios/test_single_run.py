"""A run that never was is rated by one statement, as a batch is by its tables."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.catalog import billing_periods
from billing.rating.single_run import cut_run, cut_run_in_tables
from portal.core.tenants.models import Ownership
from tests import builders
from tests.terms import TWO_DOLLARS, a_version
from tests.web.test_accrued import PLANS, a_lab

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


def test_a_run_whose_price_depends_on_neither_hour_nor_use_takes_one_query() -> None:
    _, lab = a_lab(PLANS["per unit"]())
    billing_periods.ensure(tenant=lab, since=builders.at("2026-03-20"), until=builders.at("2026-04-20"))
    account = Ownership.objects.filter(tenant=lab).earliest("pk").account_id
    with CaptureQueriesContext(connection) as queries:
        assert cut_run(account, builders.a_job(started="2026-03-20 10:00", ended="2026-03-20 11:00"))
    assert len(queries) == 1
