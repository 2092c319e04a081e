"""Events: rows of what causes them, placed in the order of commits. Cases 52, 53 and 55 of the API."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from threading import Event as Signal

import pytest
from django.db import connection, transaction
from django.db.models import F
from django.db.transaction import TransactionManagementError

from billing.receivables import settlement
from billing.rules.money import Money
from portal.core.events import events, numbering
from portal.core.events.models import Event, EventType
from portal.core.tenants.models import Tenant
from tests import builders
from tests.api.door import Door, door
from tests.web.house import House


def told(tenant: Tenant | None, key: int, *, what: EventType = EventType.INVOICE_ISSUED) -> None:
    events.record(what, kind="inv", key=key, state="issued", tenant=tenant.pk if tenant else None)


def places() -> list[tuple[int, int, int]]:
    rows = Event.objects.numbered().order_by("number")
    return [(row.key, row.number or 0, row.sequence or 0) for row in rows]


@pytest.mark.django_db(transaction=True)
def test_api_053_what_is_rolled_back_was_never_told() -> None:
    tenant = builders.a_tenant("acme")
    with transaction.atomic():
        told(tenant, 1)
        transaction.set_rollback(True)
    with transaction.atomic():
        told(tenant, 2)
    assert numbering.number_committed() == (1, 1)
    assert places() == [(2, 1, 1)]
    with pytest.raises(TransactionManagementError, match="belongs into the transaction"):
        told(tenant, 3)


@pytest.mark.django_db(transaction=True)
def test_api_055_a_slow_transactions_event_is_not_jumped_over() -> None:
    """It wrote first and commits last: whoever has read on meanwhile finds it behind what was read."""
    tenant = builders.a_tenant("acme")
    written, go_on = Signal(), Signal()

    def slow() -> None:
        try:
            with transaction.atomic():
                told(tenant, 1)
                written.set()
                assert go_on.wait(10)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(slow)
        assert written.wait(10)
        with transaction.atomic():
            told(tenant, 2)
        assert numbering.number_committed() == (1, 1)
        assert places() == [(2, 1, 1)]
        go_on.set()
        first.result()
    assert Event.objects.get(key=1).pk < Event.objects.get(key=2).pk
    assert numbering.number_committed() == (2, 2)
    assert places() == [(2, 1, 1), (1, 2, 2)]
    assert numbering.number_committed() is None


@pytest.mark.django_db(transaction=True)
def test_api_055_numberers_at_once_leave_no_gap() -> None:
    acme, bolt = builders.a_tenant("acme"), builders.a_tenant("bolt")
    with transaction.atomic():
        for key in range(30):
            told([acme, bolt, None][key % 3], key)

    def number() -> None:
        try:
            numbering.number_committed()
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(number) for _ in range(4)]:
            done.result()
    with transaction.atomic():
        told(bolt, 30)
    numbering.number_committed()
    assert [number for _, number, _ in places()] == list(range(1, 32))
    for tenant, count in ((acme, 10), (bolt, 11), (None, 10)):
        rows = Event.objects.filter(tenant=tenant).order_by("number")
        assert list(rows.values_list("sequence", flat=True)) == list(range(1, count + 1))


@pytest.mark.django_db
def test_api_055_old_events_go_and_what_follows_is_counted_on() -> None:
    tenant = builders.a_tenant("acme")
    told(tenant, 1)
    told(tenant, 2)
    numbering.number_committed()
    moment = datetime.now(UTC)
    Event.objects.filter(key=1).update(at=F("at") - timedelta(days=91))
    told(tenant, 3)
    Event.objects.filter(key=3).update(at=F("at") - timedelta(days=91))  # nobody has seen it yet
    assert numbering.forget_old(moment=moment) == 1
    Event.objects.filter(key=2).update(at=F("at") - timedelta(days=91))
    assert numbering.forget_old(moment=moment) == 1
    numbering.number_committed()
    assert places() == [(3, 3, 3)]


@pytest.mark.django_db
def test_api_052_an_overdue_invoice_is_told_of_once_for_each_cause() -> None:
    tenant = builders.a_tenant("acme")
    for cause in ("7 0", "7 0", "7 1"):
        what = EventType.INVOICE_OVERDUE
        events.record(what, kind="inv", key=7, state="past_due", tenant=tenant.pk, cause=cause)
    assert Event.objects.count() == 2


@pytest.fixture
def of_invoice(house: House) -> Callable[[], list[str]]:
    def types() -> list[str]:
        rows = Event.objects.filter(kind="inv", key=house.invoice.pk).order_by("pk")
        return list(rows.values_list("type", flat=True))

    return types


@pytest.mark.django_db
def test_api_052_an_invoice_is_issued_and_paid_when_nothing_is_left(
    house: House, of_invoice: Callable[[], list[str]]
) -> None:
    assert of_invoice() == ["invoice.issued"]
    left = settlement.load_balance(invoice=house.invoice, on=date(2026, 4, 2)).due
    for reference, minor in (("A", 1), ("B", left.minor - 1)):
        settlement.record_payment(
            invoice=house.invoice,
            amount=Money.from_minor(minor, left.currency),
            received_on=date(2026, 4, 2),
            reference=reference,
            recorded_by="Op",
        )
    assert of_invoice() == [
        *("invoice.issued", "payment.succeeded", "payment.succeeded", "invoice.paid"),
    ]
    again = settlement.record_payment(
        invoice=house.invoice,
        amount=Money.from_minor(1, left.currency),
        received_on=date(2026, 4, 2),
        reference="A",
        recorded_by="Op",
    )
    assert again.amount == 1
    assert len(of_invoice()) == 4


@pytest.mark.django_db
def test_api_055_a_reader_goes_on_behind_the_last_event_it_has(house: House, ann: Door, op: Door) -> None:
    numbering.number_committed()
    first = ann.all("/events?limit=1")
    assert first[0]["type"] == "invoice.issued"
    assert {*first[0]["data"]} == {"id", "object", "state", "tenant"}
    assert {event["data"]["tenant"] for event in first} == {"vision-lab"}
    assert [event["sequence"] for event in first] == list(range(1, len(first) + 1))
    last = first[-1]["id"]
    assert ann.reads(f"/events?after={last}")["data"] == []
    told(house.vision, house.invoice.pk, what=EventType.INVOICE_PAID)
    told(house.speech, 1)
    assert ann.reads(f"/events?after={last}")["data"] == []  # has no place yet
    numbering.number_committed()
    (new,) = ann.reads(f"/events?after={last}")["data"]
    assert (new["type"], new["sequence"]) == ("invoice.paid", len(first) + 1)
    assert ann.reads(f"/invoices/{new['data']['id']}")["number"] == house.invoice.number
    everybody = op.all("/events?limit=2")
    assert {event["data"]["tenant"] for event in everybody} >= {"vision-lab", "speech-lab"}
    assert [e for e in everybody if e["data"]["tenant"] == "vision-lab"] == ann.all("/events")
    assert ann.reads("/events?type=invoice.paid")["data"] == [new]
    assert ann.get("/events?after=inv_0000000000000").problem == (400, "invalid-request")


@pytest.mark.django_db
def test_api_055_events_need_the_scope_of_their_objects(house: House) -> None:
    assert door(house.ann, house.vision, "usage:read").get("/events").problem == (403, "missing-scope")
    assert door(house.ben, house.vision).get("/events").problem == (403, "missing-scope")
