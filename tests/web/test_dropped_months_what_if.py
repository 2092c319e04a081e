"""Op tries a plan on a month that is dropped, and Ann looks at another one: both are told what they were before."""

from __future__ import annotations

import io
import re
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client

from billing.catalog.public_plans import set_offer
from billing.models import Plan, RatedJob, SealedFile
from billing.sealed_months import drop, seal
from clusters import absent_records
from clusters.absent_records import NotShownError, RowsInFilesError
from clusters.models import Cluster
from portal.core.tenants.models import Ownership, Tenant, User
from portal.core.tenants.scope import acting_scope, reading_scope, tenant_scope
from portal.ops.cli import RefusedError
from portal.web import plan_effect
from tests.api.door import door
from tests.builders import LONG_AGO, a_cluster, a_job, a_person, a_plan, an_operator, at, ingest
from tests.hostile.filters import filters_removed
from tests.scenarios.real import run
from tests.scenarios.test_energy import KWH, an_energy_meter
from tests.sealed_march import MARCH, NOW, enter_march, sealed
from tests.stories import close
from tests.web.clock import stand_at
from tests.web.house import signed_in
from tests.web.previewing import computed
from tests.web.test_dropped_months_pages import UNREAD, content_of, dropped, refusal
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db(transaction=True)  # what is shown of files goes as a transaction ends

DRAFT = """
[[plan]]
name = "draft"
currency = "USD"
charges = ["gpu", "cpu", "memory", "energy"]
from = 2030-01-01
allowance = [{ name = "Included hours", hours = 3 }]
fee = [{ name = "Platform fee", amount = "50.00" }]
[[plan.price]]
meter = "gpu-hour"
where = { gpu_model = "h100", qos = "low", priority_class = "batch" }
unit_price = "0.97"
[[plan.price]]
meter = "gpu-hour"
where = { gpu_model = "a100" }
model = "graduated"
tiers = [{ up_to = 10, unit_price = "3.00" }, { unit_price = "2.50" }]
allowance = "Included hours"
[[plan.price]]
meter = "cpu-core-hour"
where = { queue = "night" }
unit_price = "0.031"
[[plan.price]]
meter = "memory-gib-hour"
unit_price = "0.0029"
[[plan.price]]
meter = "energy"
unit_price = "0.30"
"""
CHANGE = "/t/vision-lab/plan/change/?plan=starter"


@pytest.fixture(autouse=True)
def directory(settings: Any, tmp_path: Path) -> Path:
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"
    return tmp_path / "sealed"


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    path = tmp_path / "draft.toml"
    path.write_text(DRAFT)
    return path


@pytest.fixture
def cluster() -> Cluster:
    """Jobs of all kinds in March, which is sealed: across its end, of parts of GPUs, of none, of two tenants."""
    cluster = a_cluster(complete_through="2026-04-02", energy_meter=an_energy_meter())
    enter_march()
    vision, speech = (Tenant.objects.get(slug=f"{name}-lab") for name in ("vision", "speech"))
    robots = cluster.accounts.create(name="robots")
    for tenant, since, until in ((vision, None, "2026-03-16"), (speech, "2026-03-16", None)):
        Ownership.objects.create(
            account=robots,
            tenant=tenant,
            project=tenant.projects.get(),
            since=at(since) if since else None,
            until=at(until) if until else None,
        )
    times = {"started": "2026-03-15 20:00:07", "ended": "2026-03-16 07:11:13"}
    ingest(
        cluster,
        a_job(account="robots", gpus=3, **times),  # which both tenants held
        a_job(gpu_model="h100", qos="low", priority_class="batch", gpus=2, suspended=1111, **times),
        a_job(gpu_model="h100", qos="low", **times),
        a_job(gpus=5, gpu_share=(1, 7), **times),
        a_job(gpus=0, gpu_model="", cpu_milli=12_333, memory_mib=70_001, queue="night", **times),
        a_job(energy=7 * KWH + 1, account="speech", **times),
        a_job(started="2026-03-31 21:00", ended="2026-05-02 03:11", gpus=2),
        a_job(started="2026-04-05 10:00", ended="2026-04-05 12:00"),
        as_of="2026-06-02",
    )
    close("2026-03", on="2026-06-03")
    close("2026-04", on="2026-06-03")
    close("2026-05", on="2026-06-03")
    sealed()
    seal.seal_month(month=date(2026, 4, 1), moment=NOW, quiet_months=12)
    return cluster


def simulated(draft: Path, since: str = "2026-03", until: str = "2026-05") -> dict[str, Any]:
    return run("simulate_plan", draft, "--from", since, "--to", until)


def test_a_plan_comes_on_a_dropped_month_to_what_it_did_before(cluster: Cluster, draft: Path) -> None:
    spans = [("2026-03", "2026-05"), ("2026-03", "2026-03"), ("2026-04", "2026-04")]
    before = [simulated(draft, *span) for span in spans]
    labels = {line["line"] for line in before[0]["tenants"][1]["lines"] if line["simulated"]}
    assert {"Platform fee"} < labels
    assert any("CPU" in label for label in labels), labels
    assert before[0]["tenants"][1]["unpriced"]
    assert "energy" in str(before[0]["tenants"][0]["lines"]).lower()
    assert not RatedJob.objects.filter(meter="energy", cost_units__gt=0).exists()
    dropped()
    assert [simulated(draft, *span) for span in spans] == before
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_class WHERE relname LIKE 'shown_%'")
        assert cursor.fetchone() == (0,)


def test_a_plan_is_tried_on_late_records_and_files_together(cluster: Cluster, draft: Path) -> None:
    dropped()
    longer = a_job(job_id="1", user="ben", gpus=4, started="2026-03-02 10:00", ended="2026-03-02 17:30")
    ingest(cluster, longer, a_job(job_id="new", started="2026-03-09", ended="2026-03-10"), as_of="2026-06-02")
    together = simulated(draft)
    drop.load_back(month=MARCH)
    assert simulated(draft) == together


def test_files_that_cannot_be_read_are_named_and_the_plan_is_tried_on_other_months(
    cluster: Cluster, draft: Path, directory: Path
) -> None:
    june = simulated(draft, "2026-06", "2026-06")
    dropped()
    for file in directory.glob("2026-03/tenant-*/jobs.parquet"):
        file.write_bytes(file.read_bytes()[:-1])
    for month in ("2026-03", "2026-05"):  # into which a job of March reaches
        with pytest.raises(RefusedError, match=re.escape(UNREAD)):
            simulated(draft, month, month)
    assert not Plan.objects.filter(name__startswith="trial").exists()
    assert simulated(draft, "2026-06", "2026-06") == june


def test_nothing_of_one_tenant_is_there_in_the_turn_of_the_next(cluster: Cluster) -> None:
    vision, speech = (Tenant.objects.get(slug=f"{name}-lab") for name in ("vision", "speech"))
    own = {
        tenant: {
            str(job) for job in RatedJob.objects.filter(tenant=tenant).values_list("record_id", flat=True)
        }
        for tenant in (vision, speech)
    }
    dropped()

    def records(tenant: Tenant) -> set[str]:
        rows = io.BytesIO()
        with filters_removed(), reading_scope(tenant):
            absent_records.write_usage([MARCH], rows, since=0, until=2**40, most=None)
            with connection.cursor() as cursor:
                cursor.execute("SELECT count(*) FROM pg_class WHERE relname LIKE 'shown_%'")
                assert cursor.fetchone() == (0,)
        return {line.split("\t")[0] for line in rows.getvalue().decode().splitlines()}

    with transaction.atomic():
        told = {tenant: records(tenant) for tenant in (vision, speech, vision)}
    assert {pk for pk in own[vision] & own[speech] if pk in told[vision]}  # that which both held
    for tenant in (vision, speech):
        assert told[tenant]
        assert told[tenant] <= own[tenant]
    with acting_scope(speech), transaction.atomic():
        assert records(speech) == told[speech]
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_user, current_setting('app.tenant_id')")
            assert cursor.fetchone() == ("clustertab_agent", str(speech.pk))


def test_usage_is_read_from_files_in_a_tenants_scope_alone(cluster: Cluster) -> None:
    dropped()
    vision = Tenant.objects.get(slug="vision-lab")

    def read(*, most: int | None = None) -> None:
        absent_records.write_usage([MARCH], io.BytesIO(), since=0, until=2**40, most=most)

    with transaction.atomic(), pytest.raises(RowsInFilesError) as refused:
        read()
    assert isinstance(refused.value.__cause__, NotShownError)
    with acting_scope(vision), transaction.atomic(), pytest.raises(RowsInFilesError):
        read()
    with tenant_scope(vision), pytest.raises(RowsInFilesError):
        read(most=1)


def effect(op: Client, **form: str) -> str:
    form = {"text": DRAFT, "act": "try", "since": "2026-03", **form}
    answer = computed(op, op.post("/operator/plan-editor/", form))
    assert answer.status_code == 200
    return re.sub(r"As of .*? UTC\.", "", words(answer.text))


def test_the_page_shows_the_effect_on_a_dropped_month_or_says_that_it_is_too_much(
    cluster: Cluster, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    op = signed_in(an_operator())
    before = effect(op)
    assert "Effect on March 2026" in before
    dropped()
    assert effect(op) == before
    monkeypatch.setattr(plan_effect, "OWNERS", 1)
    assert "jobs of 2 tenants are only in the files of sealed months" in effect(op)
    assert "Effect on March 2026" in effect(op, tenants="speech-lab")
    monkeypatch.setattr(plan_effect, "OWNERS", 20)
    SealedFile.objects.filter(kind="jobs").update(rows=plan_effect.IN_FILES)
    assert "A preview reads 50,000 jobs of 20 tenants from files" in effect(op)
    SealedFile.objects.filter(kind="jobs").update(rows=1)
    for file in directory.glob("2026-03/tenant-*/jobs.parquet"):
        file.unlink()
    assert UNREAD in effect(op)


@pytest.fixture
def ann(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> User:
    """Who may choose another public plan in April, when her last period was March."""
    for name, price in (("starter", "1.50"), ("growth", "1.00")):
        set_offer(plan=a_plan(name, "USD", prices=[("gpu-hour", {}, price, LONG_AGO)]), public=True)
    set_offer(plan=Plan.objects.get(name="standard"), public=True)
    set_offer(plan=Plan.objects.get(name="speech"), public=True)
    stand_at(monkeypatch, "2026-04-20 12:00")
    stand_at(monkeypatch, "2026-04-20 12:00", of="portal.api.views")
    return a_person(tenant=Tenant.objects.get(slug="vision-lab"))


def test_ann_is_told_what_a_dropped_month_would_have_cost_on_another_plan(ann: User) -> None:
    vision = Tenant.objects.get(slug="vision-lab")
    api = door(ann, vision, moment=at("2026-04-01"))
    paths = "/plan-choices/starter", "/plan-choices/growth"
    before = content_of(ann, CHANGE), [api.reads(path) for path in paths]
    assert b"Your last period, March 2026" in before[0]
    assert Decimal(before[1][0]["last_period"]["offered_cost"][0]["amount"]) > 0
    dropped()
    assert (content_of(ann, CHANGE), [api.reads(path) for path in paths]) == before
    assert run("change_plan", "vision-lab", "starter", "--dry-run")["last_period"] is not None


def test_ann_is_told_that_files_cannot_be_read_for_it(ann: User, directory: Path) -> None:
    dropped()
    for file in directory.glob("2026-03/tenant-*/jobs.parquet"):
        file.unlink()
    assert UNREAD in refusal(ann, CHANGE)
    api = door(ann, Tenant.objects.get(slug="vision-lab"), moment=at("2026-04-01"))
    assert api.get("/plan-choices/starter").status == 409


def test_eve_is_told_of_her_own_usage_alone_with_every_filter_forgotten(ann: User) -> None:
    eve = a_person("eve@speech.example", Tenant.objects.get(slug="speech-lab"))
    path = CHANGE.replace("vision-lab", "speech-lab")
    with filters_removed():
        before = content_of(eve, path)
    dropped()
    with filters_removed() as removed:
        assert content_of(eve, path) == before
    assert removed.count > 3
    assert signed_in(eve).get(CHANGE).status_code == 404


def test_months_that_are_not_dropped_cost_one_query_more_and_no_file(
    ann: User, directory: Path, draft: Path
) -> None:
    for file in directory.glob("2026-03/*/*.parquet"):
        file.unlink()  # it is sealed, and its rows are in their tables
    assert simulated(draft)["tenants"]
    assert b"Your last period, March 2026" in content_of(ann, CHANGE)
