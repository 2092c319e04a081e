"""Op says on a page on which days months close by themselves, and sees what comes next before it is so."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import partial

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.invoicing import close_reports, close_runs, close_schedules
from billing.models import CloseSchedule
from tests import builders, sharing
from tests.history import history
from tests.web.house import House, a_house, page, signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

PATH = "/operator/close/schedule/"
OFF = "Scheduled close is off: preview and issue manually."
FORM = {"tenant": "", "preview_day": "3", "issue_day": "5", "since": "2026-03-01"}


begun, house = sharing.fixtures(partial(a_house, close=False), "house")


def test_op_sets_changes_and_removes_schedules_after_a_preview(house: House) -> None:
    op = signed_in(house.op)
    assert OFF in page(house.op, PATH)
    assert OFF in words(page(house.op, "/operator/close/"))

    previewed = words(op.post(PATH, {**FORM, "act": "preview"}).content.decode())
    assert (
        "Next steps with this change Every tenant without its own schedule: previewed on day 3, issued on day 5, "
        "from 1 Mar 2026. Issues March 2026 of 2 tenants in the next hours."
    ) in previewed
    assert not CloseSchedule.objects.exists()
    later = words(op.post(PATH, {**FORM, "since": "2090-01-01", "act": "preview"}).content.decode())
    assert "Scheduled close starts with periods that end on 1 Jan 2090 or later." in later
    saved = words(op.post(PATH, {**FORM, "act": "save"}, follow=True).content.decode())
    assert "Schedule saved." in saved
    assert "Everyone else Day 3 Day 5 1 Mar 2026" in saved

    op.post(PATH, {**FORM, "tenant": "speech-lab", "issue_day": "", "act": "save"})
    assert "Speech Lab Day 3 Manually" in words(page(house.op, PATH))
    assert 'value="speech-lab"' in page(house.op, f"{PATH}?tenant=speech-lab")
    assert "Issues March 2026 of 1 tenant in the next hours." in words(
        page(house.op, "/operator/close/?month=2026-03")
    )
    assert "Remove schedule" in op.post(PATH, {**FORM, "act": "preview", "remove": "yes"}).content.decode()
    op.post(PATH, {**FORM, "act": "delete"})
    assert [row.tenant for row in CloseSchedule.objects.all()] == [house.speech]
    assert history(CloseSchedule, "issue_day")[-1][0] == "delete"


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        ({"tenant": "nobody"}, "There is no tenant with this slug."),
        ({"tenant": "a\0b"}, "Null characters are not allowed."),
        ({"preview_day": "29"}, "Ensure this value is less than or equal to 28."),
        ({"preview_day": "9"}, "comes after the issue on day 5: choose an earlier day for it."),
        ({"since": ""}, "This field is required."),
    ],
)
def test_what_cannot_be_is_said_and_nothing_is_kept(
    house: House, form: dict[str, str], sentence: str
) -> None:
    for act in ("preview", "save"):
        assert sentence in signed_in(house.op).post(PATH, {**FORM, **form, "act": act}).content.decode()
    assert not CloseSchedule.objects.exists()


def test_nobody_else_opens_it(house: House) -> None:
    for person in (house.ann, house.eve):
        assert signed_in(person).get(PATH).status_code == 404
        assert signed_in(person).post(PATH, {**FORM, "act": "save"}).status_code == 404
    assert not CloseSchedule.objects.exists()


def test_the_close_page_says_what_became_of_the_email(house: House, settings: object) -> None:
    settings.CLUSTERTAB_SENDS_MAIL = True  # type: ignore[attr-defined]
    now = datetime.now(UTC).replace(microsecond=0)
    close_schedules.set_schedule(tenant=None, preview_day=None, issue_day=1, since=date(2026, 3, 1))
    for run in close_schedules.request_due_runs(moment=now):
        if run.month == "2026-03":
            close_runs.perform_run(run.pk, clock=lambda: now)
    close_reports.send_reports(moment=now + timedelta(minutes=1))
    shown = words(page(house.op, "/operator/close/?month=2026-03"))
    assert "Issued by schedule" in shown
    assert "E-mail to operators: Sent to op@cluster.example." in shown


def test_more_tenants_take_no_more_queries(house: House) -> None:
    close_schedules.set_schedule(tenant=None, preview_day=3, issue_day=5, since=date(2026, 3, 1))
    counts = []
    for number in (0, 8):
        for position in range(number):
            tenant = builders.a_tenant(f"more-{position}")
            close_schedules.set_schedule(tenant=tenant, preview_day=2, issue_day=4, since=date(2026, 3, 1))
        with CaptureQueriesContext(
            connection,
        ) as queries:
            page(house.op, PATH)
        counts.append(len(queries))
    assert counts[0] == counts[1]
