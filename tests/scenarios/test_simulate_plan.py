"""Op tries a plan on months that have been: what was in force comes to what was billed, to the cent."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.models import Invoice, InvoiceState, Plan, RatedUsage, Subscription
from billing.simulation import what_if
from clusters.models import Cluster
from portal.config_file import drafts
from portal.config_file.schema import parse
from portal.core.tenants.models import Tenant
from portal.ops.cli import BadInputError
from tests import builders, stories
from tests.scenarios.real import run

MARCH, MAY = (2026, 3), (2026, 5)

STANDARD = """
[[plan]]
name = "standard"
currency = "USD"
charges = ["gpu", "cpu"]
from = 2026-01-01
allowance = [{ name = "Included hours", hours = 25 }]
fee = [{ name = "Platform fee", amount = "50.00" }, { name = "Support", amount = "10.00", in_advance = true }]
commitment = { amount = "120.00", overage_factor = "1.5" }
discount = [{ name = "Spring", percent = "12.5", from = 2026-04-11, until = 2026-05-03 }]
[[plan.price]]
meter = "gpu-hour"
where = { gpu_model = "a100" }
model = "graduated"
tiers = [{ up_to = 10, unit_price = "3.00" }, { unit_price = "2.50" }]
allowance = "Included hours"
[[plan.price]]
meter = "gpu-hour"
where = { gpu_model = "h100" }
unit_price = "4.00"
allowance = "Included hours"
[[plan.price]]
meter = "gpu-hour"
where = { gpu_model = "h100", qos = "low" }
unit_price = "1.00"
[[plan.price]]
meter = "cpu-core-hour"
hours = [{ days = "mon-fri", from = "22:00", to = "06:00" }, { days = "sun" }]
unit_price = "0.017"
[[plan.price]]
meter = "cpu-core-hour"
unit_price = "0.031"
until = 2026-04-16
[[plan.price]]
meter = "cpu-core-hour"
unit_price = "0.029"
from = 2026-04-16
"""

SITE = """
[[cluster]]
name = "gpu1"
kind = "import"
timezone = "UTC"
[[tenant]]
slug = "vision-lab"
name = "Vision Lab"
timezone = "Europe/Berlin"
plan = "standard"
plan_from = 2026-03-10
accounts = [{ cluster = "gpu1", account = "vision" }, { cluster = "gpu1", account = "robots" }]
[[tenant]]
slug = "speech-lab"
name = "Speech Lab"
plan = "standard"
plan_from = 2026-01-01
anchor_day = 15
accounts = [{ cluster = "gpu1", account = "speech" }]
"""

FLAT = """
[[plan]]
name = "flat"
currency = "USD"
charges = ["gpu"]
from = 2027-01-01
[[plan.price]]
meter = "gpu-hour"
unit_price = "2.00"
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    path = tmp_path / "site.toml"
    path.write_text(STANDARD + SITE)
    return path


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    path = tmp_path / "flat.toml"
    path.write_text(FLAT)
    return path


def three_months(site: Path) -> None:
    """Jobs of all kinds, some across the borders of days, months and prices, some suspended; all closed."""
    call_command("apply", str(site), stdout=io.StringIO())
    cluster = Cluster.objects.get()
    shapes: list[dict[str, Any]] = [
        {"gpus": 2, "cpu_milli": 12_500},
        {"gpus": 3, "gpu_model": "h100", "cpu_milli": 333},
        {"gpus": 1, "gpu_model": "h100", "qos": "low", "account": "robots", "suspended": 1111},
        {"gpus": 5, "gpu_share": (1, 7), "account": "robots"},
        {"gpus": 4, "account": "speech", "cpu_milli": 64_000, "suspended": 7},
    ]
    builders.ingest(
        cluster,
        *(
            builders.a_job(**shape, started=f"2026-0{month}-{day} 21:17:0{n}", ended=f"{end} 03:11:1{n}")
            for n, shape in enumerate(shapes)
            for month, day, end in (
                (3, "12", "2026-03-13"),
                (3, "31", "2026-04-01"),
                (4, "15", "2026-04-16"),
                (5, "02", "2026-05-03"),
            )
        ),
        as_of="2026-06-20",
    )
    for month in ("2026-03", "2026-04", "2026-05"):
        outcomes = stories.close(month, on="2026-06-21", accept="the cluster was read at once")
        assert {outcome.outcome.value for outcome in outcomes} <= {"issued", "blocked"}, outcomes


def billed() -> dict[tuple[str, str], int]:
    """By tenant and period start what all issued lines of the three months state for it."""
    amounts: dict[tuple[str, str], int] = {}
    for invoice in Invoice.objects.filter(state=InvoiceState.ISSUED).prefetch_related(
        "lines__service_period"
    ):
        for line in invoice.lines.all():
            key = (invoice.tenant.slug, f"{line.service_period.start:%Y-%m-%d %H}")
            amounts[key] = amounts.get(key, 0) + line.amount
    return amounts


@pytest.mark.django_db
def test_the_plan_that_was_in_force_comes_to_what_was_billed_line_by_line(site: Path) -> None:
    three_months(site)
    result = run("simulate_plan", site, "--from", "2026-03", "--to", "2026-05")
    assert [tenant["tenant"] for tenant in result["tenants"]] == ["speech-lab", "vision-lab"]
    for tenant in result["tenants"]:
        assert tenant["lines"], tenant
        for line in tenant["lines"]:
            assert line["now"] == line["simulated"], (tenant["tenant"], line)
    invoiced = billed()
    for tenant in result["tenants"]:
        for start in {line["period_start"] for line in tenant["lines"]}:
            lines = [line for line in tenant["lines"] if line["period_start"] == start]
            key = (tenant["tenant"], start[:13].replace("T", " "))
            if key in invoiced:
                assert sum(round(float(line["simulated"]) * 100) for line in lines) == invoiced[key]
    assert invoiced


@pytest.mark.django_db
def test_a_flat_price_is_tried_before_anybody_is_on_it(site: Path, flat: Path) -> None:
    three_months(site)
    before = (Plan.objects.count(), Subscription.objects.count(), RatedUsage.objects.count())
    result = run("simulate_plan", flat, "--from", "2026-04", "--tenant", "vision-lab")
    (lab,) = result["tenants"]
    # 1 April, 00:00 in Berlin, is 22:00 UTC before: of the jobs that end on the 1st 5 h 11 min and 10 to 13 s,
    # and all of those of the 15th, 5 h 54 min and 10 s: the gpus are 2, 3, 1 (suspended) and 5/7.
    assert lab["now"]["USD"] != lab["simulated"]["USD"]
    assert [line["line"] for line in lab["lines"] if line["simulated"] is not None] == [
        "robots: GPU time",
        "vision: GPU time",
    ]
    vision = next(line for line in lab["lines"] if line["line"] == "vision: GPU time")
    # 5 GPUs: 2 × (18,670 + 21,250) s + 3 × (18,671 + 21,250) s = 199,603 GPU-seconds at 2.00 an hour
    assert vision["simulated"] == "110.89"
    assert vision["now"] is None
    assert (Plan.objects.count(), Subscription.objects.count(), RatedUsage.objects.count()) == before


@pytest.mark.django_db
def test_what_the_draft_has_no_price_for_is_said(site: Path, tmp_path: Path) -> None:
    three_months(site)
    file = tmp_path / "gap.toml"
    file.write_text(FLAT + 'where = { gpu_model = "a100" }\n')
    out = io.StringIO()
    call_command("simulate_plan", str(file), "--from", "2026-04", "--tenant", "vision-lab", stdout=out)
    assert "No price of the plan covers" in out.getvalue()
    assert "GPU-hours (h100): they are in no sum." in out.getvalue()
    assert "Before tax; nothing was changed." in out.getvalue()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--from", "2026-13"], "2026-13"),
        (["--from", "2026-03", "--to", "2026-01"], "the earlier one first"),
        (["--from", "2026-03", "--plan", "gold"], "The file has no plan 'gold'; it has: flat."),
        (["--from", "2026-03", "--tenant", "nobody"], "There is no tenant 'nobody'."),
    ],
)
def test_what_cannot_be_meant_is_refused_in_a_sentence(flat: Path, options: list[str], sentence: str) -> None:
    with pytest.raises(BadInputError, match=sentence.replace("(", r"\(")):
        call_command("simulate_plan", str(flat), *options, stdout=io.StringIO())


@pytest.mark.django_db
def test_a_draft_is_refused_as_apply_refuses_it(site: Path, tmp_path: Path) -> None:
    three_months(site)
    file = tmp_path / "twice.toml"
    file.write_text(FLAT + '[[plan.price]]\nmeter = "gpu-hour"\nunit_price = "3.00"\nfrom = 2027-02-01\n')
    with pytest.raises(BadInputError) as refused:
        call_command("simulate_plan", str(file), "--from", "2026-03", stdout=io.StringIO())
    assert "overlaps" in str(refused.value)
    assert "trial~" not in str(refused.value)


@pytest.fixture
def second_connection(database_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database_url, autocommit=True) as other:
        yield other


@pytest.mark.django_db(transaction=True)
def test_usage_is_taken_in_and_rated_while_a_plan_is_tried(
    site: Path, flat: Path, second_connection: psycopg.Connection
) -> None:
    three_months(site)
    file = parse(flat.read_text())
    entries = drafts.start_by(drafts.draft_of(file, "flat"), date(2026, 3, 1))
    free = []

    def look(_: int) -> None:
        """What an import locks, taken without waiting."""
        with second_connection.transaction():
            second_connection.execute("SELECT id FROM clusters_account FOR SHARE NOWAIT")
            second_connection.execute("SELECT id FROM tenants_tenant FOR NO KEY UPDATE NOWAIT")
            second_connection.execute("SELECT id FROM tenants_project FOR KEY SHARE NOWAIT")
            second_connection.execute(
                "LOCK TABLE billing_ratedusage, billing_periodtotal IN ROW EXCLUSIVE MODE NOWAIT"
            )
        free.append(True)

    what_if.simulate_plan(
        tenants=Tenant.objects.order_by("slug"),
        months=(MARCH, MAY),
        draft=lambda name: drafts.write(entries, name),
        progress=look,
    )
    assert free
    assert not connection.in_atomic_block
    assert not Plan.objects.filter(name__startswith="trial").exists()


@pytest.mark.django_db
def test_cuts_under_allowances_are_found_by_an_index_that_the_planner_knows(site: Path) -> None:
    three_months(site)
    with CaptureQueriesContext(connection) as queries:
        run("simulate_plan", site, "--from", "2026-03", "--to", "2026-03")
    statements = [query["sql"] or "" for query in queries.captured_queries]  # of some Django says none
    counted = statements.index("ANALYZE suppose_cut")
    assert any(
        "CREATE INDEX IF NOT EXISTS suppose_cut_of_price" in statement for statement in statements[:counted]
    )
    assert any("FROM suppose_cut" in statement for statement in statements[counted:])
