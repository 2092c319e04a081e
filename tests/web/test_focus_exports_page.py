"""Op's page of the charges of all tenants: asking for a month, watching a worker write it, downloading the file."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from billing.models import FocusExport, FocusFormat
from billing.reports import focus_exports
from portal.core.audit.models import AuditEntry
from tests import sharing
from tests.builders import at
from tests.scenarios.test_commands_operator import answer_of
from tests.web.clock import stand_at
from tests.web.house import House, a_house, page, signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

PAGE = "/operator/exports/focus/"
NOW = at("2026-04-20 08:00")

begun, house = sharing.fixtures(a_house, "house")


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_at(monkeypatch, "2026-04-20 08:00", of="portal.web.focus_exports")


def send(house: House, **fields: str) -> str:
    response = signed_in(house.op).post(PAGE, {"period": "2026-03", "format": "csv", **fields}, follow=True)
    return words(response.content.decode())


def work() -> FocusExport:
    export = focus_exports.perform_next(clock=lambda: NOW)
    assert export is not None
    return export


def test_op_asks_for_march_sees_how_far_it_is_and_downloads_what_the_command_writes(
    house: House, tmp_path: Path
) -> None:
    assert f'action="{PAGE}"' in page(house.op, "/operator/reports/")
    empty = page(house.op, PAGE)
    assert 'value="2026-03"' in empty  # last month
    assert "No file yet." in empty
    assert "every 2s" not in empty

    text = send(house)
    assert "Requested. It starts shortly." in text
    assert "March 2026: waiting for a worker." in text
    FocusExport.objects.update(started_at=NOW, done=1, total=2)
    part = signed_in(house.op).get(PAGE, headers={"HX-Request": "true"}).content.decode()
    assert "<html" not in part
    assert 'hx-trigger="every 2s"' in part
    assert "Writing March 2026: 1 of 2 tenants." in words(part)
    assert '<progress value="1" max="2"' in part
    assert "Download" not in part

    export = work()
    ready = page(house.op, PAGE)
    assert "March 2026 Ready CSV" in words(ready)
    assert "every 2s" not in ready
    assert f'href="{PAGE}{export.pk}/file"' in ready
    response = signed_in(house.op).get(f"{PAGE}{export.pk}/file")
    content = b"".join(response.streaming_content)  # type: ignore[attr-defined]
    answer_of("export_focus", "2026-03", tmp_path / "march.csv")
    assert content == (tmp_path / "march.csv").read_bytes()
    assert {"tenants/speech-lab", "tenants/vision-lab"} <= {*content.decode().replace(",", " ").split()}
    assert response.headers["Content-Disposition"] == 'attachment; filename="focus-1.2-all-2026-03.csv"'
    assert (response.headers["Content-Length"], response.headers["Content-Type"]) == (
        str(len(content)),
        "text/csv; charset=utf-8",
    )


def test_the_history_says_who_asked_and_who_downloaded(house: House) -> None:
    send(house)
    export = work()
    signed_in(house.op).get(f"{PAGE}{export.pk}/file")

    last = AuditEntry.objects.of_table(FocusExport).order_by("-id").first()
    assert last is not None
    assert last.after is not None
    assert (last.who, last.after["fetched_by"]) == (str(house.op), str(house.op))
    assert words(page(house.op, PAGE)).count(str(house.op)) >= 1
    assert "focus" in page(house.op, "/operator/history/").lower()


def test_a_month_is_written_anew_and_one_that_goes_on_says_that_it_is_preliminary(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(house)
    first = work()
    assert "was written less than 5 minutes ago" in send(house)
    stand_at(monkeypatch, "2026-04-20 08:05", of="portal.web.focus_exports")
    send(house)
    assert work().pk != first.pk
    assert "December 2026: waiting for a worker." in send(house, period="2026-12", format="parquet")
    work()
    assert "December 2026 Preliminary Parquet" in words(page(house.op, PAGE))


def test_what_cannot_be_done_is_told_in_words(house: House) -> None:
    send(house)
    refusal = "requested 2026-03 as CSV: wait until that is ready, then ask again."
    assert refusal in send(house, format="parquet")
    export = FocusExport.objects.get()
    assert "The file of 2026-03 is still being written" in opened(house, export.pk)
    FocusExport.objects.update(attempts=focus_exports.ATTEMPTS)
    work()
    text = words(page(house.op, PAGE))
    assert (
        "March 2026 Failed Its writing was begun 5 times and never ended: the worker's log says why." in text
    )
    assert "Download" not in text
    assert "There is no file of 2026-03: Its writing was begun 5 times" in opened(house, export.pk)
    FocusExport.objects.all().delete()
    assert "There is no such file: one is deleted after 7 days" in opened(house, export.pk)


def opened(house: House, export: int) -> str:
    response = signed_in(house.op).get(f"{PAGE}{export}/file", follow=True)
    return words(response.content.decode())


@pytest.mark.parametrize(
    ("period", "refusal"),
    [
        ("", "is not a month; write it like 2017-10."),
        ("x", "is not a month"),
        ("2026-00", "There is no month 2026-00"),
    ],
)
def test_what_is_no_month_is_told_in_words(house: House, period: str, refusal: str) -> None:
    assert refusal in send(house, period=period)
    assert "No file yet." in page(house.op, f"{PAGE}?period={period}")
    assert not FocusExport.objects.exists()


def test_what_is_no_format_is_no_page(house: House) -> None:
    posted = {"period": "2026-03", "format": "xls"}
    assert signed_in(house.op).post(PAGE, posted).status_code == 404


def test_strangers_and_people_of_tenants_get_nothing(house: House) -> None:
    focus_exports.request_export(month=date(2026, 3, 1), kind=FocusFormat.CSV, by="op", moment=NOW)
    export = work()
    for person in (house.ann, house.carla, house.ben, house.eve):
        browser = signed_in(person)
        assert browser.get(PAGE).status_code == 404
        assert browser.post(PAGE, {"period": "2026-03", "format": "csv"}).status_code == 404
        assert browser.get(f"{PAGE}{export.pk}/file").status_code == 404
    assert FocusExport.objects.count() == 1
    assert FocusExport.objects.get().fetched_by == ""
