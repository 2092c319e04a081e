"""Pages and the API say in a sentence which rows stand in files: never a wrong number, never less without a word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from billing.models import Invoice, RatedJob
from billing.sealed_months import drop
from clusters.models import Cluster
from portal.core.identifiers import write
from portal.core.tenants.models import Tenant, User
from tests.api.door import door
from tests.builders import a_job, a_person, an_operator, ingest
from tests.sealed_march import MARCH, NOW, enter_march, sealed
from tests.stories import close
from tests.web.house import page, signed_in

pytestmark = pytest.mark.django_db

LIST = "/t/vision-lab/jobs/"
SENTENCE = "The rows of 2026-03 are only in the files of sealed months."
LEFT_OUT = "Jobs of 2026-03 are not listed: they are only in the files of sealed months."


@pytest.fixture(autouse=True)
def directory(settings: Any, tmp_path: Path) -> None:
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"


@pytest.fixture
def record() -> int:
    """A job of March, which is dropped; of May there are jobs in their tables."""
    enter_march()
    may = a_job(job_id="9", user="ben", started="2026-05-05 10:00", ended="2026-05-05 11:00")
    ingest(Cluster.objects.get(), may, as_of="2026-05-06")
    close("2026-04", on="2026-05-03")
    number = int(RatedJob.objects.get(job_id="1").record_id)
    sealed()
    drop.drop_month(month=MARCH, moment=NOW, all_processes_replaced=True)
    return number


@pytest.fixture
def ann(record: int) -> User:
    return a_person(tenant=Tenant.objects.get(slug="vision-lab"))


def refusal(person: User, path: str) -> str:
    response = signed_in(person).get(path)
    assert response.status_code == 409, (path, response.status_code)
    return response.content.decode()


def test_a_list_of_all_jobs_says_which_are_not_in_it(ann: User) -> None:
    text = page(ann, LIST)
    assert LEFT_OUT in text
    assert ">9</a>" in text
    assert LEFT_OUT not in page(ann, LIST + "?from=2026-05-01&through=2026-05-31")


def test_what_needs_rows_of_a_dropped_month_is_a_sentence(ann: User, record: int) -> None:
    number = Invoice.objects.get(tenant__slug="vision-lab", period_start__month=3).number
    for path in (
        f"{LIST}{record}/",
        f"{LIST}?from=2026-03-01&through=2026-03-31",
        f"{LIST}csv",
        f"/t/vision-lab/invoices/{number}/lines/1/csv",
        "/t/vision-lab/exports/focus?period=2026-03",
        "/t/vision-lab/exports/focus?period=2026-03&format=parquet",
    ):
        assert SENTENCE in refusal(ann, path)


def test_the_export_of_another_month_is_whole(ann: User) -> None:
    response = signed_in(ann).get("/t/vision-lab/exports/focus?period=2026-05")
    assert b"".join(response.streaming_content).startswith(b"BilledCost,")  # type: ignore[attr-defined]


def test_the_overview_of_its_period_has_every_sum_and_says_what_it_does_not_list(ann: User) -> None:
    text = page(ann, "/t/vision-lab/?period=2026-03-01")
    assert LEFT_OUT in text
    assert "$20.00" in text or "20.00" in text


def test_nobody_learns_by_a_number_whose_job_it_was(record: int) -> None:
    eve = a_person("eve@speech.example", Tenant.objects.get(slug="speech-lab"))
    assert SENTENCE in refusal(eve, f"/t/speech-lab/jobs/{record}/")
    assert SENTENCE in refusal(eve, f"/t/speech-lab/jobs/{record + 77}/")
    assert signed_in(eve).get(f"{LIST}{record}/").status_code == 404


def test_operators_see_that_unassigned_usage_is_not_all(record: int) -> None:
    assert "Usage of 2026-03 is not listed" in page(an_operator(), "/operator/unassigned/")


def test_programs_are_told_the_same(ann: User, record: int) -> None:
    api = door(ann, Tenant.objects.get(slug="vision-lab"))
    answer = api.get("/jobs")
    assert [job["job_id"] for job in answer.body["data"]] == ["9"]
    assert answer.headers["X-Months-In-Files"] == "2026-03"
    assert "X-Months-In-Files" not in api.get("/jobs?from=2026-05-01T00:00:00Z").headers
    refused = api.get("/jobs?from=2026-03-01T00:00:00Z")
    assert (refused.status, refused.body["code"]) == (409, "rows-in-files")
    assert SENTENCE in refused.body["detail"]
    assert api.get(f"/jobs/{write('job', record)}").status == 409
