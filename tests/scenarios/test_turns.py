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
from billing.models import Notice, NoticeKind, PeriodTotal
from billing.rating import engine, file_imports
from clusters import usage
from clusters.models import Cluster, FileFormat, UsageFile
from portal.core.outbox import outbox
from portal.core.tenants.models import Tenant
from tests.builders import LONG_AGO, a_cluster, a_job, a_plan, a_tenant, at, ingest
from tests.stories import prove, seconds

pytestmark = pytest.mark.django_db

SLICE, SLICES = 5, 30  # records of one, and how many the large one has
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
