"""No month is closed while its usage is being rated again: an invoice has all of it as it was, or as it is now."""

from __future__ import annotations

import json
from datetime import date
from functools import partial

import pytest
from django.db import transaction

from billing.catalog import third_party_payers
from billing.invoicing import close_runs, close_schedules, offboarding
from billing.models import CloseKind, CloseRun, Invoice, Plan
from billing.rating import engine, reratings
from clusters import usage
from clusters.models import Account, Cluster
from portal.core.outbox import outbox
from portal.core.outbox.models import OutboxMessage
from portal.core.tenants import ownership
from portal.core.tenants.models import Ownership, Tenant
from tests.builders import LATER, LONG_AGO, a_cluster, a_job, a_plan, a_tenant, at, ingest
from tests.stories import close, prove

pytestmark = pytest.mark.django_db

SLICE, SLICES = 5, 6  # jobs of an hour at 2.00 in each, and how many there are
MARCH = date(2026, 3, 1)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(usage, "load_all", partial(usage.load_all, most=SLICE))
    monkeypatch.setattr(usage, "find_border", partial(usage.find_border, size=SLICE))
    return a_cluster(complete_through="2026-04-02")


@pytest.fixture
def plan() -> Plan:
    return a_plan()


@pytest.fixture
def vision(cluster: Cluster, plan: Plan) -> Tenant:
    vision = a_tenant("vision-lab", plan=plan, accounts=[(cluster, "vision")])
    ingest(cluster, *(a_job(account="vision", job_id=str(number)) for number in range(SLICES * SLICE)))
    return vision


@pytest.fixture
def audio(cluster: Cluster, plan: Plan) -> Tenant:
    audio = a_tenant("audio-lab", plan=plan, accounts=[(cluster, "audio")])
    ingest(cluster, a_job(account="audio", job_id="audio"))
    return audio


@transaction.atomic
def ask(task: str = "rate_tenants", **ids: list[int]) -> None:
    outbox.add(f"billing.tasks.{task}", **ids)


def do_next() -> None:
    waiting = OutboxMessage.objects.undone().filter(task__in=reratings.TASKS)
    assert outbox.consume(waiting.earliest("pk").pk)


def standing(*, preview: bool = False) -> dict[str, str]:
    """Of each tenant what became of it, or what blocks it."""
    return {
        one.tenant: " ".join(block.code for block in one.blocks) or one.outcome.value
        for one in close("2026-03", preview=preview)
    }


def totals() -> dict[str, int]:
    return {row.tenant.slug: row.total for row in Invoice.objects.issued().select_related("tenant")}


def test_a_close_between_two_slices_waits_and_has_only_new_prices(vision: Tenant, audio: Tenant) -> None:
    subscription = vision.subscriptions.get()
    subscription.plan = a_plan("dear", prices=[("gpu-hour", {}, "3.00", LONG_AGO)])
    subscription.save()
    ask(tenant_ids=[vision.pk])
    assert standing(preview=True) == {"audio-lab": "issued", "vision-lab": "rerating"}
    assert standing() == {"audio-lab": "issued", "vision-lab": "rerating"}
    for _ in range(SLICES - 1):
        do_next()
        (blocked,) = close("2026-03", vision)
        assert [block.code for block in blocked.blocks] == ["rerating"]
        assert blocked.reason.endswith("wait until that is done, and close again.")
    do_next()
    assert standing() == {"audio-lab": "already issued", "vision-lab": "issued"}
    assert totals() == {"audio-lab": 200, "vision-lab": SLICES * SLICE * 300}
    prove()


def test_what_waits_of_a_period_does_not_hide_that_it_is_not_over(vision: Tenant) -> None:
    ask(tenant_ids=[vision.pk])
    (one,) = close("2026-03", vision, on="2026-03-20")
    assert [block.code for block in one.blocks] == ["not-over"]


def test_whose_account_it_was_and_is_both_wait(vision: Tenant, audio: Tenant) -> None:
    account = Account.objects.get(name="vision")
    with transaction.atomic():
        ownership.assign(account=account, tenant=audio, since=at("2026-03-01"))
    ask("rate_accounts", account_ids=[account.pk])
    other = a_tenant("other-lab")
    for _ in range(SLICES):
        assert reratings.find_tenants([vision.pk, audio.pk, other.pk]) == {vision.pk, audio.pk}
        do_next()
    assert reratings.find_tenants([vision.pk, audio.pk, other.pk]) == set()
    assert standing() == {
        "audio-lab": "issued",
        "other-lab": "nothing to bill",
        "vision-lab": "nothing to bill",
    }
    assert totals() == {"audio-lab": (SLICES * SLICE + 1) * 200}


def test_whose_ownership_is_gone_waits_until_the_last_slice(vision: Tenant) -> None:
    row = Ownership.objects.get(tenant=vision)
    row.delete()
    ask("rate_accounts", account_ids=[row.account_id], tenant_ids=[vision.pk])
    for _ in range(SLICES):
        assert standing() == {"vision-lab": "rerating"}
        do_next()
    assert standing() == {"vision-lab": "nothing to bill"}


def test_who_pays_and_who_paid_wait_too(vision: Tenant, audio: Tenant, plan: Plan) -> None:
    third_party_payers.pay_for(payer=audio, tenant=vision, since=MARCH)
    other = a_tenant("other-lab", plan=plan)
    ask(tenant_ids=[vision.pk])
    everyone = [vision.pk, audio.pk, other.pk]
    assert reratings.find_tenants(everyone) == {vision.pk, audio.pk}
    outbox.drain()
    third_party_payers.pay_for(payer=other, tenant=vision, since=MARCH)
    ask(tenant_ids=[vision.pk])
    do_next()
    assert reratings.find_tenants(everyone) == set(everyone)
    outbox.drain()
    assert reratings.find_tenants(everyone) == set()
    assert standing() == {"audio-lab": "issued", "other-lab": "issued", "vision-lab": "nothing to bill"}
    assert totals() == {"audio-lab": 200, "other-lab": SLICES * SLICE * 200}


def test_no_message_is_larger_for_more_records(vision: Tenant, cluster: Cluster) -> None:
    account = Account.objects.get(name="vision").pk
    ask(tenant_ids=[vision.pk])
    ask("rate_accounts", account_ids=[account])
    assert outbox.drain() == 2 * SLICES
    few = max(len(json.dumps(message.kwargs)) for message in OutboxMessage.objects.all())
    ingest(cluster, *(a_job(account="vision", job_id=f"more-{number}") for number in range(4 * SLICE)))
    ask(tenant_ids=[vision.pk])
    ask("rate_accounts", account_ids=[account])
    assert outbox.drain() == 2 * (SLICES + 4)
    assert max(len(json.dumps(message.kwargs)) for message in OutboxMessage.objects.all()) <= few < 100


def test_what_is_stored_between_two_slices_is_rated_once(vision: Tenant, cluster: Cluster) -> None:
    ask(tenant_ids=[vision.pk])
    do_next()
    earlier = a_job(job_id="feb", account="vision", started="2026-02-02 10:00", ended="2026-02-02 11:00")
    ingest(cluster, earlier, a_job(job_id="late", account="vision"))
    outbox.drain()
    close("2026-02", vision)
    close("2026-03", vision)
    assert sorted(Invoice.objects.issued().values_list("total", flat=True)) == [
        200,
        (SLICES * SLICE + 1) * 200,
    ]
    prove()


def test_a_scheduled_month_waits_for_who_is_rated_again(vision: Tenant, audio: Tenant) -> None:
    close_schedules.set_schedule(tenant=None, preview_day=None, issue_day=5, since=MARCH)
    ask(tenant_ids=[vision.pk])
    fifth = at("2026-04-05 09:00")

    def beat() -> list[int]:
        runs = close_schedules.request_due_runs(moment=fifth)
        for run in runs:
            close_runs.perform_run(run.pk, clock=lambda: fifth)
        return [run.results.count() for run in runs]

    assert beat() == [1]
    assert beat() == []
    outbox.drain()
    assert beat() == [1]
    assert totals() == {"audio-lab": 200, "vision-lab": SLICES * SLICE * 200}
    assert beat() == []


def test_a_run_on_the_page_names_what_it_waits_for(vision: Tenant) -> None:
    ask(tenant_ids=[vision.pk])
    moment = at("2026-04-05 09:00")
    run: CloseRun = close_runs.request_run(month="2026-03", kind=CloseKind.ISSUE, by="op", moment=moment)
    close_runs.perform_run(run.pk, clock=lambda: moment)
    assert close_runs.count_blocks(run) == [("rerating", 1)]


def test_who_is_rated_again_is_not_archived(vision: Tenant) -> None:
    ask(tenant_ids=[vision.pk])
    sentence = f"{reratings.UNDER_WAY}: wait until that is done."
    assert sentence in offboarding.find_obstacles(vision, moment=LATER)
    outbox.drain()
    assert sentence not in offboarding.find_obstacles(vision, moment=LATER)


def test_slices_end_in_what_rating_at_once_ends_in(vision: Tenant) -> None:
    assert engine.rate_slice([], None) is None
    accounts = engine.accounts_of([vision])
    ends = [engine.rate_slice(accounts)]
    while ends[-1] is not None:
        ends.append(engine.rate_slice(accounts, ends[-1]))
    assert len(ends) == SLICES
    prove()
