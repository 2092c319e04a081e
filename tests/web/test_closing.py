"""Op closes a month on the page: previews, decides what is held for approval, issues, and sees what became of whom."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from functools import partial

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from billing.invoicing import close_runs, close_schedules
from billing.models import ApprovalLimit, CloseKind, CloseRun, Invoice, PendingApproval, Seller
from tests import builders, sharing, stories
from tests.builders import at
from tests.web.house import House, a_house, page, signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

PATH = "/operator/close/"
MARCH = f"{PATH}?month=2026-03"


def post(client: Client, **fields: object) -> str:
    answer = client.post(PATH, {"month": "2026-03", **fields}, follow=True)
    assert answer.redirect_chain == [(MARCH, 302)]
    return words(answer.content.decode())


def work() -> None:
    """What a worker does."""
    for run in CloseRun.objects.unfinished():
        close_runs.perform_run(run.pk, clock=lambda: datetime.now(UTC))


begun, house = sharing.fixtures(partial(a_house, close=False), "house")


def test_op_previews_issues_and_finds_the_invoices(house: House) -> None:
    op = signed_in(house.op)
    assert "No preview yet" in page(house.op, MARCH)

    reply = post(op, act="preview")
    assert "Requested. It starts shortly." in reply
    assert "Previewing March 2026: waiting for a worker." in reply
    assert "Preview</button>" not in page(house.op, MARCH)
    work()
    text = words(page(house.op, MARCH))
    assert "Ready to issue 2 $14.25 Blocked 0 see the blockers below Held for approval 0" in text
    assert "Speech Lab Ready – Open draft – $1.25 Vision Lab Ready – Open draft – $13.00" in text
    assert "Previewed by op@cluster.example" in text
    assert not Invoice.objects.exists()

    post(op, act="issue", confirmed="yes")
    work()
    text = words(page(house.op, MARCH))
    assert "Issued 2 $14.25" in text
    assert "Speech Lab Issued – INV-2026-0001 – $1.25" in text
    assert f'href="/t/vision-lab/invoices/{Invoice.objects.get(tenant=house.vision).number}/"' in page(
        house.op, MARCH
    )


def test_what_is_parked_is_approved_with_a_reason_and_issued(house: House) -> None:
    op = signed_in(house.op)
    ApprovalLimit.objects.create(metric="total", currency="USD", limit=10)
    post(op, act="issue", confirmed="yes")
    work()
    text = words(page(house.op, MARCH))
    assert "Held for approval 1 $13.00" in text
    assert (
        "Vision Lab March 2026 Held for approval $13.00 on 1 line Open draft 13.00 USD is more than 10.00 USD"
        in text
    )

    row = PendingApproval.objects.get()
    fields = {"period": row.period_id, "total": row.total, "lines": row.lines}
    assert "Say why: the reason is kept" in post(op, act="approved", why=" ", **fields)
    assert "It comes to 13.00 USD on 1 lines by now: look at it again." in post(
        op, act="approved", why="so", **{**fields, "total": 1200}
    )
    for name in ("total", "lines"):
        assert "by now: look at it again." in post(
            op, act="approved", why="so", **{**fields, name: "1" * 5000}
        ), name
    reply = post(op, act="approved", why="Ann expects it", **fields)
    assert "Vision Lab, 13.00 USD: approved. Issue the month to send it." in reply
    assert re.search(r"Approved \$13.00 on 1 line .* op@cluster.example, .*: Ann expects it", reply)
    post(op, act="issue", confirmed="yes")
    work()
    assert stories.total(stories.invoice_of(house.vision, "2026-03")) == "13.00"
    assert "Invoices held for approval" not in page(house.op, MARCH)


def test_what_blocks_is_told_with_what_to_do_and_whom_it_stops(house: House) -> None:
    builders.a_tenant("audio-lab", accounts=[(house.cluster, "audio")])
    builders.ingest(house.cluster, builders.a_job(account="audio"), as_of="2026-04-20")
    post(signed_in(house.op), act="preview")
    work()
    text = words(page(house.op, MARCH))
    assert (
        "Usage without a price Give the tenant a plan, or its plan a price, then preview again. 1 tenant"
        in text
    )
    alone = words(page(house.op, f"{MARCH}&block=unpriced"))
    assert "Tenants: Usage without a price" in alone
    assert "Audio Lab Blocked No price covers 1.00 GPU-hours on a100" in alone
    assert "Vision Lab Ready" not in alone
    assert "No tenants." in page(house.op, f"{MARCH}&show=pending")


def test_what_differs_from_last_month_is_told(house: House) -> None:
    stories.close("2026-03")
    builders.ingest(
        house.cluster,
        builders.a_job(started="2026-04-02 10:00", ended="2026-04-02 20:00", gpus=2),
        as_of="2026-05-01",
    )
    client = signed_in(house.op)
    client.post(PATH, {"month": "2026-04", "act": "preview"})
    work()
    text = words(page(house.op, f"{PATH}?month=2026-04"))
    assert (
        "Vision Lab Ready vision, GPU time, a100: $13.00 → $40.00 Open draft +$27.00 (+207.7 %) $40.00"
        in text
    )
    assert "Speech Lab No charges speech, GPU time, a100: $1.25 → $0.00 – -$1.25 (-100 %) –" in text


def test_two_operators_at_once_are_told_of_each_other(house: House) -> None:
    other = builders.an_operator("oda@cluster.example")
    post(signed_in(house.op), act="issue", confirmed="yes")
    assert "op@cluster.example closes 2026-03 at this moment" in post(signed_in(other), act="preview")


def test_a_part_alone_answers_htmx_and_asks_again_only_while_a_worker_is_at_it(house: House) -> None:
    post(signed_in(house.op), act="preview")
    part = page(house.op, MARCH, **{"HX-Request": "true"})
    assert "<html" not in part
    assert 'hx-trigger="every 2s"' in part
    work()
    assert "hx-trigger" not in page(house.op, MARCH, **{"HX-Request": "true"})


def test_what_is_no_month_or_decision_is_not_there(house: House) -> None:
    op = signed_in(house.op)
    for path in (f"{PATH}?month=march", f"{PATH}?month=1999-12"):
        assert op.get(path).status_code == 404
    assert op.post(PATH, {"month": "2026-03", "act": "approved", "period": "x"}).status_code == 404
    assert signed_in(house.ann).get(PATH).status_code == 404
    assert signed_in(house.ann).post(PATH, {"month": "2026-03", "act": "issue"}).status_code == 404
    assert not CloseRun.objects.exists()


def test_the_page_asks_the_database_as_often_for_many_tenants_as_for_few(house: House) -> None:
    few = query_count(house)
    plan = house.vision.subscriptions.get().plan
    ApprovalLimit.objects.create(metric="total", currency="USD", limit=1)
    for number in range(60):
        builders.a_tenant(f"lab-{number}", plan=plan, accounts=[(house.cluster, f"a{number}")])
    builders.ingest(house.cluster, *(builders.a_job(account=f"a{n}") for n in range(60)), as_of="2026-04-20")
    many = query_count(house)
    assert many <= few + 1  # that counts what is held for approval beyond the first twenty
    assert many <= 20
    text = page(house.op, MARCH)
    assert "40 more follow when these are decided." in text
    more = re.search(r'href="(\?month=2026-03&amp;after=\d+)">More tenants', text)
    assert more
    assert "Vision Lab" in page(house.op, PATH + more[1].replace("&amp;", "&"))


def query_count(house: House) -> int:
    close_runs.request_run(month="2026-03", kind=CloseKind.ISSUE, by="op", moment=at("2026-04-19"))
    work()
    client = signed_in(house.op)
    with CaptureQueriesContext(connection) as queries:
        assert client.get(MARCH).status_code == 200
    return len(queries)


def test_issuing_asks_first_with_count_and_sum(house: House) -> None:
    op = signed_in(house.op)
    post(op, act="preview")
    work()
    answer = op.post(PATH, {"month": "2026-03", "act": "issue", "why": "known gap"}, follow=True)
    question = words(answer.content.decode())
    assert "Issue the invoices of March 2026 to 2 tenants: $14.25?" in question
    assert re.search(r"Figures are from the preview of \d+ \w+ \d{4}, \d\d:\d\d \(UTC\)", question)
    assert "Incomplete usage is billed. Reason: known gap" in question
    assert "Preview</button>" not in answer.content.decode()
    assert not CloseRun.objects.unfinished().exists()
    post(op, act="issue", why="known gap", confirmed="yes")
    assert CloseRun.objects.unfinished().get().accept_incomplete == "known gap"


def test_where_no_tenant_was_ready_the_question_says_so(house: House) -> None:
    Seller.objects.all().delete()
    op = signed_in(house.op)
    post(op, act="preview")
    work()
    question = words(op.post(PATH, {"month": "2026-03", "act": "issue"}, follow=True).content.decode())
    assert re.search(
        r"No tenant was ready in the preview of .*? Issue what is ready in March 2026 now\?",
        question,
    )


def test_issuing_unseen_says_that_the_month_was_not_previewed(house: House) -> None:
    answer = signed_in(house.op).post(PATH, {"month": "2026-03", "act": "issue"}, follow=True)
    question = words(answer.content.decode())
    assert (
        "Issue the invoices of March 2026? To see how many and how much, preview the month first." in question
    )


def test_without_a_seller_the_page_leads_to_where_it_is_entered(house: House) -> None:
    Seller.objects.all().delete()
    post(signed_in(house.op), act="preview")
    work()
    shown = page(house.op, MARCH)
    text = words(shown)
    assert (
        "No seller Invoices need the seller’s name, address and, in the EU, VAT ID. Enter it 2 tenants"
        in text
    )
    assert 'href="/admin/billing/seller/"' in shown


def test_what_the_schedule_previewed_of_one_tenant_is_not_said_of_all_that_would_be_issued(
    house: House,
) -> None:
    close_schedules.set_schedule(tenant=house.vision, preview_day=1, issue_day=None, since=date(2026, 3, 1))
    for run in close_schedules.request_due_runs(moment=at("2026-04-20 09:00")):
        close_runs.perform_run(run.pk, clock=lambda: at("2026-04-20 09:00"))
    shown = words(page(house.op, MARCH))
    assert "Previewed by schedule for 1 tenant, " in shown
    answer = signed_in(house.op).post(PATH, {"month": "2026-03", "act": "issue"}, follow=True)
    question = words(answer.content.decode())
    assert "to 1 tenant" not in question
    assert "Issue the invoices of March 2026? To see how many and how much" in question
