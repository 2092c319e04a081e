"""What `prove` says to Op: jobs, accounts and tenants by name, what runs up to when both saw it, and what waits."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import transaction
from django.utils.module_loading import import_string

from billing.proof import checks
from billing.rating import reratings
from clusters.models import Account, Cluster, UsageRecord
from portal.core.outbox import outbox
from portal.core.tenants import ownership
from tests.builders import a_cluster, a_job, a_plan, a_tenant, at, ingest
from tests.owner import as_owner
from tests.stories import closed, prove

pytestmark = pytest.mark.django_db

HEAD = "JobIDRaw|JobID|User|Account|Partition|State|Submit|Start|End|ElapsedRaw|AllocTRES\n"


def text_of(*words: str) -> tuple[str, int]:
    out = io.StringIO()
    try:
        call_command("prove", *words, stdout=out)
    except SystemExit as end:
        return out.getvalue(), int(end.code or 0)
    return out.getvalue(), 0


def answer_of(*words: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(text_of(*words, "--json")[0])
    return answer


def a_file(path: Path, *rows: tuple[str, str, str, int]) -> str:
    """Job id, state, end and seconds since 2026-03-02 10:00."""
    lines = [
        f"{job}|{job}|ben|vision|gpu|{state}|2026-03-02T10:00:00|2026-03-02T10:00:00|{end}|{seconds}|gres/gpu=1,gres/gpu:a100=1\n"
        for job, state, end, seconds in rows
    ]
    path.write_text(HEAD + "".join(lines))
    return str(path)


@pytest.fixture
def cluster() -> Cluster:
    return a_cluster(complete_through="2026-04-01")


def test_a_job_that_runs_is_compared_up_to_the_second_that_both_saw(cluster: Cluster, tmp_path: Path) -> None:
    early = a_file(tmp_path / "early", ("1", "RUNNING", "Unknown", 3600), ("2", "RUNNING", "Unknown", 3600))
    late = a_file(
        tmp_path / "late", ("1", "RUNNING", "Unknown", 9000), ("2", "COMPLETED", "2026-03-02T12:00:00", 7200)
    )
    call_command("import_usage", "gpu1", late)
    for file in (early, late):
        assert answer_of("--source", file)["source"]["differences"] == []
    UsageRecord.objects.filter(job_id="1").update(seen_until=int(at("2026-03-02 10:30").timestamp()))
    assert answer_of("--source", late)["source"]["differences"] == []  # the ledger follows by the hour
    assert answer_of("--source", early)["source"]["running"] == 2


def test_a_job_that_both_tell_differently_is_named_with_its_account(cluster: Cluster, tmp_path: Path) -> None:
    call_command(
        "import_usage", "gpu1", a_file(tmp_path / "one", ("1", "COMPLETED", "2026-03-02T11:00:00", 3600))
    )
    other = a_file(
        tmp_path / "two", ("1", "RUNNING", "Unknown", 7200), ("3", "COMPLETED", "2026-03-02T11:00:00", 3600)
    )
    text, code = text_of("--source", other)
    assert code == 1
    assert (
        "job 1 of vision: the source says 7200 s and 7200 GPU-seconds so far, the ledger 3600 s and 3600 GPU-seconds"
        in text
    )
    assert "job 3 of vision: the source says 3600 s and 3600 GPU-seconds, the ledger nothing" in text
    ends = a_file(tmp_path / "three", ("5", "RUNNING", "Unknown", 3600))
    call_command("import_usage", "gpu1", ends)
    ended = a_file(tmp_path / "four", ("5", "COMPLETED", "2026-03-02T12:00:00", 7200))
    assert (
        len(answer_of("--source", ended)["source"]["differences"]) == 1
    )  # the ledger does not know its end yet


def test_what_waits_to_be_rated_again_is_no_bug(cluster: Cluster) -> None:
    vision = a_tenant(plan=a_plan())
    ingest(cluster, a_job())
    assert all(callable(import_string(task)) for task in reratings.TASKS)
    account = Account.objects.get(name="vision")
    with transaction.atomic():
        ownership.assign(account=account, tenant=vision, project="", since=None, until=None)
        outbox.add("billing.tasks.rate_accounts", account_ids=[account.pk])
    text, code = text_of()
    assert code == 1
    assert "A sum does not close yet: 1 change of ownership or prices wait in the outbox" in text
    assert "that is a bug, please report it" not in text
    assert answer_of()["rerating"] == 1
    outbox.drain()
    prove()
    assert answer_of()["rerating"] == 0


@pytest.mark.parametrize(
    ("statement", "place"),
    [
        ("UPDATE clusters_usagerecord SET gpus = 4", "job 7 of gpu1/vision, tenant vision-lab, gpu: 14400"),
        ("UPDATE billing_periodtotal SET units = units + 1 WHERE resource = 'gpu'",
         "March 2026 of vision-lab, project vision of vision-lab, gpu charged: 3601 kept, 3600 rated"),
        ("UPDATE billing_daytotal SET units = units + 1",
         "tenant vision-lab on 2026-03-02, project vision of vision-lab, gpu: 3601 kept, 3600 used"),
        ("UPDATE billing_ratedjob SET project_id = 0",
         "job 7 of gpu1/vision, tenant vision-lab, project 0, which is gone"),
        ("UPDATE billing_invoiceline SET seconds_num = seconds_num + 1",
         "price gpu-hour any at 2 of plan standard: lines exceed rated usage by 1 s"),
        ("UPDATE billing_invoicetax SET tax = tax + 1", "of vision-lab at "),
    ],
)  # fmt: skip
def test_places_where_a_sum_is_open_have_names(cluster: Cluster, statement: str, place: str) -> None:
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(job_id="7"))
    closed("2026-03", vision)
    with as_owner() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for table in ("billing_invoiceline", "billing_invoicetax"):
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        cursor.execute(statement)
    places = [text for check in checks.prove().checks for text in check.broken]
    assert any(place in text for text in places), places
    assert not any("{" in text for text in places)
