"""Whoever has a hundred times as much as others delays them by one slice of work, not by all of it."""

from __future__ import annotations

from collections import deque
from datetime import UTC, date, datetime
from functools import partial
from typing import Any

import pytest
from django.db import transaction

from billing import tasks
from billing.emails import delivery
from billing.models import Notice, NoticeKind, Payer, PeriodTotal
from billing.rating import engine, file_imports
from clusters import usage
from clusters.models import Account, Cluster, FileFormat, UsageFile
from portal.core.outbox import outbox
from portal.core.outbox.models import OutboxMessage
from portal.core.tenants.models import Tenant
from tests.builders import LONG_AGO, a_cluster, a_job, a_plan, a_tenant, at, ingest, own
from tests.stories import prove, seconds

pytestmark = pytest.mark.django_db

SLICE, SLICES = 5, 30  # records of one, and how many the large one has
CHANGES = 12
PRICES = [("gpu-hour", {"gpu_model": ["a100"]}, "2.00", LONG_AGO)]


@pytest.fixture
def labs(monkeypatch: pytest.MonkeyPatch) -> tuple[Tenant, Tenant]:
    """The large one has many slices of jobs on GPUs without a price, the small one has one."""
    monkeypatch.setattr(usage, "load_all", partial(usage.load_all, most=SLICE))
    monkeypatch.setattr(usage, "find_border", partial(usage.find_border, size=SLICE))
    cluster, plan = a_cluster(complete_through="2026-04-20"), a_plan(prices=PRICES)
    large = a_tenant("large-lab", plan=plan, accounts=[(cluster, "large")])
    small = a_tenant("small-lab", plan=plan, accounts=[(cluster, "small")])
    for account, count in (("large", SLICES * SLICE), ("small", SLICE)):
        ingest(
            cluster,
            *(a_job(account=account, job_id=f"{account}-{n}", gpu_model="h300") for n in range(count)),
        )
    a_plan(
        prices=[*PRICES, ("gpu-hour", {"gpu_model": ["h300"]}, "5.00", LONG_AGO)],
        effective_from=date(2026, 3, 1),
    )
    return large, small


def charged(tenant: Tenant) -> bool:
    """Whether any of it has a price."""
    return seconds(tenant) > 0


def ask(*tenants: Tenant) -> None:
    with transaction.atomic():
        outbox.add("billing.tasks.rate_tenants", tenant_ids=[tenant.pk for tenant in tenants])


def test_a_small_tenant_is_rated_after_one_slice_of_a_large_one(labs: tuple[Tenant, Tenant]) -> None:
    large, small = labs
    ask(large)
    ask(small)
    queue: deque[int] = deque()  # as the broker's: first in, first out
    outbox.dispatch(lambda pk, _: queue.append(pk))
    done = 0
    while not charged(small):
        assert outbox.consume(queue.popleft())
        outbox.dispatch(lambda pk, _: queue.append(pk))
        done += 1
    assert done == 2
    outbox.drain()


def changes_of(tenant: Tenant) -> list[int]:
    """The tenant is given many accounts, each of which is to be rated again by itself."""
    cluster = Cluster.objects.get()
    for number in range(CHANGES):
        own(tenant, cluster, f"{tenant.slug}-{number}")
    groups = Account.objects.filter(name__startswith=tenant.slug).order_by("pk").values_list("pk", flat=True)
    with transaction.atomic():
        outbox.add_many("billing.tasks.rate_accounts", [{"account_ids": [account]} for account in groups])
    return list(OutboxMessage.objects.order_by("pk").values_list("pk", flat=True))[-CHANGES:]


def sent() -> list[int]:
    """What workers are told of now."""
    messages: list[int] = []
    outbox.dispatch(lambda pk, _: messages.append(pk))
    return messages


def test_a_tenant_with_a_hundred_changes_has_one_of_them_at_a_time_with_the_workers(
    labs: tuple[Tenant, Tenant],
) -> None:
    large, small = labs
    first, *others = changes_of(large)
    ask(small)
    assert sent() == [first, others[-1] + 1]
    assert sent() == []
    waiting = OutboxMessage.objects.filter(pk__in=others)
    assert set(waiting.values_list("attempts", "last_error")) == {
        (0, "Waits for an earlier message, which is about the same tenant.")
    }
    assert outbox.consume(others[-1] + 1)
    assert charged(small)
    for message in (first, *others):  # the next one is told of as soon as the one before is done
        assert outbox.consume(message)
        assert sent() == [other for other in others if other == message + 1]
    assert set(OutboxMessage.objects.values_list("last_error", flat=True)) == {""}


def test_who_pays_for_others_has_one_of_them_rated_at_a_time_too() -> None:
    cluster, plan = a_cluster(), a_plan(prices=PRICES)
    institute = a_tenant("institute", plan=plan)
    labs = [a_tenant(f"lab-{n}", plan=plan, accounts=[(cluster, f"lab-{n}")]) for n in range(2)]
    other = a_tenant("other", plan=plan, accounts=[(cluster, "other")])
    for lab in labs:
        Payer.objects.create(tenant=lab, payer=institute, since=LONG_AGO)
    for tenant in (*labs, other):
        ask(tenant)
    first, second, third = OutboxMessage.objects.order_by("pk").values_list("pk", flat=True)
    assert sent() == [first, third]
    assert outbox.consume(first)
    assert sent() == [second]


def test_a_change_that_could_not_be_rated_keeps_no_later_one_waiting(
    labs: tuple[Tenant, Tenant], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, *_ = changes_of(labs[0])
    assert sent() == [first]

    def fail(*_: object) -> None:
        raise ValueError("its month cannot be read")

    with monkeypatch.context() as broken:
        broken.setattr(engine, "rate_slice", fail)
        assert not outbox.consume(first)
    assert sent() == [second]
    OutboxMessage.objects.filter(pk=first).update(available_at=at("2026-04-01 10:00"))
    assert sent() == [first]
    assert OutboxMessage.objects.get(pk=first).last_error == "ValueError: its month cannot be read"


def test_a_change_that_ends_its_worker_each_time_keeps_no_later_one_waiting_for_long(
    labs: tuple[Tenant, Tenant],
) -> None:
    first, second, *_ = changes_of(labs[0])
    assert sent() == [first]  # and its worker is killed, so that nothing is written of it
    OutboxMessage.objects.update(created_at=at("2026-04-01 10:00"))
    assert sent() == [second]  # and no more of them: the other place is for others


def test_a_tenant_whose_turn_it_is_waits_for_no_list_of_anothers_changes(
    labs: tuple[Tenant, Tenant], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "BATCH", CHANGES // 2)
    large, small = labs
    changes_of(large)
    first, second, *_ = changes_of(small)
    while first not in sent():
        pass
    assert outbox.consume(first)
    assert sent() == [second]


def test_a_new_price_for_many_tenants_waits_for_none_of_them(labs: tuple[Tenant, Tenant]) -> None:
    large, small = labs
    ask(large)
    ask(large, small)
    first, all_of_them = sent()  # that of all rates nothing yet, but becomes one for each
    assert outbox.consume(all_of_them)
    assert sent() == [all_of_them + 2]
    assert OutboxMessage.objects.get(pk=all_of_them + 2).kwargs == {"tenant_ids": [small.pk]}
    assert outbox.consume(first)


def test_what_waits_is_looked_at_again_by_itself_when_its_time_has_come(labs: tuple[Tenant, Tenant]) -> None:
    first, second, *_ = changes_of(labs[0])
    assert sent() == [first]
    OutboxMessage.objects.filter(pk=first).update(done_at=at("2026-04-01 10:00"))
    OutboxMessage.objects.filter(pk=second).update(available_at=at("2026-04-01 10:00"))
    assert sent() == [second]


def test_slice_by_slice_all_of_it_is_rated_and_nothing_is_left(labs: tuple[Tenant, Tenant]) -> None:
    ask(*labs)
    assert outbox.drain() == 1 + SLICES + 1  # that of both, then each slice
    before = list(PeriodTotal.objects.order_by("pk").values())
    engine.rate_tenants(labs)
    assert list(PeriodTotal.objects.order_by("pk").values()) == before
    prove()


def a_file(cluster: Cluster, name: str) -> UsageFile:
    moment = datetime.now(UTC)
    return file_imports.store_file(
        cluster=cluster,
        name=name,
        kind=FileFormat.SACCT,
        pieces=[name.encode()],
        as_of=None,
        by="op",
        moment=moment,
    )


def test_of_each_cluster_one_file_is_imported_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    monkeypatch.setattr(
        tasks.import_file, "apply_async", lambda *, kwargs, **_: sent.append(kwargs["file_id"])
    )
    large, small = a_cluster("large"), a_cluster("small")
    first, second = a_file(large, "1.txt"), a_file(large, "2.txt")
    other = a_file(small, "1.txt")
    tasks.files_due()
    assert sent == [first.pk, other.pk]
    sent.clear()
    tasks.import_file(file_id=first.pk)  # refused, since it is no export
    assert sent == [second.pk]


def test_a_tenant_with_hundreds_of_notices_delays_nobody_elses() -> None:
    large, small = a_tenant("large-lab"), a_tenant("small-lab")
    fields: dict[str, Any] = {"kind": NoticeKind.INVOICE, "distributed": True}
    moments = {large: at("2026-04-01 10:00"), small: at("2026-04-01 11:00")}
    for tenant, count in ((large, 2 * delivery.AT_ONCE), (small, 1)):
        Notice.objects.bulk_create(
            Notice(
                tenant=tenant,
                key=f"{tenant.slug}-{n}",
                not_before=moments[tenant],
                created_at=moments[tenant],
                **fields,
            )
            for n in range(count)
        )
    due = delivery._list_due(at("2026-04-01 12:00"), is_locked=False)
    assert len(due) == delivery.AT_ONCE
    assert Notice.objects.get(tenant=small).pk in due[:2]
