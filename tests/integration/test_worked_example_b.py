"""Worked example B as it is programmed: 0.015 for a GiB-hour of GPU memory, a quarter more on the host with A6000s.

From a real Prometheus with netdata's gauges to what each user is billed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from portal.core.tenants.models import Tenant
from tests.builders import a_seller
from tests.integration.prom_lab import Lab
from tests.scenarios.configuring import Op, run_json
from tests.stories import closed, invoice_of, printed, prove

pytestmark = pytest.mark.usefixtures("transactional_db")

SITE = """
[[cluster]]
name = "lab"
kind = "prometheus"
[cluster.connection]
url = "{url}"
first_usage_from = 2025-02-27
[cluster.connection.options]
preset = "netdata"
[cluster.connection.options.models]
hf-a6000-1 = "a6000"
hf-3090-1 = "rtx3090"

[[plan]]
name = "memory"
currency = "EUR"
charges = ["gpu-memory"]
from = 2025-01-01
[[plan.price]]
meter = "gpu-memory-gib-hour"
unit_price = "0.015"
[[plan.price]]
meter = "gpu-memory-gib-hour"
where = {{ queue = "hf-a6000-1" }}
unit_price = "0.01875"
"""
TENANT = """
[[tenant]]
slug = "{name}"
name = "{name}"
plan = "memory"
plan_from = 2025-01-01
accounts = [{{ cluster = "lab", account = "{name}" }}]
"""


def pulled(since: str, until: str) -> dict[str, int]:
    answer = run_json("pull_usage", "lab", "--since", since, "--until", until)
    assert (answer["outcome"], answer["error"]) == ("done", None)
    return {part: answer[part] for part in ("new", "revised", "quarantined")}


def test_users_are_billed_the_memory_that_they_held_and_an_hour_is_an_hour(
    pushed_lab: Lab,
    tmp_path: Path,
) -> None:
    a_seller()
    Op(tmp_path).applies(
        SITE.format(url=pushed_lab.url) + "".join(TENANT.format(name=name) for name in ("alice", "bob"))
    )

    first = pulled("2025-02-27", "2025-03-01T00:00:00Z")
    again = pulled("2025-02-27", "2025-03-01T00:00:00Z")

    assert first == {"new": 15, "revised": 0, "quarantined": 0}
    assert again == {"new": 0, "revised": 0, "quarantined": 0}
    alice, bob = Tenant.objects.get(slug="alice"), Tenant.objects.get(slug="bob")
    for tenant in (alice, bob):
        closed("2025-02", tenant, accept="Netdata was not there before two in the morning.")
    # 24 GiB for ten hours; 8 GiB for two hours, and 40 GiB for three on the better host.
    assert printed(invoice_of(alice, "2025-02")) == [("2025-02", "alice", "240", "3.60")]
    assert sorted(printed(invoice_of(bob, "2025-02"))) == [
        ("2025-02", "bob", "120", "2.25"),
        ("2025-02", "bob", "16", "0.24"),
    ]
    prove()
