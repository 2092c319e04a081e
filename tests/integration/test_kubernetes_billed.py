"""Op connects a Kubernetes cluster over a real Prometheus, pulls it, and its tenants are billed their slices."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import pytest

from billing.models import InvoiceLine, RatedUsage
from clusters.models import Cluster, Connection, Quarantined, UsageRecord
from portal.core.tenants.models import Tenant
from tests.builders import a_seller
from tests.contracts.prometheus_reading import HOUR
from tests.integration.prom_lab import Lab
from tests.scenarios.configuring import Op, run_json
from tests.stories import closed, invoice_of, lines_of, prove

pytestmark = pytest.mark.usefixtures("transactional_db")

SITE = """
[[cluster]]
name = "kube"
kind = "prometheus"
[cluster.connection]
url = "{url}"
first_usage_from = 2025-02-27
options = {{ account_from = "namespace" }}

[[plan]]
name = "slices"
currency = "USD"
charges = ["gpu"]
[[plan.price]]
meter = "gpu-hour"
unit_price = "12"
from = 2025-01-01
"""
TENANT = """
[[tenant]]
slug = "{name}"
name = "{name}"
plan = "slices"
plan_from = 2025-01-01
accounts = [
    {{ cluster = "kube", account = "{name}", since = 2025-02-27, until = 2025-02-27T02:00:00Z }},
]
"""
TRAINERS = """
[[tenant]]
slug = "trainers"
name = "Trainers"
plan = "slices"
plan_from = 2025-01-01
accounts = [{ cluster = "kube", account = "nlp", since = 2025-02-27 }]
"""
BORDER = 1_740_787_200  # 2025-03-01T00:00:00Z
SLICES = {"bu-a": 3, "bu-b": 2, "bu-c": 2}


def test_slices_of_a_gpu_are_billed_their_share_to_the_exact_fraction(
    pushed_lab: Lab,
    tmp_path: Path,
) -> None:
    a_seller()
    site = SITE.format(url=pushed_lab.url) + "".join(TENANT.format(name=name) for name in SLICES)
    op = Op(tmp_path)
    assert op.applies(site)[0] == "cluster kube: new (kind prometheus, timezone UTC)"
    assert op.applies(site) == ["Nothing to change."]

    answer = run_json("pull_usage", "kube", "--since", "2025-02-27", "--until", "2025-03-01T00:00:00Z")

    assert (answer["outcome"], answer["error"]) == ("done", None)
    assert Cluster.objects.get().complete_through == datetime(2025, 3, 1, tzinfo=UTC)
    assert not Quarantined.objects.exists()
    assert Connection.objects.get().api_version == "v1"
    for name, slices in SLICES.items():
        tenant = Tenant.objects.get(slug=name)
        refused = closed("2025-02", tenant)
        assert refused.outcome == "blocked"
        assert "2025-02-28 06:00" in refused.reason  # kube-state-metrics was away for seven minutes
        assert closed("2025-02", tenant, accept="Seven minutes, and no pod of theirs.").outcome == "issued"
        (line,) = lines_of(invoice_of(tenant, "2025-02"))
        assert billed(line) / 2 == 12 * Fraction(slices, 7)  # an hour, for two hours
        assert line.amount == round(100 * 24 * Fraction(slices, 7))
    assert prove()["billed"] == 2 * HOUR  # seven slices are a whole GPU

    compared = run_json("prove", "--live", "--hours", "48")["source"]
    assert (compared["facts"] > 0, compared["differing"]) == (True, 0)

    before = UsageRecord.objects.count()
    again = run_json("pull_usage", "kube", "--since", "2025-02-27", "--until", "2025-02-28")
    assert (again["new"], again["revised"], UsageRecord.objects.count()) == (0, 0, before)


def test_a_pod_that_runs_over_the_border_of_a_month_is_split_there_to_the_second(
    pushed_lab: Lab,
    tmp_path: Path,
) -> None:
    op = Op(tmp_path)
    op.applies(SITE.format(url=pushed_lab.url) + TRAINERS)
    pod = next(pod for pod in pushed_lab.truth["pods"] if pod["pod"] == "pretrain-0")

    run_json("pull_usage", "kube", "--since", "2025-02-28T22:00:00Z", "--until", "2025-03-01T02:00:00Z")

    record = UsageRecord.objects.get(source_key__startswith=pod["uid"])
    rows = RatedUsage.objects.filter(record_id=record.pk, resource="gpu").order_by("service_from")
    assert [(row.service_from, row.service_to, row.units) for row in rows] == [
        (pod["scheduled"], BORDER, 8 * (BORDER - pod["scheduled"])),
        (BORDER, BORDER + 2 * HOUR, 8 * 2 * HOUR),
    ]
    assert [f"{row.service_month:%Y-%m}" for row in rows] == ["2025-02", "2025-03"]
    prove()


def billed(line: InvoiceLine) -> Fraction:
    """Dollars before they are rounded to cents."""
    seconds = Fraction(int(line.seconds_num), line.seconds_den)
    return seconds / HOUR * Fraction(line.unit_price or 0)
