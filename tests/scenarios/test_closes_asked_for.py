"""Op asks for a close on a page, and a worker does it: once, whoever else asks, and whoever dies."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import pytest
from django.db import IntegrityError, transaction

from billing import tasks
from billing.invoicing import close_runs, month_close
from billing.invoicing.close_runs import RunError
from billing.models import BillingPeriod, CloseKind, CloseResult, CloseRun, Invoice, InvoiceSeries
from portal.core.tenants.models import Tenant
from tests import sharing
from tests.builders import a_cluster, a_job, a_plan, a_tenant, at, ingest

pytestmark = pytest.mark.django_db

APRIL = "2026-04-03 09:00"


def clock(text: str = APRIL) -> Callable[[], datetime]:
    return lambda: at(text)


def thirty_labs() -> list[Tenant]:
    """Thirty labs that used a GPU for an hour in March, at 2.00, and one that has no plan."""
    cluster, plan = a_cluster(complete_through="2026-04-02"), a_plan()
    tenants = [
        a_tenant(f"lab-{number:02d}", plan=plan, accounts=[(cluster, f"account-{number:02d}")])
        for number in range(30)
    ]
    tenants.append(a_tenant("planless", accounts=[(cluster, "planless")]))
    ingest(
        cluster, *(a_job(account=f"account-{number:02d}") for number in range(30)), a_job(account="planless")
    )
    return tenants


begun, labs = sharing.fixtures(thirty_labs, "labs")


def ask_for_close(
    kind: CloseKind = CloseKind.PREVIEW, *, by: str = "op@cluster.example", accept_incomplete: str = ""
) -> CloseRun:
    return close_runs.request_run(
        month="2026-03", kind=kind, by=by, moment=at(APRIL), accept_incomplete=accept_incomplete
    )


def stand(run: CloseRun) -> dict[str, int]:
    return {tally.outcome: tally.tenants for tally in close_runs.count_outcomes(run)}


def test_a_preview_is_kept_and_nothing_else_is(labs: list[Tenant]) -> None:
    run = ask_for_close()
    assert close_runs.perform_run(run.pk, clock=clock())

    run.refresh_from_db()
    assert (run.done, run.total, run.ended_at, run.error) == (31, 31, at(APRIL), "")
    assert stand(run) == {"issued": 30, "blocked": 1}
    assert [(tally.currency, tally.total) for tally in close_runs.count_outcomes(run) if tally.currency] == [
        ("USD", 6000)
    ]
    assert close_runs.count_blocks(run) == [("unpriced", 1)]
    (blocked,) = close_runs.list_results(run, code="unpriced", size=10).rows
    assert blocked.details["blocks"][0]["sentence"].startswith("No price covers 1.00 GPU-hours")
    assert not Invoice.objects.exists()
    assert not InvoiceSeries.objects.exists()


def test_what_is_issued_is_numbered_and_told_with_its_invoice(labs: list[Tenant]) -> None:
    run = ask_for_close(CloseKind.ISSUE)
    close_runs.perform_run(run.pk, clock=clock())

    page = close_runs.list_results(run, outcomes=["issued"], size=29)
    assert [page.rows[0].number, page.rows[-1].number] == ["INV-2026-0001", "INV-2026-0029"]
    (last,) = close_runs.list_results(run, outcomes=["issued"], after=page.next, size=29).rows
    assert last.number == "INV-2026-0030"
    assert Invoice.objects.filter(issued_on="2026-04-03").count() == 30


def test_two_operators_at_once_close_a_month_once(labs: list[Tenant]) -> None:
    ask_for_close(CloseKind.ISSUE)
    with pytest.raises(
        RunError, match=r"^op@cluster.example closes 2026-03 at this moment: wait until that has ended"
    ):
        ask_for_close(by="oda@cluster.example")
    run = CloseRun.objects.get()
    close_runs.perform_run(run.pk, clock=clock())
    assert not close_runs.perform_run(run.pk, clock=clock())
    assert Invoice.objects.count() == 30

    again = ask_for_close(CloseKind.ISSUE, by="oda@cluster.example")
    close_runs.perform_run(again.pk, clock=clock())
    assert stand(again) == {"already issued": 30, "blocked": 1}
    assert Invoice.objects.count() == 30
    assert set(CloseResult.objects.values_list("run", flat=True)) == {again.pk}


def test_a_run_whose_worker_dies_is_gone_on_with(labs: list[Tenant], monkeypatch: pytest.MonkeyPatch) -> None:
    run, close = ask_for_close(CloseKind.ISSUE), month_close.close_month
    times = iter(range(100))

    def dies(**options: object) -> object:
        if next(times) == 1:
            raise SystemExit("killed")
        return close(**options)  # type: ignore[arg-type]

    monkeypatch.setattr(month_close, "close_month", dies)
    with pytest.raises(SystemExit):
        close_runs.perform_run(run.pk, clock=clock())
    run.refresh_from_db()
    assert (run.done, run.ended_at) == (25, None)

    assert close_runs.perform_run(run.pk, clock=clock())
    run.refresh_from_db()
    assert (run.done, run.total, run.attempts) == (31, 31, 1)
    assert Invoice.objects.filter(number="INV-2026-0030").exists()
    assert Invoice.objects.count() == 30


def test_what_a_worker_does_late_is_dated_when_it_is_done(
    labs: list[Tenant],
) -> None:
    """Asked for on 31 March, begun on 3 April, and gone on with on 5 April."""
    run = close_runs.request_run(
        month="2026-03", kind=CloseKind.ISSUE, by="op", moment=at("2026-03-31 20:00")
    )
    times = iter((at(APRIL), at(APRIL)))

    def until_killed() -> datetime:
        moment = next(times, None)
        if moment is None:
            raise SystemExit("killed")
        return moment

    with pytest.raises(SystemExit):
        close_runs.perform_run(run.pk, clock=until_killed)
    assert Invoice.objects.filter(issued_on="2026-04-03").count() == 25
    close_runs.perform_run(run.pk, clock=clock("2026-04-05 09:00"))
    assert Invoice.objects.filter(issued_on="2026-04-05").count() == 5
    assert set(BillingPeriod.objects.filter(tenant=labs[29]).values_list("closed_at", flat=True)) == {
        at("2026-04-05 09:00")
    }


def test_a_run_that_kills_every_worker_is_given_up(labs: list[Tenant]) -> None:
    run = ask_for_close()
    CloseRun.objects.update(attempts=close_runs.ATTEMPTS)
    close_runs.perform_run(run.pk, clock=clock())
    run.refresh_from_db()
    assert run.error == "It was begun several times and never ended: the worker's log says why. Ask again."
    assert ask_for_close().month == "2026-03"


def test_a_run_that_gets_on_is_not_given_up_however_often_workers_are_replaced(labs: list[Tenant]) -> None:
    run = ask_for_close()
    CloseRun.objects.update(attempts=close_runs.ATTEMPTS - 1)
    times = iter((at(APRIL), at(APRIL)))

    def until_replaced() -> datetime:
        moment = next(times, None)
        if moment is None:
            raise SystemExit("replaced")
        return moment

    with pytest.raises(SystemExit):
        close_runs.perform_run(run.pk, clock=until_replaced)
    close_runs.perform_run(run.pk, clock=clock())
    run.refresh_from_db()
    assert (run.done, run.error) == (31, "")


def test_one_worker_at_a_time_does_a_run(labs: list[Tenant], monkeypatch: pytest.MonkeyPatch) -> None:
    run = ask_for_close()
    sent: list[int] = []
    monkeypatch.setattr(
        tasks.perform_close, "apply_async", lambda kwargs, expires: sent.append(kwargs["run_id"])
    )
    tasks.closes_due()
    tasks.closes_due()
    assert sent == [run.pk, run.pk]
    tasks.perform_close(run_id=run.pk)
    tasks.perform_close(run_id=run.pk)
    assert CloseResult.objects.count() == 31
    tasks.closes_due()
    assert len(sent) == 2


def test_case_011_months_that_were_asked_for_while_nothing_ran_are_made_once_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Op asks for March, and a month later for April; scheduler and workers are down until 6 May."""
    cluster = a_cluster(complete_through="2026-05-02")
    lab = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(), a_job(started="2026-04-02 10:00", ended="2026-04-02 12:00"))
    runs = [
        close_runs.request_run(month=month, kind=CloseKind.ISSUE, by="op@cluster.example", moment=at(moment))
        for month, moment in (("2026-03", APRIL), ("2026-04", "2026-05-03 09:00"))
    ]
    assert not Invoice.objects.exists()

    sent: list[int] = []
    monkeypatch.setattr(
        tasks.perform_close, "apply_async", lambda kwargs, expires: sent.append(kwargs["run_id"])
    )
    tasks.closes_due()
    tasks.closes_due()  # it wakes again before a worker has taken up the first
    assert sent == [run.pk for run in runs] * 2
    assert not close_runs.perform_run(
        runs[1].pk, clock=clock("2026-05-06 09:00")
    )  # a second worker: March is first
    did = [close_runs.perform_run(run_id, clock=clock("2026-05-06 09:00")) for run_id in sent]
    tasks.closes_due()

    assert (did, len(sent)) == ([True, True, False, False], 4)
    assert [stand(run) for run in runs] == [{"issued": 1}, {"issued": 1}]
    issued = Invoice.objects.filter(tenant=lab).order_by("number")
    assert [(row.number, row.period_start, str(row.issued_on), row.total) for row in issued] == [
        ("INV-2026-0001", at("2026-03-01"), "2026-05-06", 200),
        ("INV-2026-0002", at("2026-04-01"), "2026-05-06", 400),
    ]
    assert not close_runs.perform_run(runs[0].pk, clock=clock("2026-05-07 09:00"))
    assert issued.count() == 2


def test_the_reason_for_billing_although_usage_is_missing_is_kept(labs: list[Tenant]) -> None:
    labs[0].ownerships.get().account.cluster.__class__.objects.update(complete_through=None)
    run = ask_for_close(CloseKind.ISSUE)
    close_runs.perform_run(run.pk, clock=clock())
    assert stand(run) == {"blocked": 31}
    assert close_runs.count_blocks(run) == [("incomplete", 31), ("unpriced", 1)]

    run = ask_for_close(CloseKind.ISSUE, accept_incomplete=" slurmdbd was lost ")
    close_runs.perform_run(run.pk, clock=clock())
    assert Invoice.objects.first().terms["accepted_incomplete"] == "slurmdbd was lost"  # type: ignore[union-attr]


@pytest.mark.parametrize("month", ["2026-05", "1999-12", "2026-13", "march"])
def test_a_month_that_cannot_be_closed_is_refused(month: str) -> None:
    with pytest.raises(RunError):
        close_runs.request_run(month=month, kind=CloseKind.ISSUE, by="op", moment=at(APRIL))


def test_the_database_lets_one_run_of_a_month_go_on() -> None:
    ask_for_close()
    fields = {"month": "2026-03", "kind": "issue", "requested_by": "x", "requested_at": at(APRIL), "total": 1}
    with pytest.raises(IntegrityError, match="month_is_closed_by_one_at_a_time"), transaction.atomic():
        CloseRun.objects.create(**fields)
