"""An invoice unlike the usual waits until Op has looked at it; nobody else waits for that."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import Error, transaction
from django.test import Client
from django.urls import reverse

from billing.invoicing import approvals
from billing.invoicing.approvals import ApprovalError
from billing.models import (
    ApprovalLimit,
    ApprovalMetric,
    BillingPeriod,
    Decision,
    Invoice,
    InvoiceState,
    PendingApproval,
)
from portal.core.tenants.models import Tenant
from portal.ops.cli import BadInputError, RefusedError
from tests import sharing
from tests.builders import a_cluster, a_job, a_plan, a_tenant, an_operator, at, ingest, own
from tests.history import history
from tests.scenarios.configuring import Op
from tests.stories import close, closed, invoice_of, prove, total

pytestmark = pytest.mark.django_db


def a_lab() -> Tenant:
    """One A100 for an hour, 2.00 USD, in each of March, April and May; read through July."""
    cluster = a_cluster(complete_through="2026-08-01")
    tenant = a_tenant("vision-lab", plan=a_plan(), accounts=[(cluster, "vision")])
    for month in ("03", "04", "05"):
        used(f"2026-{month}-02 10:00", f"2026-{month}-02 11:00")
        assert closed(f"2026-{month}", tenant).outcome == "issued"
    return tenant


begun, vision = sharing.fixtures(a_lab, "vision")


def used(started: str, ended: str, **fields: Any) -> None:
    ingest(a_cluster(), a_job(started=started, ended=ended, **fields))


def a_bound(measure: ApprovalMetric, limit: str, *, tenant: Tenant | None = None, currency: str = "") -> None:
    ApprovalLimit.objects.update_or_create(
        tenant=tenant, metric=measure, currency=currency, defaults={"limit": Decimal(limit)}
    )


def decide(
    tenant: Tenant, month: str, decision: Decision, why: str = "Ann expects it", **seen: Any
) -> PendingApproval:
    period = tenant.periods.get(start=at(f"{month}-01"))
    moment = at("2026-07-04 09:00")
    return approvals.decide_approval(
        period=period, decision=decision, by="Op", reason=why, moment=moment, **seen
    )


def test_case_093_an_invoice_of_many_times_the_usual_waits_until_op_approves_it(vision: Tenant) -> None:
    a_bound(ApprovalMetric.USUAL, "3")
    used("2026-06-02 10:00", "2026-06-02 14:00")  # 8.00, four times the mean of 2.00, 2.00 and 2.00

    pending = closed("2026-06", vision)

    assert (pending.outcome, pending.number, pending.total.text) == ("waiting for approval", "", "8.00")  # type: ignore[union-attr]
    assert pending.reason == (
        "8.00 USD is 4 times the usual 2.00 USD, and 3 times is the most that is issued unseen. "
        "Approve or refuse it: approve_invoice vision-lab 2026-06 --why REASON."
    )
    draft = Invoice.objects.get(period_start=at("2026-06-01"))
    assert (draft.state, draft.number, draft.total) == (InvoiceState.PENDING_APPROVAL, None, 800)
    assert not BillingPeriod.objects.get(start=at("2026-06-01")).closed_at
    assert closed("2026-06", vision, on="2026-07-20") == pending

    decide(vision, "2026-06", Decision.APPROVED, why="A paper is due.")
    issued = closed("2026-06", vision)

    assert (issued.outcome, issued.number, issued.total.text) == ("issued", "INV-2026-0004", "8.00")  # type: ignore[union-attr]
    approval = PendingApproval.objects.get()
    assert (approval.state, approval.decided_by, approval.decision_reason, approval.decided_at) == (
        *("approved", "Op", "A paper is due."),
        at("2026-07-04 09:00"),
    )
    assert history(PendingApproval, "state") == [("insert", "waiting"), ("update", "approved")]
    prove()


def test_case_093_just_on_the_bound_is_issued_and_the_first_invoice_has_no_usual(vision: Tenant) -> None:
    a_bound(ApprovalMetric.USUAL, "3")
    a_tenant("speech-lab", plan=vision.subscriptions.get().plan, accounts=[(a_cluster(), "speech")])
    used("2026-06-02 10:00", "2026-06-02 13:00")  # 6.00: three times
    used("2026-06-02 10:00", "2026-06-20 10:00", account="speech", gpus=8)

    assert [(one.tenant, one.outcome) for one in close("2026-06")] == [
        ("speech-lab", "issued"),
        ("vision-lab", "issued"),
    ]


def test_the_usual_is_the_mean_of_the_last_three_months_alone(vision: Tenant) -> None:
    used("2026-06-02 10:00", "2026-06-02 20:00")
    assert closed("2026-06", vision).total.text == "20.00"  # type: ignore[union-attr]
    a_bound(ApprovalMetric.USUAL, "2.5")
    used("2026-07-02 10:00", "2026-07-02 20:00")  # (2 + 2 + 20) / 3 = 8.00, and 20.00 is 2.5 times that
    assert closed("2026-07", vision).outcome == "issued"
    used("2026-08-02 10:00", "2026-08-02 20:01")
    a_bound(ApprovalMetric.USUAL, "1")  # (2 + 20 + 20) / 3 = 14.00
    (pending,) = close("2026-08", vision, accept="read to the end of July")
    assert pending.reason.startswith("20.03 USD is 1.43 times the usual 14.00 USD, and 1 times is")


def test_case_093_more_than_a_stated_amount_or_so_many_lines_waits(vision: Tenant) -> None:
    for project in ("one", "two"):
        own(vision, a_cluster(), project, project=project)
        used("2026-06-02 10:00", "2026-06-02 11:00", account=project)
    a_bound(ApprovalMetric.LINES, "1")
    a_bound(ApprovalMetric.TOTAL, "3.99", currency="USD")
    a_bound(ApprovalMetric.TOTAL, "1", currency="EUR")

    assert closed("2026-06", vision).reason.startswith(
        "4.00 USD is more than 3.99 USD, the most that is issued unseen. "
        "It has 2 lines, and 1 are the most that are issued unseen. Approve or refuse it:"
    )


def test_a_tenants_own_bound_stands_in_place_of_everyones_and_nothing_is_no_bound(vision: Tenant) -> None:
    a_bound(ApprovalMetric.TOTAL, "1", currency="USD")
    a_bound(ApprovalMetric.TOTAL, "0", currency="USD", tenant=vision)
    used("2026-06-02 10:00", "2026-06-02 11:00")
    assert closed("2026-06", vision).outcome == "issued"


def test_case_093_an_invoice_held_for_approval_never_stops_the_others(vision: Tenant) -> None:
    a_bound(ApprovalMetric.TOTAL, "3", currency="USD")
    for name in ("audio", "zoology"):
        a_tenant(f"{name}-lab", plan=vision.subscriptions.get().plan, accounts=[(a_cluster(), name)])
        used("2026-06-02 10:00", "2026-06-02 11:00", account=name)
    used("2026-06-02 10:00", "2026-06-02 12:00")

    assert [(one.tenant, one.outcome, one.number) for one in close("2026-06")] == [
        ("audio-lab", "issued", "INV-2026-0004"),
        ("vision-lab", "waiting for approval", ""),
        ("zoology-lab", "issued", "INV-2026-0005"),
    ]


def test_case_093_an_approval_holds_for_what_was_approved_and_for_less(vision: Tenant) -> None:
    a_bound(ApprovalMetric.TOTAL, "3", currency="USD")
    used("2026-06-02 10:00", "2026-06-02 12:00", job_id="17")
    closed("2026-06", vision)
    decide(vision, "2026-06", Decision.APPROVED)
    used("2026-06-03 10:00", "2026-06-03 11:00")

    again = closed("2026-06", vision)

    assert again.reason.startswith("6.00 USD is more than 3.00 USD")
    assert PendingApproval.objects.get().state == Decision.WAITING
    decide(vision, "2026-06", Decision.APPROVED, why="And that, too")
    used("2026-06-02 10:00", "2026-06-02 11:30", job_id="17")
    assert closed("2026-06", vision).total.text == "5.00"  # type: ignore[union-attr]


def test_what_falls_within_its_bounds_again_waits_no_more(vision: Tenant) -> None:
    a_bound(ApprovalMetric.TOTAL, "3", currency="USD")
    used("2026-06-02 10:00", "2026-06-02 12:00", job_id="17")
    closed("2026-06", vision)
    used("2026-06-02 10:00", "2026-06-02 11:00", job_id="17")

    assert closed("2026-06", vision).outcome == "issued"
    assert not PendingApproval.objects.exists()


def test_what_op_refuses_stays_until_it_is_corrected(vision: Tenant) -> None:
    a_bound(ApprovalMetric.TOTAL, "3", currency="USD")
    used("2026-06-02 10:00", "2026-06-02 12:00")
    closed("2026-06", vision)
    decide(vision, "2026-06", Decision.REFUSED, why="A run-away job, to be forgiven.")

    again = closed("2026-06", vision)

    assert again.outcome == "waiting for approval"
    assert again.reason.endswith(
        "Op refused it: A run-away job, to be forgiven. Correct what is wrong and close again."
    )
    decide(vision, "2026-06", Decision.APPROVED, why="Ann pays it after all")
    assert closed("2026-06", vision).outcome == "issued"


def test_the_month_after_waits_for_the_approval(vision: Tenant) -> None:
    a_bound(ApprovalMetric.TOTAL, "3", currency="USD")
    used("2026-06-02 10:00", "2026-06-02 12:00")
    used("2026-07-02 10:00", "2026-07-02 11:00")
    closed("2026-06", vision)

    july = closed("2026-07", vision)

    assert [block.code for block in july.blocks] == ["earlier-pending-approval"]
    assert july.reason == july.blocks[0].sentence
    assert july.reason.startswith("June 2026 waits for approval and is not issued: approve it, or correct")


def test_a_preview_says_what_would_be_held_for_approval_and_holds_nothing(vision: Tenant) -> None:
    a_bound(ApprovalMetric.TOTAL, "3", currency="USD")
    used("2026-06-02 10:00", "2026-06-02 12:00")

    (previewed,) = close("2026-06", vision, preview=True)

    assert previewed.outcome == "waiting for approval"
    assert not PendingApproval.objects.exists()
    assert not Invoice.objects.filter(state=InvoiceState.PENDING_APPROVAL).exists()


def test_a_decision_needs_a_reason_something_parked_and_the_figures_that_were_seen(vision: Tenant) -> None:
    a_bound(ApprovalMetric.TOTAL, "3", currency="USD")
    used("2026-06-02 10:00", "2026-06-02 12:00")
    closed("2026-06", vision)

    with pytest.raises(ApprovalError, match="Say why"):
        decide(vision, "2026-06", Decision.APPROVED, why="  ")
    with pytest.raises(ApprovalError, match=r"It comes to 4\.00 USD on 1 lines by now: look at it again"):
        decide(vision, "2026-06", Decision.APPROVED, seen=(300, 1))
    with pytest.raises(ApprovalError, match="Nothing of vision-lab is held for approval"):
        decide(vision, "2026-05", Decision.APPROVED)
    decide(vision, "2026-06", Decision.APPROVED, seen=(400, 1))
    closed("2026-06", vision)
    with pytest.raises(ApprovalError, match="issued already"):
        decide(vision, "2026-06", Decision.REFUSED)


def test_the_database_issues_nothing_that_is_held_or_beyond_its_approval(vision: Tenant) -> None:
    a_bound(ApprovalMetric.TOTAL, "3", currency="USD")
    used("2026-06-02 10:00", "2026-06-02 12:00")
    closed("2026-06", vision)
    pending = Invoice.objects.filter(state=InvoiceState.PENDING_APPROVAL)
    fields = {"state": "issued", "number": "X-1", "issued_on": "2026-07-01", "due_on": "2026-07-01"}

    with pytest.raises(Error, match="beyond what was approved"), transaction.atomic():
        pending.update(**fields)
    PendingApproval.objects.update(
        state="approved", decided_by="Op", decision_reason="so", decided_at=at("2026-07-04"), total=399
    )
    with pytest.raises(Error, match="beyond what was approved"), transaction.atomic():
        pending.update(**fields)
    with pytest.raises(Error, match="approval_has_author_and_reason"), transaction.atomic():
        PendingApproval.objects.update(decided_by="")


def test_op_decides_at_the_shell(vision: Tenant, capsys: pytest.CaptureFixture[str]) -> None:
    a_bound(ApprovalMetric.TOTAL, "3", currency="USD")
    used("2026-06-02 10:00", "2026-06-02 12:00")
    with pytest.raises(SystemExit) as end:
        call_command("close_period", "2026-06", json=True)
    assert end.value.code == 1
    (entry,) = json.loads(capsys.readouterr().out)["tenants"]
    assert (entry["outcome"], entry["number"], entry["total"]) == ("waiting for approval", None, "4.00")

    call_command("approve_invoice")
    assert capsys.readouterr().out.startswith("vision-lab, 2026-06: 4.00 USD, waiting. 4.00 USD is more than")
    with pytest.raises(RefusedError, match="Say why"):
        call_command("approve_invoice", "vision-lab", "2026-06")
    with pytest.raises(BadInputError, match="no tenant 'vision'"):
        call_command("approve_invoice", "vision", "2026-06", why="so")
    call_command("approve_invoice", "vision-lab", "2026-06", why="Ann expects it")
    assert capsys.readouterr().out.splitlines()[-1] == (
        "vision-lab, 2026-06: 4.00 USD approved. `close_period 2026-06 --tenant vision-lab` issues it."
    )
    call_command("close_period", "2026-06")
    assert total(invoice_of(vision, "2026-06")) == "4.00"
    capsys.readouterr()
    call_command("approve_invoice", json=True)
    assert json.loads(capsys.readouterr().out) == {"pending": []}


def test_op_sets_bounds_and_decides_in_the_administration(vision: Tenant, client: Client) -> None:
    client.force_login(an_operator())
    form = {"tenant": vision.pk, "metric": "total", "currency": "USD", "limit": "3"}
    refused = client.post(reverse("admin:billing_approvallimit_add"), {**form, "currency": ""})
    assert "Choose a currency of ISO 4217" in refused.content.decode()
    client.post(reverse("admin:billing_approvallimit_add"), form)
    used("2026-06-02 10:00", "2026-06-02 12:00")
    assert closed("2026-06", vision).outcome == "waiting for approval"

    url, row = reverse("admin:billing_pendingapproval_changelist"), PendingApproval.objects.get()
    assert "4.00 USD is more than 3.00 USD" in client.get(url).content.decode()
    chosen = {"action": "approve", "_selected_action": [row.pk]}
    answer = client.post(url, {**chosen, "why": ""}, follow=True)
    assert "Say why" in answer.content.decode()
    client.post(url, {**chosen, "why": "Ann expects it"})
    row.refresh_from_db()
    assert (row.state, row.decided_by, row.decision_reason) == (
        "approved",
        "op@cluster.example",
        "Ann expects it",
    )


def test_op_sets_bounds_in_the_file(vision: Tenant, tmp_path: Path) -> None:
    op = Op(tmp_path)
    assert op.applies(
        '[seller]\nname = "N"\napproval_limits = { times_usual = "3", lines = 500, total = { USD = "1000.50" } }\n'
        '[[tenant]]\nslug = "vision-lab"\napproval_limits = { total = { USD = "0" } }'
    )[-4:] == [
        "approval limit of everyone, times-usual: new (limit 3)",
        "approval limit of everyone, lines: new (limit 500)",
        "approval limit of everyone, total USD: new (limit 1000.5)",
        "approval limit of vision-lab, total USD: new (limit none)",
    ]
    assert op.applies("[seller]\napproval_limits = { lines = 400 }") == [
        "approval limit of everyone, lines: limit 500 -> 400"
    ]
    assert op.is_refused(
        '[seller]\napproval_limits = { total = { XXQ = "1" }, times = "3", times_usual = "-1" }'
    ) == [
        "seller, approval_limits: times_usual is -1; it is from 0, which is no bound, with at most three decimals.",
        "seller, approval_limits, total: XXQ is no currency; write its code of ISO 4217, such as USD or EUR.",
        "seller, approval_limits: there is no key 'times'; allowed: lines, times_usual, total.",
    ]
