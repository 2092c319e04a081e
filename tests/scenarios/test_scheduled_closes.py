"""Months that close by themselves: previewed on one day, issued on another, and what waits is told to operators."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest
from django.core import mail
from django.db import IntegrityError, transaction

from billing.invoicing import close_reports, close_runs, close_schedules, month_close
from billing.invoicing.close_schedules import ScheduleError
from billing.models import (
    ApprovalLimit,
    CloseKind,
    CloseReport,
    CloseRun,
    CloseSchedule,
    Invoice,
    PendingApproval,
    ReportState,
    ScheduledClose,
)
from clusters.models import Cluster
from portal.core.audit.models import AuditEntry
from portal.core.tenants.models import Tenant
from tests import sharing
from tests.builders import a_cluster, a_job, a_plan, a_tenant, an_operator, at, ingest
from tests.history import history
from tests.scenarios.configuring import Op
from tests.stories import close, prove

pytestmark = pytest.mark.django_db

MARCH = date(2026, 3, 1)
REFUSES, DIES = "tests.fakes.mail.Refuses", "tests.fakes.mail.Dies"


@pytest.fixture(autouse=True)
def sends(settings: Any) -> None:
    settings.CLUSTERTAB_SENDS_MAIL = True
    settings.PORTAL_URL = "https://billing.example.org"


def three_labs() -> list[Tenant]:
    """Three labs used a GPU in March: for an hour at 2.00, for ten hours, and one without a plan."""
    an_operator()
    cluster, plan = a_cluster(complete_through="2026-04-01"), a_plan()
    names = ("audio-lab", "speech-lab", "vision-lab")
    tenants = [
        a_tenant(name, plan=None if name == "audio-lab" else plan, accounts=[(cluster, name)])
        for name in names
    ]
    ingest(
        cluster,
        a_job(account="vision-lab"),
        a_job(account="speech-lab", started="2026-03-03 10:00", ended="2026-03-03 20:00"),
        a_job(account="audio-lab"),
    )
    ApprovalLimit.objects.create(metric="total", currency="USD", limit=10)
    return tenants


begun, labs = sharing.fixtures(three_labs, "labs")


def scheduled(
    preview: int | None = 3, issue: int | None = 5, *, tenant: Tenant | None = None, since: date = MARCH
) -> None:
    close_schedules.set_schedule(tenant=tenant, preview_day=preview, issue_day=issue, since=since)


def read_through(text: str) -> None:
    Cluster.objects.update(complete_through=at(text))


def clock(text: str) -> Callable[[], datetime]:
    return lambda: at(text)


def beat(text: str) -> list[tuple[str, str]]:
    """What scheduler and workers do at that moment: the runs that were asked for."""
    read_through(text)
    runs = close_schedules.request_due_runs(moment=at(text))
    for run in CloseRun.objects.unfinished().order_by("pk"):
        close_runs.perform_run(run.pk, clock=clock(text))
    close_reports.send_reports(moment=at(text))
    return [(run.month, run.kind) for run in runs]


def issued() -> list[str]:
    rows = Invoice.objects.filter(number__isnull=False).order_by("period_start", "tenant__slug")
    return [f"{row.tenant.slug} {row.period_start:%Y-%m} {row.issued_on}" for row in rows]


def test_nothing_closes_by_itself_unless_somebody_says_so(labs: list[Tenant]) -> None:
    assert beat("2026-04-05 09:00") == []
    scheduled(None, None)
    assert beat("2026-04-28 09:00") == []
    assert not CloseRun.objects.exists()
    assert close_schedules.list_upcoming(moment=at("2026-04-02")) == []


def test_a_month_is_previewed_on_one_day_and_what_is_ready_issued_on_another(labs: list[Tenant]) -> None:
    scheduled()
    assert beat("2026-04-02 23:59") == []
    assert beat("2026-04-03 00:00") == [("2026-03", "preview")]
    assert not issued()
    (preview,) = mail.outbox
    assert (preview.subject, preview.to) == (
        "March 2026 previewed: 1 tenant, 2 waiting",
        ["op@cluster.example"],
    )
    assert str(preview.body).splitlines() == [
        "The schedule previewed March 2026.",
        "",
        "1 tenant would get invoices: $2.00.",
        "",
        "2 tenants wait:",
        "- Audio Lab (blocked): " + _why("audio-lab"),
        "- Speech Lab (waiting for approval): " + _why("speech-lab"),
        "",
        "The preview changed nothing.",
        "",
        "https://billing.example.org/operator/close/?month=2026-03",
    ]
    assert beat("2026-04-04 12:00") == []
    assert beat("2026-04-05 00:00") == [("2026-03", "issue")]
    assert issued() == ["vision-lab 2026-03 2026-04-05"]
    assert [row.tenant.slug for row in PendingApproval.objects.all()] == ["speech-lab"]
    assert mail.outbox[1].subject == "March 2026 issued: 1 tenant, 2 waiting"
    assert "1 tenant got their invoices: $2.00." in str(mail.outbox[1].body)
    text = str(mail.outbox[1].body)
    assert "What is blocked or held for approval is not retried automatically: issue it manually." in text

    ApprovalLimit.objects.all().delete()
    assert beat("2026-04-20 09:00") == []  # what waits is for people
    assert len(mail.outbox) == 2
    assert beat("2026-05-03 09:00") == [("2026-04", "preview")]
    prove()


def _why(slug: str) -> str:
    row = CloseRun.objects.latest("pk").results.get(tenant__slug=slug)
    return " ".join(block["sentence"] for block in row.details["blocks"]) or str(row.details["reason"])


def test_the_history_says_that_the_schedule_did_it(labs: list[Tenant]) -> None:
    scheduled()
    beat("2026-04-05 00:00")
    run = CloseRun.objects.get()
    assert (run.requested_by, run.scheduled, run.kind) == (
        "schedule",
        True,
        "issue",
    )  # too late for a preview
    assert {entry.who for entry in AuditEntry.objects.of(run)} == {"schedule"}
    assert {entry.who for entry in AuditEntry.objects.of(Invoice.objects.get(number__isnull=False))} == {
        "schedule"
    }
    assert history(CloseSchedule, "issue_day") == [("insert", 5)]


def test_days_are_those_of_the_tenants_zone_and_period(labs: list[Tenant]) -> None:
    cluster, plan = a_cluster(), labs[2].subscriptions.get().plan
    for slug, zone, anchor in (("auckland", "Pacific/Auckland", 1), ("berlin", "Europe/Berlin", 10)):
        a_tenant(slug, plan=plan, accounts=[(cluster, slug)], timezone=zone, anchor_day=anchor)
        ingest(cluster, a_job(account=slug, started="2026-03-20 10:00", ended="2026-03-20 11:00"))
    scheduled(None, 1)
    beat("2026-03-31 10:59")
    assert "auckland 2026-02 2026-03-31" not in issued()
    beat("2026-03-31 11:00")  # midnight of 1 April in Auckland
    assert issued() == ["auckland 2026-02 2026-04-01"]
    beat("2026-04-09 21:59")
    assert issued()[1:] == ["vision-lab 2026-03 2026-04-09"]
    beat("2026-04-09 22:00")  # midnight of 10 April in Berlin, where its period of March ends
    assert "berlin 2026-03 2026-04-10" in issued()


def test_a_tenants_own_schedule_stands_in_place_of_everyones(labs: list[Tenant]) -> None:
    ApprovalLimit.objects.all().delete()
    scheduled(None, 2)
    scheduled(None, 4, tenant=labs[2])
    scheduled(None, None, tenant=labs[0])
    beat("2026-04-02 09:00")
    assert issued() == ["speech-lab 2026-03 2026-04-02"]
    assert [row.tenant.slug for row in CloseRun.objects.get().results.all()] == ["speech-lab"]
    beat("2026-04-04 09:00")
    assert issued() == ["speech-lab 2026-03 2026-04-02", "vision-lab 2026-03 2026-04-04"]
    close_schedules.remove_schedule(tenant=labs[0])
    assert beat("2026-04-05 09:00") == [("2026-03", "issue")]
    assert not Invoice.objects.filter(tenant=labs[0], number__isnull=False).exists()


def test_periods_that_ended_before_it_was_switched_on_are_left(labs: list[Tenant]) -> None:
    ingest(a_cluster(), a_job(account="vision-lab", started="2026-04-10 10:00", ended="2026-04-10 11:00"))
    scheduled(3, 5, since=date(2026, 4, 1))
    assert beat("2026-04-28 09:00") == []
    beat("2026-05-06 09:00")
    assert not issued()  # March is open, and comes first
    close("2026-03", labs[2])
    assert [entry.period.start for entry in ScheduledClose.objects.filter(tenant=labs[2])] == [
        at("2026-04-01")
    ]


def test_an_invoice_that_was_made_void_is_not_issued_again_by_itself(labs: list[Tenant]) -> None:
    from billing.invoicing import voids

    close("2026-03", labs[2])
    voids.void_invoice(
        invoice=Invoice.objects.get(number__isnull=False), reason="wrong", by="op", on=date(2026, 4, 4)
    )
    scheduled(None, 5)
    beat("2026-04-06 09:00")
    assert Invoice.objects.filter(tenant=labs[2], number__isnull=False).count() == 1


def test_two_schedulers_and_workers_at_once_issue_once(
    labs: list[Tenant], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second has read what is due before the first asks; and again when the first has ended."""
    scheduled(None, 5)
    steps = list(close_schedules._list_steps(moment=at("2026-04-05 09:00"), making=True))
    assert beat("2026-04-05 09:00") == [("2026-03", "issue")]
    monkeypatch.setattr(close_schedules, "_list_steps", lambda **_: steps)
    assert beat("2026-04-05 09:00") == []
    assert issued() == ["vision-lab 2026-03 2026-04-05"]
    assert (CloseRun.objects.count(), len(mail.outbox)) == (1, 1)


def test_a_month_that_an_operator_closes_at_this_moment_is_left_to_the_next_hour(labs: list[Tenant]) -> None:
    scheduled(None, 5)
    run = close_runs.request_run(
        month="2026-03", kind=CloseKind.PREVIEW, by="op", moment=at("2026-04-05 08:59")
    )
    assert close_schedules.request_due_runs(moment=at("2026-04-05 09:00")) == []
    assert not ScheduledClose.objects.exists()
    close_runs.perform_run(run.pk, clock=clock("2026-04-05 09:01"))
    assert not CloseReport.objects.exists()  # people look at what they asked for
    assert beat("2026-04-05 10:00") == [("2026-03", "issue")]


def test_a_run_that_is_killed_goes_on_and_is_told_once(
    labs: list[Tenant], monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduled(None, 5)
    read_through("2026-04-05 09:00")
    (run,) = close_schedules.request_due_runs(moment=at("2026-04-05 09:00"))  # and the scheduler is gone
    undisturbed = month_close.close_month

    def dies(**arguments: Any) -> Any:
        list(undisturbed(**arguments))
        raise SystemExit("killed")

    monkeypatch.setattr(month_close, "close_month", dies)
    with pytest.raises(SystemExit):
        close_runs.perform_run(run.pk, clock=clock("2026-04-05 09:01"))
    assert (issued(), CloseReport.objects.count()) == (["vision-lab 2026-03 2026-04-05"], 0)
    monkeypatch.setattr(month_close, "close_month", undisturbed)
    assert close_schedules.request_due_runs(moment=at("2026-04-05 10:00")) == []
    assert beat("2026-04-05 10:00") == []
    assert beat("2026-04-05 11:00") == []
    run.refresh_from_db()
    assert (run.done, run.attempts, len(issued())) == (3, 1, 1)  # it got on, which begins the count anew
    (message,) = mail.outbox
    assert message.subject == "March 2026 issued: 1 tenant, 2 waiting"
    assert "1 tenant got their invoices: $2.00." in str(message.body)


def test_an_email_that_is_refused_is_tried_again_and_one_without_answer_is_not(
    labs: list[Tenant], settings: Any
) -> None:
    usual = settings.EMAIL_BACKEND
    settings.EMAIL_BACKEND = REFUSES
    scheduled()
    beat("2026-04-03 09:00")
    report = CloseReport.objects.get()
    assert (report.state, report.tries, report.reason) == (
        ReportState.WAITING,
        1,
        "The mail server refused it: (550, b'not today')",
    )
    assert close_reports.send_reports(moment=at("2026-04-03 09:04")) == 0
    settings.EMAIL_BACKEND = usual
    assert [close_reports.send_reports(moment=at("2026-04-03 09:05")) for _ in range(2)] == [1, 0]

    settings.EMAIL_BACKEND = DIES
    beat("2026-04-05 09:00")
    settings.EMAIL_BACKEND = usual
    assert close_reports.send_reports(moment=at("2026-04-09 09:00")) == 0
    assert CloseReport.objects.latest("pk").state == ReportState.SENDING
    assert len(mail.outbox) == 1


def test_what_comes_next_is_said_without_writing_anything(labs: list[Tenant]) -> None:
    scheduled()
    scheduled(None, 9, tenant=labs[2])
    before = ScheduledClose.objects.count(), labs[0].periods.count()
    coming = close_schedules.list_upcoming(moment=at("2026-04-04 09:00"))
    assert [(str(due.day), due.month, due.kind, due.tenants) for due in coming] == [
        ("2026-04-03", "2026-03", "preview", 2),
        ("2026-04-05", "2026-03", "issue", 2),
        ("2026-04-09", "2026-03", "issue", 1),
        ("2026-05-03", "2026-04", "preview", 2),
        ("2026-05-05", "2026-04", "issue", 2),
        ("2026-05-09", "2026-04", "issue", 1),
    ]
    assert (ScheduledClose.objects.count(), labs[0].periods.count()) == before


@pytest.mark.parametrize(("preview", "issue"), [(0, 5), (3, 29), (9, 5)])
def test_days_that_cannot_be_are_refused_by_the_database_too(preview: int, issue: int) -> None:
    with pytest.raises(ScheduleError, match="choose"):
        scheduled(preview, issue)
    with pytest.raises(IntegrityError, match="close_schedule_"), transaction.atomic():
        CloseSchedule.objects.create(preview_day=preview, issue_day=issue, since=MARCH)


def test_op_sets_schedules_in_the_file(labs: list[Tenant], tmp_path: Path) -> None:
    op, text = Op(tmp_path), "[close]\npreview_day = 3\nissue_day = 5\nsince = 2026-04-01\n"
    own = '[[tenant]]\nslug = "vision-lab"\n[tenant.close]\nissue_day = 9\nsince = 2026-04-01\n'
    assert op.applies(text + own)[-2:] == [
        "close schedule of everyone: new (preview_day 3, issue_day 5, since 2026-04-01)",
        "close schedule of vision-lab: new (preview_day by hand, issue_day 9, since 2026-04-01)",
    ]
    assert op.applies("[close]\nissue_day = 0") == ["close schedule of everyone: issue_day 5 -> by hand"]
    assert op.is_refused('[[tenant]]\nslug = "audio-lab"\nclose = { issue_day = 5 }') == [
        'tenant "audio-lab": since is missing in close; periods that end on that day or later close by themselves.'
    ]
    assert op.is_refused("[close]\npreview_day = 29\nday = 1") == [
        "the file, close: preview_day has to be a whole number from 0 to 28.",
        "the file, close: there is no key 'day'; allowed: issue_day, preview_day, since.",
    ]
