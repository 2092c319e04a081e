"""What an issued invoice covers keeps its job id, user, account and shape, whatever becomes of the job afterwards."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from billing.documents import job_users
from billing.models import BilledJob, Invoice, JobUser, RatedJob, RatedUsage, UsageSeries
from billing.queries import line_usage
from billing.rating import engine
from clusters.models import Cluster, UsageRecord, UsageRevision
from portal.core.tenants.models import Corrections, Role, Tenant
from tests.builders import LONG_AGO, a_cluster, a_job, a_person, a_plan, a_tenant, ingest, own
from tests.evidence import agrees, bundle, files_of, rows_of
from tests.stories import closed, invoice_of, lines_of, printed, prove
from tests.web.house import page

pytestmark = pytest.mark.django_db

TRAIN: dict[str, Any] = {"job_id": "17", "source_key": "17@1", "user": "ada", "name": "train", "gpus": 2}
APRIL: dict[str, Any] = {"started": "2026-04-02 10:00", "ended": "2026-04-02 20:00", "job_id": "40"}


@pytest.fixture
def cluster() -> Cluster:
    return a_cluster(complete_through="2026-09-01")


@pytest.fixture
def vision(cluster: Cluster) -> Tenant:
    """In March ada's 17 held two GPUs for an hour, and ben's 18 one; the invoice is issued."""
    tenant = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(**TRAIN), a_job(job_id="18", source_key="18@1"))
    assert closed("2026-03", tenant).total.text == "6.00"  # type: ignore[union-attr]
    return tenant


def shown(invoice: Invoice) -> tuple[bytes, Any, bytes, list[Any]]:
    """All that says what stands behind it: the CSV, `explain_invoice`, the bundle, and the jobs of its pages."""
    lines = lines_of(invoice)
    out = io.StringIO()
    call_command("explain_invoice", invoice.number, "--json", stdout=out)
    explained = json.loads(out.getvalue())["lines"]
    csv = b"".join(line_usage.as_csv(invoice, lines))
    jobs = [
        replace(job, left=False) for line in lines if line.seconds_num for job in line_usage.jobs(line).jobs
    ]
    return csv, explained, bundle(invoice), jobs


def handed_over(cluster: Cluster) -> None:
    """All of March belongs to somebody else, as it turns out in April."""
    own(a_tenant("audio-lab", plan=a_plan("other")), cluster, "vision", since="2026-03-01")


def corrected(**fields: Any) -> Callable[[Cluster], None]:
    def change(cluster: Cluster) -> None:
        ingest(cluster, a_job(**TRAIN | fields))

    return change


def repriced(cluster: Cluster) -> None:
    """Every job costs something else."""
    Tenant.objects.get(slug="vision-lab").subscriptions.update(
        plan=a_plan("dearer", prices=[("gpu-hour", {}, "9", LONG_AGO)])
    )
    engine.rate_tenants(Tenant.objects.all())


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(handed_over, id="its account is handed over with effect for the past"),
        pytest.param(corrected(account="audio"), id="a later row says another account"),
        pytest.param(corrected(user="zoe"), id="another user"),
        pytest.param(corrected(gpus=8), id="another shape"),
        pytest.param(corrected(ended="2026-03-02 10:30"), id="another end"),
        pytest.param(corrected(suspended=600), id="another suspension"),
        pytest.param(corrected(job_id="17_1", name="other"), id="another description, which is no revision"),
        pytest.param(corrected(state="FAILED"), id="another state"),
    ],
)
def test_the_same_stands_behind_an_invoice_whatever_becomes_of_its_jobs(
    cluster: Cluster, vision: Tenant, tmp_path: Path, change: Callable[[Cluster], None]
) -> None:
    march = invoice_of(vision, "2026-03")
    before = shown(march)
    assert {row["job"] for row in rows_of(before[2])} == {"17", "18"}

    change(cluster)

    assert BilledJob.objects.filter(job_id="17", user="ada", gpus=2).count() == 1
    assert shown(march) == before
    agrees(before[2], tmp_path)
    prove()


def test_it_is_the_same_where_nothing_was_fixed_before_the_change(cluster: Cluster, vision: Tenant) -> None:
    """The worker was late: the account is handed over before the PDF was rendered."""
    handed_over(cluster)
    assert [
        (row["job"], row["account"], row["count"]) for row in rows_of(bundle(invoice_of(vision, "2026-03")))
    ] == [
        ("17", "vision", "2"),
        ("18", "vision", "1"),
    ]


def test_the_page_of_a_line_leads_to_no_page_of_a_job_that_is_another_tenants(
    cluster: Cluster, vision: Tenant
) -> None:
    ann = a_person("ann@vision.example", vision, Role.OWNER)
    record = RatedJob.objects.get(job_id="17").record_id
    address = f"/t/vision-lab/invoices/{invoice_of(vision, '2026-03').number}/lines/1/"
    link = f'href="/t/vision-lab/jobs/{record}/"'
    assert link in page(ann, address)
    handed_over(cluster)
    after = page(ann, address)
    assert link not in after
    assert ">17</span>" in after
    assert "ada" in after


def test_a_run_that_goes_on_after_its_invoice_stands_there_as_it_did_then(
    cluster: Cluster, tmp_path: Path
) -> None:
    tenant = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    run = {
        "job_id": "9",
        "source_key": "9@1",
        "started": "2026-03-31 20:00",
        "state": "RUNNING",
        "ended": None,
    }
    ingest(cluster, a_job(**run, seen_until="2026-04-01 02:00", suspended=3600))
    closed("2026-03", tenant)
    before = shown(invoice_of(tenant, "2026-03"))
    ingest(cluster, a_job(**run, seen_until="2026-04-01 05:00", suspended=3600))
    ingest(cluster, a_job(**run | {"ended": "2026-04-01 06:00", "state": "COMPLETED"}, suspended=7200))
    assert shown(invoice_of(tenant, "2026-03")) == before
    assert BilledJob.objects.count() == 1
    closed("2026-04", tenant)
    april = bundle(invoice_of(tenant, "2026-04"))
    agrees(april, tmp_path)
    agrees(before[2], tmp_path)
    rows = {(row["state"], row["suspended"], row["units"][0] == "-") for row in rows_of(april)}
    assert rows == {("RUNNING", "3600", True), ("COMPLETED", "7200", False)}
    prove()


def test_each_invoice_says_what_it_took_back_as_it_was_billed(
    cluster: Cluster, vision: Tenant, tmp_path: Path
) -> None:
    ingest(cluster, a_job(**APRIL), a_job(**TRAIN | {"gpus": 3, "user": "zoe"}))
    closed("2026-04", vision)
    april = invoice_of(vision, "2026-04")
    before = shown(april)
    corrected(gpus=5, user="eve")(cluster)
    ingest(
        cluster, a_job(**APRIL | {"job_id": "41", "started": "2026-05-02 10:00", "ended": "2026-05-02 20:00"})
    )
    closed("2026-05", vision)
    assert shown(april) == before
    may = bundle(invoice_of(vision, "2026-05"))
    for content, counts in ((before[2], ["-2", "3"]), (may, ["-3", "5"])):
        agrees(content, tmp_path)
        corrections = [row for row in rows_of(content) if row["job"] == "17"]
        assert [("-" if row["units"][0] == "-" else "") + row["count"] for row in corrections] == counts
    assert BilledJob.objects.filter(job_id="17").count() == 2
    prove()


def test_a_credit_note_of_a_hand_over_tells_of_the_jobs_that_it_takes_back(
    cluster: Cluster, vision: Tenant, tmp_path: Path
) -> None:
    vision.corrections = Corrections.CREDIT_NOTE
    vision.save()
    handed_over(cluster)
    closed("2026-04", vision)
    note = Invoice.objects.get(kind="credit-note")
    content = bundle(note)
    text = agrees(content, tmp_path)
    assert f"{note.number}: 1 lines, 2 stretches of jobs, total -6.00 USD" in text
    assert [(row["job"], row["account"], row["units"]) for row in rows_of(content)] == [
        ("17", "vision", "-7200"),
        ("18", "vision", "-3600"),
    ]
    audio = Tenant.objects.get(slug="audio-lab")
    closed("2026-03", audio)
    assert printed(invoice_of(audio, "2026-03")) == [("2026-03", "vision", "3", "6.00")]
    agrees(bundle(invoice_of(audio, "2026-03")), tmp_path)
    prove()


def test_a_job_that_no_document_covers_is_not_kept_beside_itself(cluster: Cluster, vision: Tenant) -> None:
    """Ten million jobs are not copied: only what changes after it was billed."""
    ingest(cluster, a_job(**APRIL, source_key="40@1"))
    ingest(cluster, a_job(**APRIL | {"gpus": 4}, source_key="40@1"))
    repriced(cluster)
    assert RatedJob.objects.count() == 3
    assert not BilledJob.objects.exists()


def test_what_the_database_keeps_it_keeps_whoever_changes_the_job(vision: Tenant) -> None:
    RatedJob.objects.filter(job_id="17").update(account="elsewhere")
    assert BilledJob.objects.get().account == "vision"


def test_names_are_erased_and_what_is_signed_stays(cluster: Cluster, vision: Tenant, tmp_path: Path) -> None:
    ingest(cluster, a_job(**TRAIN | {"gpus": 3, "user": "zoe"}), a_job(**APRIL, user="eve", account="audio"))
    own(a_tenant("audio-lab", plan=a_plan("other")), cluster, "audio")
    march = invoice_of(vision, "2026-03")
    before = files_of(bundle(march))
    assert before["people.csv"].decode().split()[1:] == [f"u{user.pk},{user.name}" for user in users(vision)]
    assert b"ada" not in before["usage.csv"] + before["invoice.json"]
    totals = proof_of(vision)

    assert job_users.erase_users(vision) == 3
    assert job_users.erase_users(vision) == 0

    content = bundle(march)
    after = files_of(content)
    assert {name for name in after if after[name] != before[name]} == {"people.csv"}
    assert after["people.csv"].decode().split("\r\n")[1:-1] == [
        f"u{user.pk},erased user {user.pk}" for user in users(vision)
    ]
    agrees(content, tmp_path)
    everything = b"".join(part for shape in shown(march) if isinstance(part := shape, bytes))
    everything += json.dumps(shown(march)[1]).encode()
    for model in (RatedJob, BilledJob, UsageRecord, UsageRevision, UsageSeries, JobUser):
        everything += str(list(model._default_manager.values_list())).encode()
    assert [name for name in ("ada", "zoe", "ben", "eve") if f"'{name}'".encode() in everything] == ["eve"]
    engine.rate_tenants([vision])
    assert proof_of(vision) == totals
    prove()


def users(tenant: Tenant) -> list[JobUser]:
    return list(JobUser.objects.filter(tenant=tenant).order_by("pk"))


def proof_of(tenant: Tenant) -> list[Any]:
    return list(RatedUsage.objects.filter(tenant_id=tenant.pk).order_by("pk").values_list("pk", "units"))
