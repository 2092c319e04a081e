"""The worked example of docs/explanation/quotas.md, computed by what counts."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from billing.models import Plan, QuotaEvery, QuotaMeasure
from billing.quotas import quotas, status
from billing.quotas.quotas import Setter
from billing.quotas.terms import QuotaTerms
from portal.config_file import apply, schema
from tests import builders
from tests.documentation import table

pytestmark = pytest.mark.django_db

PLAN = """
[[plan]]
name = "tiers"
currency = "USD"
from = 2026-01-01
charges = ["gpu"]
[[plan.price]]
meter = "gpu-hour"
model = "graduated"
tiers = [{ up_to = 100, unit_price = "2.00" }, { unit_price = "1.50" }]
[[plan.fee]]
name = "platform"
amount = "50.00"
"""


def test_the_worked_example() -> None:
    apply.apply(file=schema.parse(PLAN))
    cluster = builders.a_cluster()
    tenant = builders.a_tenant("lab", plan=Plan.objects.get(name="tiers"), plan_from=date(2026, 1, 1))
    for account in ("nlp", "vision"):
        builders.own(tenant, cluster, account, project=account)
    for account, user, gpus in (("nlp", "ann", 60), ("nlp", "ben", 30), ("vision", "ben", 30)):
        builders.ingest(cluster, builders.a_job(account=account, user=user, gpus=gpus))
    nlp = tenant.projects.get(name="nlp")
    terms: list[dict[str, Any]] = [{}, {"project": nlp}, {"user": "ben"}]
    scopes = [{"measure": QuotaMeasure.MONEY} | one for one in terms]
    scopes.append({"measure": QuotaMeasure.GPU_HOURS, "user": "ben"})
    for number, scope in enumerate(scopes):
        quotas.set_quota(
            tenant=tenant,
            name=f"quota-{number}",
            terms=QuotaTerms(amount=Decimal(1000), every=QuotaEvery.MONTH, **scope),
            by=Setter.OPERATOR,
            moment=builders.at("2026-03-01"),
        )
    rows = list(quotas.list_quotas())
    statuses = status.load_statuses(rows, moment=builders.at("2026-03-10"))
    shown = [one.text(one.figure.used).removesuffix(" GPU-hours") for one in statuses]
    assert [row["used"] for row in table("explanation/quotas.md", "Money")] == shown
