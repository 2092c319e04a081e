"""Op's page of sealed months: what may be sealed, in words and figures; asking first; who asked, and how far it is."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.models import SealedMonth, SealKind, SealRun
from billing.proof import checks
from billing.sealed_months import drop, file_checks, seal_runs
from clusters.models import Cluster, UsageRecord
from portal.core.audit.models import AuditEntry
from portal.core.tenants.models import User
from portal.ops.metrics.families import families
from tests import builders
from tests.builders import at
from tests.sealed_march import MARCH, NOW, enter_march, rows, sealed
from tests.stories import close
from tests.web.clock import stand_at
from tests.web.house import page, signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db
PAGE = "/operator/sealed-months/"


@pytest.fixture(autouse=True)
def directory(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"
    stand_at(monkeypatch, "2031-06-01 02:00", of="portal.web.sealed_months")
    return tmp_path / "sealed"


@pytest.fixture
def op() -> User:
    return builders.an_operator("op@lab.example")


@pytest.fixture
def march() -> None:
    enter_march()
    checks.prove(moment=NOW)


def send(op: User, **fields: str) -> str:
    return words(signed_in(op).post(PAGE, fields, follow=True).content.decode())


def enter_april() -> None:
    """March, and that what its last job used in April is billed."""
    enter_march()
    builders.ingest(Cluster.objects.get(), as_of="2026-05-02")
    close("2026-04", on="2026-05-03")


def work(moment: datetime = NOW) -> None:
    seal_runs.perform_next(clock=lambda: moment)


def test_a_month_is_sealed_once_op_has_read_what_that_does_and_a_worker_has_done_it(
    march: None, op: User
) -> None:
    assert "March 2026 Ready 4" in words(page(op, PAGE))
    asks = send(op, act="seal", month="2026-03")
    assert (
        "Seal March 2026? 4 usage records are written to files, read back and compared with the ledger"
        in asks
    )
    assert not SealRun.objects.exists()
    assert "Sealing March 2026: waiting for a worker." in send(
        op, act="seal", month="2026-03", confirmed="yes"
    )
    assert 'hx-trigger="every 3s"' in page(op, PAGE)
    assert send(op, act="seal", month="2026-03", confirmed="yes")
    assert SealRun.objects.count() == 1
    work()
    text = words(page(op, PAGE))
    size = sum(SealedMonth.objects.get().files.values_list("bytes", flat=True))
    assert (
        f"March 2026 Sealed 4 6 {size / 1000:.1f} kB {size / 4:,.0f} B 1 Jun 2031, 02:00 op@lab.example"
        in text
    )
    assert 'value="seal"' not in page(op, PAGE)
    assert "Seal, 2026-03 Done op@lab.example 1 Jun 2031, 02:00" in text
    assert "every 3s" not in page(op, PAGE)
    assert {entry.who for entry in AuditEntry.objects.of_table(SealedMonth)} == {"op@lab.example"}


def test_a_worker_at_it_shows_and_htmx_gets_the_part_alone(march: None, op: User) -> None:
    run = seal_runs.request_run(month=MARCH, kind=SealKind.SEAL, by="op@lab.example", moment=NOW)
    SealRun.objects.filter(pk=run.pk).update(started_at=NOW)
    assert 'value="seal"' not in page(op, PAGE)  # of a month that is under way
    browser = signed_in(op)
    part = browser.get(f"{PAGE}?run={run.pk}", headers={"HX-Request": "true"}).content.decode()
    assert "Sealing March 2026 since 1 Jun 2031, 02:00." in words(part)
    assert "<html" not in part
    work()
    ended = browser.get(f"{PAGE}?run={run.pk}", headers={"HX-Request": "true"})
    assert (ended.status_code, ended.headers["HX-Refresh"]) == (204, "true")


def test_all_that_are_ready_are_sealed_by_one_button(march: None, op: User) -> None:
    assert "Seal 1 ready month" in words(page(op, PAGE))
    asks = send(op, act="ready")
    assert "Seal 1 month? March 2026: 4 usage records." in asks
    assert "Requested for 1 month." in send(op, act="ready", confirmed="yes")
    work()
    assert SealedMonth.objects.get().month == MARCH


def test_the_page_asks_no_more_of_six_months_than_of_one(march: None, op: User, directory: Path) -> None:
    client = signed_in(op)

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert "March 2026" in client.get(PAGE).content.decode()
        return len(captured)

    before = queries()
    jobs = [
        builders.a_job(started=f"2026-{number:02}-10 10:00", ended=f"2026-{number:02}-10 12:00")
        for number in range(4, 9)
    ]
    builders.ingest(Cluster.objects.get(), *jobs, as_of="2026-09-01")
    text = words(page(op, PAGE))
    for month in ("April", "May", "June", "July", "August"):
        assert f"{month} 2026" in text
    assert queries() == before <= 20
    sealed()
    assert queries() <= 20


def test_unsealing_says_what_it_reads_and_deletes(march: None, op: User, directory: Path) -> None:
    sealed()
    asks = send(op, act="unseal", month="2026-03")
    assert "Unseal March 2026? 6 files of" in asks
    assert "the files are deleted" in asks
    assert SealedMonth.objects.exists()
    send(op, act="unseal", month="2026-03", confirmed="yes")
    work()
    assert not SealedMonth.objects.exists()
    assert "March 2026 Ready 4" in words(page(op, PAGE))


def test_what_stands_in_the_way_is_said_in_words_and_cannot_be_asked_for(
    march: None, op: User, settings: Any
) -> None:
    settings.CLUSTERTAB_SEAL_AFTER_MONTHS = 18
    text = words(page(op, PAGE))
    assert (
        "March 2026 Not yet It was changed last on 2030-01-01: it may be sealed 18 months after that." in text
    )
    assert 'value="seal"' not in page(op, PAGE)
    refused = send(op, act="seal", month="2026-03", confirmed="yes")
    assert refused.count("It was changed last on 2030-01-01") == 2  # as a message, too
    assert not SealRun.objects.exists()
    assert "There is nothing" not in send(op, act="unseal", month="2026-03", confirmed="yes")
    assert not SealRun.objects.exists()


def test_a_month_that_was_not_proved_yet_may_be_sealed_which_proves_it(op: User) -> None:
    enter_march()
    assert "March 2026 Not proved" in words(page(op, PAGE))
    assert "Seal March 2026? All usage records are written to files" in send(op, act="seal", month="2026-03")
    send(op, act="seal", month="2026-03", confirmed="yes")
    work()
    assert "March 2026 Sealed 4" in words(page(op, PAGE))


def test_a_file_that_the_night_missed_is_named_until_it_is_brought_back_and_checked(
    march: None, op: User, directory: Path
) -> None:
    sealed()
    path = directory / "2026-03" / "records.parquet"
    content = path.read_bytes()
    path.unlink()
    file_checks.check_at_night(moment=at("2031-06-02 00:10"))
    text = words(page(op, PAGE))
    assert "March 2026 Files damaged 2026-03/records.parquet is missing" in text
    assert "files checked 2 Jun 2031, 00:10" in text
    assert "Files of 1 month are missing or changed: bring them back" in words(page(op, "/operator/"))
    (metric,) = [one for one in families(moment=NOW, most=9) if one.name == "clustertab_sealed_files_damaged"]
    assert [(one.labels, one.value) for one in metric.samples] == [({"month": "2026-03"}, 1)]
    send(op, act="unseal", month="2026-03", confirmed="yes")
    work()
    assert (
        "Unseal, 2026-03 Failed 2026-03/records.parquet is missing: bring that file back from a copy"
        in words(page(op, PAGE))
    )
    path.write_bytes(content)
    send(op, act="check", month="2026-03")
    work()
    assert "March 2026 Sealed 4" in words(page(op, PAGE))


def test_without_a_directory_the_page_names_the_setting_and_offers_nothing(
    march: None, op: User, settings: Any
) -> None:
    settings.CLUSTERTAB_SEALED_MONTHS = None
    html = page(op, PAGE)
    asks = (
        "To seal months, set SEALED_MONTHS_DIRECTORY to a directory that lasts, is backed up, and is reached"
    )
    assert asks in words(html)
    assert 'value="seal"' not in html
    assert 'value="ready"' not in html
    assert "SEALED_MONTHS_DIRECTORY is not set" in send(op, act="ready", confirmed="yes")


def test_before_there_is_usage_the_page_says_so_and_nonsense_is_404(op: User) -> None:
    assert "No usage yet" in words(page(op, PAGE))
    for fields in (
        {"act": "erase"},
        {"act": "drop"},
        {"act": "seal", "month": "2026-13"},
        {"act": "seal", "month": ""},
    ):
        assert signed_in(op).post(PAGE, fields).status_code == 404
    assert "2026-02 has no usage records" in send(op, act="seal", month="2026-02", confirmed="yes")


def test_op_drops_the_rows_of_a_month_once_the_page_has_said_what_that_does_and_loads_them_back(
    op: User,
) -> None:
    enter_april()
    before = rows()
    sealed()
    asks = send(op, act="drop", month="2026-03")
    size = sum(SealedMonth.objects.get().files.values_list("bytes", flat=True))
    assert "Drop the rows of March 2026?" in asks
    assert "deletes 4 usage records, their jobs and rated usage from the database, which frees" in asks
    assert f"6 files of {size / 1000:.1f} kB are all there is of these rows then" in asks
    assert "Every process of release 1.0.0 has ended" in asks
    refused = send(op, act="drop", month="2026-03", confirmed="yes")
    assert "replace all of them, on each machine, then confirm that" in refused
    assert not SealRun.objects.exists()
    assert "Dropping the rows of March 2026: waiting for a worker." in send(
        op, act="drop", month="2026-03", confirmed="yes", replaced="yes"
    )
    work()
    text = words(page(op, PAGE))
    assert "March 2026 Dropped Its rows are in these files alone" in text
    assert "Drop rows, 2026-03 Done op@lab.example 1 Jun 2031, 02:00" in text
    assert not UsageRecord.objects.exists()
    updated = AuditEntry.objects.of_table(SealedMonth).get(operation="update")
    assert updated.after is not None
    assert (updated.who, updated.after["dropped_at"][:10]) == ("op@lab.example", "2031-06-01")
    assert "The rows of 2026-03 are dropped already" in send(
        op, act="drop", month="2026-03", confirmed="yes", replaced="yes"
    )
    asks = send(op, act="load", month="2026-03")
    assert "Load the rows of March 2026? 6 files of" in asks
    send(op, act="load", month="2026-03", confirmed="yes")
    work()
    assert "March 2026 Sealed 4" in words(page(op, PAGE))
    assert rows() == before
    assert "The rows of 2026-03 are in the database" in send(op, act="load", month="2026-03", confirmed="yes")
    assert "Every process of release 1.0.0" not in send(op, act="drop", month="2026-03")


def test_what_keeps_a_month_from_being_dropped_is_said_where_op_would_confirm_it(
    march: None, op: User
) -> None:
    sealed()
    asks = send(op, act="drop", month="2026-03")
    assert "Not now: Usage in it is not billed yet, or has no price." in asks
    assert 'value="drop">Drop the rows' not in asks
    refused = send(op, act="drop", month="2026-03", confirmed="yes", replaced="yes")
    assert "Not now" not in refused
    assert "Usage in it is not billed yet" in refused
    assert not SealRun.objects.exists()


def test_a_dropped_month_is_said_to_be_in_its_files_alone_and_unsealing_keeps_these(
    op: User, directory: Path
) -> None:
    enter_april()
    sealed()
    assert "until they are dropped" in words(page(op, PAGE))
    drop.drop_month(month=MARCH, moment=NOW, all_processes_replaced=True)
    assert "March 2026 Dropped Its rows are in these files alone: keep them. 4 6" in words(page(op, PAGE))
    asks = send(op, act="unseal", month="2026-03")
    assert "are all there is of its rows" in asks
    assert "the files are set aside" in asks
    (directory / "2026-03" / "records.parquet").rename(directory / "elsewhere")
    file_checks.check_month(month=MARCH, moment=NOW)
    text = words(page(op, PAGE))
    assert "Files damaged" in text
    assert "Its rows are in these files alone" in text
    (directory / "elsewhere").rename(directory / "2026-03" / "records.parquet")
    drop.load_back(month=MARCH)
    asks = send(op, act="unseal", month="2026-03")
    assert "Rows that the database lacks are loaded back, then the files are set aside" in asks
