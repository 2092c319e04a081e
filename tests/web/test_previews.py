"""Op previews documents and plans while a worker computes them, whatever becomes of the worker."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from billing.documents import job_users
from billing.invoicing import draft_previews, month_close
from billing.invoicing.draft_previews import Drafts
from billing.models import Invoice, PlanVersion, Preview, Subscription
from billing.simulation import what_if
from billing.simulation.what_if import Simulation
from clusters.month_file_fetches import FilesNeededError
from portal.core.locks import Work
from portal.core.outbox import outbox
from portal.core.outbox.models import OutboxMessage
from portal.core.tenants.models import OperatorRole, User
from portal.web import plan_effect, previews, tasks
from portal.web.draft_documents import Draft
from tests import builders, sharing, stories
from tests.web.forms import fields
from tests.web.house import PLAN_DRAFT, House, a_house, signed_in
from tests.web.previewing import computed, work
from tests.web.test_overview import words
from tests.web.test_page_weight import FIRST, LATER, QUERIES, is_question, weighed

pytestmark = pytest.mark.django_db

DRAFT = "/operator/close/2026-03/vision-lab/"
EDITOR = "/operator/plan-editor/"

begun, house = sharing.fixtures(partial(a_house, close=False), "house")


@pytest.fixture
def op(house: House) -> Client:
    return signed_in(house.op)


def shown(op: Client, address: str) -> str:
    answer = op.get(address, headers={"HX-Request": "true"})
    assert "<html" not in answer.text
    return answer.text


def preview() -> Preview:
    return Preview.objects.get()


def test_the_documents_of_a_close_are_drawn_up_by_a_worker_and_watched_meanwhile(
    house: House, op: Client
) -> None:
    address = op.get(DRAFT)["Location"]
    assert op.get(DRAFT)["Location"] == address  # pressed twice, it is the same
    part = shown(op, address)
    assert 'hx-trigger="every 1s"' in part
    assert "Waiting for a worker." in part
    assert not Invoice.objects.exists()
    outbox.drain()  # wakes a worker up, as the schedule does
    work()
    part = shown(op, address)
    assert "hx-trigger" not in part
    assert "Total $13.00" in words(part)
    assert re.search(r"As of \d+ \w+ 20\d\d, \d\d:\d\d:\d\d UTC.", words(part))
    assert not Invoice.objects.exists()
    assert op.get(DRAFT)["Location"] != address  # who comes again sees it as it is then


def test_neither_page_is_heavy_or_takes_more_than_20_queries(house: House, op: Client) -> None:
    stories.close("2026-03")
    type(house.vision).objects.update(corrections="credit-note")
    late = builders.a_job(
        job_id="17", name="train", gpus=2, started="2026-03-02 10:00", ended="2026-03-02 12:00"
    )
    april = builders.a_job(started="2026-04-02 10:00", ended="2026-04-02 20:00")
    builders.ingest(house.cluster, late, april, as_of="2026-05-01")
    documents = op.get("/operator/close/2026-04/vision-lab/")["Location"]
    with CaptureQueriesContext(connection) as queries:
        plan = op.post(EDITOR, {"text": PLAN_DRAFT, "act": "preview"})["Location"]
    assert sum(is_question(query["sql"]) for query in queries) <= QUERIES
    work()
    assert "Credit note" in op.get(documents).text
    assert "Effect on" in op.get(plan).text
    paths = "/operator/close/2026-04/vision-lab/", documents, f"{documents}2/pdf", plan
    heavy = {}
    for path in paths:
        first, later, count = weighed(op, path)
        if first > FIRST or later > LATER or count > QUERIES:
            heavy[path] = (first, later, count)
    assert heavy == {}


def test_a_draft_is_below_its_form_as_it_was_typed_and_publishes_what_was_previewed(op: Client) -> None:
    text = f"# for the new nodes\n{PLAN_DRAFT}"
    address = op.post(EDITOR, {"text": text, "act": "preview"})["Location"]
    html = op.get(address).text
    assert "# for the new nodes" in html
    assert "Waiting for a worker." in html
    assert "Publish from" not in html
    work()
    part = shown(op, address)
    assert "Publish from 1 Jan 2030" in words(part)
    checked = re.search(r'name="checked" value="(\w+)"', part)
    assert checked is not None
    answer = op.post(EDITOR, {"text": text, "act": "publish", "checked": checked[1]}, follow=True)
    assert "Plan vision-deal from 2030-01-01 published." in words(answer.text)
    assert PlanVersion.objects.filter(effective_from="2030-01-01").exists()


def test_the_effect_on_many_tenants_tells_how_many_are_done(
    house: House, op: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(what_if, "TOGETHER", 1)
    Subscription.objects.update(plan=house.vision.subscriptions.get().plan)
    address = op.post(EDITOR, {"text": PLAN_DRAFT, "act": "try", "since": "2026-03"})["Location"]
    simulate, parts = what_if.simulate_plan, []

    def watched(**values: Any) -> list[Simulation]:
        parts.append(shown(op, address))
        return simulate(**values)

    monkeypatch.setattr(what_if, "simulate_plan", watched)
    work()
    assert [re.findall(r'<progress value="(\d)" max="(\d)"', part) for part in parts] == [
        [("0", "2")],
        [("1", "2")],
    ]
    assert "Being computed." in parts[0]
    assert "Effect on March 2026" in shown(op, address)


def test_too_many_jobs_are_refused_in_words_and_the_rest_of_the_preview_is_shown(
    op: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_effect, "AT_ONCE", 1)
    answer = computed(op, op.post(EDITOR, {"text": PLAN_DRAFT, "act": "try", "since": "2026-03"}))
    text = words(answer.text)
    assert "These are 2 jobs, more than a preview simulates (1)" in text
    assert "Changes to the version of 1 Jan 2017" in text
    assert 'name="since" value="2026-03"' in answer.text


def test_months_that_were_typed_stay_where_a_worker_finds_a_mistake(op: Client) -> None:
    draft = PLAN_DRAFT.replace("gpu-hour", "no-such-meter")
    form = {"text": draft, "act": "try", "since": "2026-02", "until": "2026-03", "tenants": "vision-lab"}
    html = computed(op, op.post(EDITOR, form)).text
    assert "no-such-meter" in words(html)
    assert "Publish from" not in html
    for name in ("since", "until", "tenants"):
        assert f'name="{name}" value="{form[name]}"' in html


class KilledError(BaseException):
    """Nothing of the worker runs after it."""


def test_what_a_dead_worker_began_is_begun_anew_and_given_up_in_the_end(
    op: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(**_: object) -> None:
        raise KilledError

    address = op.get(DRAFT)["Location"]
    with monkeypatch.context() as patch:
        patch.setattr(month_close, "close_month", die)
        with pytest.raises(KilledError):
            work()
    assert "Being computed." in shown(op, address)
    assert op.get(DRAFT)["Location"] != address  # what somebody opens now is not of the moment before
    work()
    assert "Total $13.00" in words(shown(op, address))
    again = op.get(DRAFT)["Location"]
    monkeypatch.setattr(month_close, "close_month", die)
    for _ in range(previews.ATTEMPTS):
        with pytest.raises(KilledError):
            work()
    work()
    assert "was started several times and never ended: the worker’s log says why." in shown(op, again)
    assert f'href="{DRAFT}"' in shown(op, again)


def test_files_that_are_fetched_first_cost_no_attempt(op: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    missing: list[Exception | None] = [None] * (previews.ATTEMPTS + 2)
    read_drafts = draft_previews.read_drafts

    def read(**values: Any) -> Drafts[Draft]:
        if missing:
            raise FilesNeededError(missing.pop)
        return read_drafts(**values)

    monkeypatch.setattr(draft_previews, "read_drafts", read)
    address = op.get(DRAFT)["Location"]
    while missing:
        with pytest.raises(FilesNeededError) as needed:
            work()
        needed.value.fetch()
    work()
    assert "Total $13.00" in words(shown(op, address))


@pytest.mark.django_db(transaction=True)
def test_two_workers_do_not_compute_the_same() -> None:
    op = signed_in(a_house(close=False).op)
    op.get(DRAFT)
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(%s, %s)", [int(Work.PREVIEWING), preview().pk])
            work()
            assert preview().attempts == 0
            cursor.execute("SELECT pg_advisory_unlock_all()")
    finally:
        other.close()
    work()
    assert preview().ended_at is not None


@pytest.mark.django_db(transaction=True)
def test_a_tenant_that_is_being_closed_keeps_no_worker_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    house = a_house(close=False)
    op = signed_in(house.op)
    address = op.get(DRAFT)["Location"]
    monkeypatch.setattr(previews, "PATIENCE", "100ms")
    other = connection.copy()
    try:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute("SELECT 1 FROM tenants_tenant WHERE id = %s FOR UPDATE", [house.vision.pk])
        work()
    finally:
        other.close()
    assert "A tenant of the preview is being closed or rated: try again in a minute." in shown(op, address)
    with connection.cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == ("0",)


@pytest.mark.django_db(transaction=True)
def test_pressed_many_times_at_once_it_is_requested_once() -> None:
    house = a_house(close=False)
    session = signed_in(house.op).cookies

    def press(_: int) -> str:
        try:
            client = Client()
            client.cookies = session
            return client.get(DRAFT)["Location"]
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as people:
        assert len(set(people.map(press, range(8)))) == 1
    assert Preview.objects.count() == 1


def test_one_person_does_not_fill_the_queue(op: Client) -> None:
    drafts = [f"/operator/close/2026-{month:02}/vision-lab/" for month in range(1, 7)]
    for address in drafts[: previews.MOST_WAITING]:
        op.get(address)
    text = words(op.get(drafts[-1], follow=True).text)
    assert "5 of your previews are still being computed: wait until one is ready, then try again." in text
    text = words(op.post(EDITOR, {"text": PLAN_DRAFT, "act": "preview"}).text)
    assert "5 of your previews are still being computed" in text
    assert "unit_price = 2.25" not in text
    work()
    assert op.get(drafts[-1])["Location"].startswith(drafts[-1])


def test_a_failure_is_a_sentence_and_its_reason_is_in_the_log(
    op: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(**_: object) -> None:
        raise ArithmeticError("a sum does not close")

    monkeypatch.setattr(month_close, "close_month", broken)
    address = op.get(DRAFT)["Location"]
    work()
    part = shown(op, address)
    assert "The preview failed: the worker’s log says why. Try again." in words(part)
    assert "a sum does not close" not in part


def test_without_workers_the_page_says_so(op: Client) -> None:
    address = op.get(DRAFT)["Location"]
    Preview.objects.update(requested_at=preview().requested_at - previews.LATE)
    assert "No worker has taken it up yet: see whether workers run." in shown(op, address)


def test_what_another_release_computed_is_not_shown(op: Client) -> None:
    address = op.get(DRAFT)["Location"]
    work()
    Preview.objects.update(result=b'{"drafts": 1}')
    assert "The preview is of another release of ClusterTab: preview it again." in shown(op, address)
    assert op.get(f"{address}1/pdf").status_code == 404


def test_a_form_of_another_release_keeps_what_was_typed(op: Client) -> None:
    form = op.post(EDITOR, {"text": PLAN_DRAFT, "act": "form"}).text
    address = op.post(EDITOR, fields(form) | {"act": "preview"})["Location"]
    inputs = preview().inputs
    before = op.get(address).text
    del (
        inputs["form"]["fee"],
        inputs["form"]["price"][0]["package"],
        inputs["form"]["price"][0]["where"]["qos"],
    )
    Preview.objects.update(inputs=inputs)
    after = op.get(address)
    assert after.status_code == 200
    assert list(fields(after.text)) == list(fields(before))
    assert fields(after.text)["plan.price.0.where.queue"] == ["gpu"]
    work()
    assert "Publish from 1 Jan 2030" in words(op.get(address).text)


def test_a_preview_is_deleted_after_a_day_and_as_names_are_erased(house: House, op: Client) -> None:
    address = op.get(DRAFT)["Location"]
    now = preview().requested_at
    previews.forget_old(moment=now + previews.RETENTION - timedelta(seconds=1))
    assert Preview.objects.exists()
    previews.forget_old(moment=now + previews.RETENTION)
    assert op.get(address)["Location"] == DRAFT
    op.get(DRAFT)
    op.get("/operator/close/2026-03/speech-lab/")
    job_users.erase_users(house.vision, names=["ben"])
    assert preview().inputs["tenant"] == "speech-lab"


def test_a_draft_in_the_window_stays_where_its_preview_is_deleted(op: Client) -> None:
    address = op.post(EDITOR, {"text": PLAN_DRAFT, "act": "preview"})["Location"]
    Preview.objects.all().delete()
    part = shown(op, address)
    assert "That preview was deleted: preview the draft again." in words(part)
    assert "hx-trigger" not in part
    assert "That preview was deleted: start a new draft." in words(op.get(address, follow=True).text)


def test_who_may_not_publish_sees_a_draft_without_buttons(op: Client) -> None:
    address = op.post(EDITOR, {"text": PLAN_DRAFT, "act": "preview"})["Location"]
    work()
    acts = re.compile(r'name="act" value="(?:preview|try|publish)"')
    assert len(acts.findall(op.get(address).text)) == 3
    support = User.objects.create_user("support@cluster.example", operator_role=OperatorRole.SUPPORT)
    html = signed_in(support).get(address).text
    assert "Effect on" in html
    assert not acts.search(html)


def test_the_schedule_wakes_workers_up_for_what_waits(op: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    op.get(DRAFT)
    assert OutboxMessage.objects.filter(task="portal.web.tasks.previews_due").count() == 1
    sent: list[object] = []
    monkeypatch.setattr(tasks.perform_preview, "apply_async", lambda **values: sent.append(values))
    tasks.previews_due()
    assert sent == [{"kwargs": {"preview_id": preview().pk}, "expires": 30}]
    work()
    tasks.previews_due()
    assert len(sent) == 1


def test_nobody_else_sees_it(house: House, op: Client) -> None:
    addresses = [
        op.get(DRAFT)["Location"],
        op.post(EDITOR, {"text": PLAN_DRAFT, "act": "preview"})["Location"],
    ]
    work()
    for person in (house.ann, house.eve):
        assert [signed_in(person).get(address).status_code for address in addresses] == [404, 404]
    wrong_month = addresses[0].replace("2026-03", "2026-04")
    assert op.get(wrong_month)["Location"] == "/operator/close/2026-04/vision-lab/"
