"""Op's scripts read what the operators' pages show. Cases 4, 40 to 43 of the API."""

from __future__ import annotations

import json
from datetime import date

import pytest
from django.core.management import call_command

from billing.catalog import third_party_payers
from billing.invoicing import close_runs
from billing.models import ApprovalLimit, ApprovalMetric, CloseKind
from clusters.connectors.base import Secret
from clusters.models import Connection
from portal.core.vault import seal
from tests import builders, stories
from tests.api.door import Door, door
from tests.web.house import House

pytestmark = pytest.mark.django_db


def test_api_040_tenants_with_their_people_plans_and_accounts(house: House, op: Door) -> None:
    assert [row["slug"] for row in op.all("/tenants")] == ["speech-lab", "vision-lab"]
    assert op.reads("/tenants?slug=vision-lab")["data"] == [op.reads("/tenants/vision-lab")]
    assert op.reads("/tenants/vision-lab")["address"] == "Gate 1\n10115 Berlin"
    members = op.reads("/tenants/vision-lab/members")["data"]
    assert [(row["email"], row["role"]) for row in members] == [
        (house.ann.email, "owner"), (house.ben.email, "member"), (house.carla.email, "billing"),
    ]  # fmt: skip
    (phase,) = op.reads("/tenants/vision-lab/subscriptions")["phase"]
    assert (phase["plan"], phase["until"]) == ("vision-deal", None)
    (ownership,) = op.reads("/ownerships?tenant=vision-lab")["data"]
    assert (ownership["cluster"], ownership["account"], ownership["until"]) == ("gpu1", "vision", None)
    assert op.get("/tenants/nobody").problem == (404, "not-found")


def test_api_040_who_pays_for_whom(house: House, op: Door) -> None:
    third_party_payers.pay_for(payer=house.vision, tenant=house.speech, since=date(2026, 4, 1))
    (row,) = op.reads("/payers")["data"]
    assert (row["tenant"], row["payer"], row["since"], row["until"]) == (
        "speech-lab", "vision-lab", "2026-04-01", None,
    )  # fmt: skip
    assert op.reads("/payers?payer=speech-lab")["data"] == []


def test_api_040_a_plan_reads_as_a_file_has_it(house: House, op: Door) -> None:
    assert [row["name"] for row in op.all("/plans")] == ["speech-deal", "vision-deal"]
    assert op.reads("/plans/vision-deal")["versions"] == ["2017-01-01"]
    (version,) = op.reads("/plans/vision-deal/versions")["data"]
    (price,) = version["price"]
    assert (version["currency"], version["charges"], version["from"]) == ("USD", ["gpu"], "2017-01-01")
    assert (price["meter"], price["where"], price["unit_price"]) == ("gpu-hour", {"gpu_model": ["a100"]}, "2")
    assert version["published"] is True


def test_api_041_a_connection_is_shown_without_its_secrets(house: House, op: Door) -> None:
    secret = "do-not-show-7f3a"
    Connection.objects.create(
        cluster=house.cluster, base_url="https://slurm.example:6820", token=seal(Secret(secret).reveal())
    )
    answer = op.get("/clusters/gpu1")
    assert answer.body["connection"]["url"] == "https://slurm.example:6820"
    assert answer.body["connection"]["secrets"] == ["token"]
    assert "token" not in answer.body["connection"]
    assert secret.encode() not in answer.raw
    assert op.reads("/clusters")["data"] == [answer.body]


def test_api_041_what_was_read_what_was_refused_and_what_nobody_owns(house: House, op: Door) -> None:
    stray = builders.a_job(job_id="31", account="stray", gpus=2)
    builders.ingest(house.cluster, stray, builders.a_bad_row())
    newest = op.reads("/pulls")["data"][0]
    assert (newest["cluster"], newest["outcome"], newest["quarantined"]) == ("gpu1", "done", 1)
    (row,) = op.reads("/quarantine?state=open")["data"]
    assert row["reason"]
    assert row["raw"]
    assert op.reads("/quarantine?state=resolved")["data"] == []
    (unassigned,) = op.reads("/unassigned-usage")["data"]
    assert (unassigned["account"], unassigned["jobs"]) == ("stray", 1)
    assert unassigned["gaps"] == [{"since": None, "until": None}]


def test_api_042_overdue_invoices_are_paged_without_a_repeat(house: House, op: Door) -> None:
    first = op.reads("/receivables?limit=1")
    second = op.reads(f"/receivables?limit=1&after={first['next']}")
    assert {row["tenant"] for page in (first, second) for row in page["data"]} == {"vision-lab", "speech-lab"}
    assert second["next"] is None
    assert first["data"][0]["due"]["currency"] == "USD"
    assert op.get("/receivables?after=x").problem[0] in {400, 404}


def test_api_042_a_close_tells_of_each_tenant(house: House, op: Door) -> None:
    run = close_runs.request_run(
        month="2026-03", kind=CloseKind.PREVIEW, by="op", moment=builders.at("2026-05-02")
    )
    close_runs.perform_run(run.pk, clock=lambda: builders.at("2026-05-02"))
    (row,) = op.reads("/closes?month=2026-03")["data"]
    assert (row["kind"], row["done"], row["error"]) == ("preview", 2, "")
    assert op.reads(f"/closes/{row['id']}") == row
    results = op.reads(f"/closes/{row['id']}/results?tenant=vision-lab")["data"]
    assert [(result["tenant"], result["outcome"]) for result in results] == [("vision-lab", "already issued")]


def test_api_043_approvals_have_the_fields_of_the_command(
    house: House, op: Door, capsys: pytest.CaptureFixture[str]
) -> None:
    ApprovalLimit.objects.create(metric=ApprovalMetric.TOTAL, currency="USD", limit="1")
    builders.ingest(
        house.cluster,
        builders.a_job(job_id="40", account="vision", started="2026-04-02 10:00", ended="2026-04-02 13:00"),
        as_of="2026-05-02",
    )
    stories.close("2026-04")
    (row,) = op.reads("/approvals?state=waiting")["data"]
    call_command("approve_invoice", "--json")
    (printed,) = json.loads(capsys.readouterr().out)["pending"]
    assert {*printed} - {"currency"} <= {*row}
    assert row["total"] == {"amount": printed["total"], "currency": printed["currency"]}
    assert (row["tenant"], row["month"]) == ("vision-lab", "2026-04")


def test_api_043_the_proof_is_what_the_command_prints(
    house: House, op: Door, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("prove", "--json")
    capsys.readouterr()
    call_command("prove", "2026-03", "--json")  # the proofs that the first has kept stand
    printed = json.loads(capsys.readouterr().out)
    answer = op.reads("/proof?period=2026-03")
    assert answer["holds"] is True
    assert answer == {name: value for name, value in printed.items() if name != "source"}


def test_api_018_a_tenants_key_reads_none_of_it(house: House) -> None:
    ann = door(house.ann, house.vision)
    for path in ("/tenants", "/plans", "/clusters", "/receivables", "/proof?period=2026-03"):
        assert ann.get(path).problem == (403, "missing-scope"), path


def test_reading_takes_as_many_queries_for_many_tenants(
    house: House, op: Door, django_assert_max_num_queries: pytest.FixtureRequest
) -> None:
    for number in range(5):
        builders.a_tenant(f"lab-{number}", accounts=[(house.cluster, f"lab-{number}")])
    for path in ("/tenants", "/ownerships", "/payers", "/pulls", "/quarantine", "/approvals", "/closes"):
        with django_assert_max_num_queries(8):  # type: ignore[operator]
            op.reads(path)
