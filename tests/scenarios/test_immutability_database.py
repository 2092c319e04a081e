"""What was issued, rated or paid stays as it is, and every change of money says who made it: by the database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date
from decimal import Decimal

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.db.models import Model

from billing.models import MOVES, Fee, Invoice, InvoiceState, Payment, Plan, Price
from billing.receivables import settlement
from billing.rules.money import Money
from portal.core.audit import acting_as
from portal.core.audit.models import AuditEntry
from portal.core.outbox import outbox
from portal.core.tenants.models import Ownership, Tenant
from tests.builders import a_cluster, a_job, a_plan, a_tenant, ingest, own
from tests.history import history
from tests.owner import as_owner
from tests.stories import closed, draft, invoice_of, issue

pytestmark = pytest.mark.django_db


@pytest.fixture
def issued() -> Invoice:
    """INV-2026-0001 over 2.00 with its document and a payment of 0.50."""
    cluster = a_cluster(complete_through="2026-05-01")
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job())
    closed("2026-03", vision)
    outbox.drain()
    invoice = invoice_of(vision, "2026-03")
    settlement.record_payment(
        invoice=invoice,
        amount=Money.of("0.50", "USD"),
        received_on=date(2026, 4, 9),
        reference="A1",
        recorded_by="op",
    )
    return invoice


def sql(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


@contextmanager
def refused(match: str) -> Iterator[None]:
    with pytest.raises(DatabaseError, match=match), transaction.atomic():
        yield


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("UPDATE billing_invoice SET total = total + 1, tax = tax + 1", "cannot be changed"),
        ("UPDATE billing_invoice SET buyer = '{}'", "cannot be changed"),
        ("UPDATE billing_invoice SET seller = '{}'", "cannot be changed"),
        ("UPDATE billing_invoice SET terms = '{\"a\": 1}'", "cannot be changed"),
        ("UPDATE billing_invoice SET number = 'INV-2026-0002'", "cannot be changed"),
        ("UPDATE billing_invoice SET rated_through = 0", "cannot be changed"),
        ("UPDATE billing_invoice SET due_on = '2030-01-01'", "cannot be changed"),
        ("UPDATE billing_invoice SET state = 'draft'", "cannot go from issued to draft"),
        ("DELETE FROM billing_invoice", "cannot be deleted"),
        ("UPDATE billing_invoiceline SET amount = 0", "issued invoice cannot be changed"),
        ("UPDATE billing_invoiceline SET project = 'other'", "issued invoice cannot be changed"),
        ("DELETE FROM billing_invoiceline", "issued invoice cannot be changed"),
        ("UPDATE billing_invoicedocument SET pdf = ''", "pgtrigger: Cannot"),
        ("DELETE FROM billing_invoicedocument", "pgtrigger: Cannot"),
        ("UPDATE billing_payment SET amount = 200", "pgtrigger: Cannot"),
        ("DELETE FROM billing_payment", "pgtrigger: Cannot"),
        ("UPDATE billing_ratedusage SET units = 1", "append-only"),
        ("DELETE FROM billing_ratedusage", "append-only"),
    ],
)
def test_case_057_the_database_refuses_to_change_what_was_issued(
    issued: Invoice, statement: str, sentence: str
) -> None:
    with refused(sentence):
        sql(statement)


def test_case_057_a_line_cannot_join_an_issued_invoice(issued: Invoice) -> None:
    line = issued.lines.get()
    line.pk, line.position = None, 2
    with refused("takes no more lines"):
        line.save()


def test_one_invoice_a_tenant_and_period(issued: Invoice) -> None:
    again = Invoice.objects.get(pk=issued.pk)
    again.pk, again.number = None, "INV-2026-0099"
    with pytest.raises(IntegrityError, match="one_invoice_per_tenant_and_period"), transaction.atomic():
        again.save(force_insert=True)


def test_an_invoice_whose_lines_do_not_add_up_cannot_be_issued() -> None:
    cluster = a_cluster(complete_through="2026-05-01")
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job())
    march = draft(vision, "2026-03")
    Invoice.objects.update(subtotal=201, total=201)

    with refused("do not add up to its subtotal"):
        issue(march, on=date(2026, 4, 1))
    with refused("invoice_net_plus_tax_is_total"):
        Invoice.objects.update(total=999)


@pytest.mark.parametrize("old", InvoiceState)
@pytest.mark.parametrize("new", InvoiceState)
def test_the_database_and_the_code_know_the_same_moves(
    issued: Invoice, old: InvoiceState, new: InvoiceState
) -> None:
    with as_owner() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE billing_invoice DISABLE TRIGGER USER")
        cursor.execute("UPDATE billing_invoice SET state = %s", [old])
        cursor.execute("ALTER TABLE billing_invoice ENABLE TRIGGER USER")
    allowed = new == old or new in MOVES[old]
    try:
        with transaction.atomic():
            Invoice.objects.update(state=new)
    except DatabaseError:
        assert not allowed
    else:
        assert allowed


def authors(of: type[Model]) -> list[str]:
    """Who made each change of the model's rows, oldest first."""
    return [entry.who for entry in AuditEntry.objects.of_table(of)]


def test_case_094_every_change_of_money_says_who_when_before_and_after() -> None:
    plan = a_plan()
    sql("UPDATE billing_price SET unit_price = 3")  # nobody says who, the database says what
    sql("UPDATE billing_plan SET currency = 'EUR'")
    with acting_as("op@cluster.example", why="new tariff"):
        Price.objects.update(unit_price=4)
    sql("UPDATE billing_price SET unit_price = 5")  # nor is it whoever acted before

    assert [str(price) for _, price in history(Price, "unit_price")] == [
        *("2.000000000000", "3.000000000000", "4.000000000000", "5.000000000000"),
    ]
    assert authors(Price) == ["", "", "op@cluster.example", ""]
    entry = AuditEntry.objects.of_table(Price).get(who="op@cluster.example")
    assert entry.changes == [("unit_price", Decimal(3), Decimal(4))]
    assert (entry.why, entry.at.tzinfo) == ("new tariff", UTC)
    assert history(Plan, "currency") == [("insert", "USD"), ("update", "EUR")]
    assert plan.name == "standard"


def test_case_094_ownership_payment_tenant_and_invoice_have_their_history(issued: Invoice) -> None:
    with acting_as("op@cluster.example"):
        own(a_tenant("audio-lab"), a_cluster(), "vision", since="2026-05-01")
    sql("UPDATE tenants_tenant SET tax_rate = 7 WHERE slug = 'vision-lab'")

    assert [(operation, until) for operation, until in history(Ownership, "until")] == [
        ("insert", None),
        ("update", "2026-05-01T00:00:00+00:00"),
        ("insert", None),
    ]
    assert authors(Ownership) == ["", "op@cluster.example", "op@cluster.example"]
    assert history(Payment, "amount", "recorded_by") == [("insert", 50, "op")]
    assert history(Invoice, "state", "total") == [("insert", "draft", 200), ("update", "issued", 200)]
    assert str(history(Tenant, "tax_rate")[-1][1]) == "7.000"
    assert {entry.tenant_id for entry in AuditEntry.objects.of(issued)} == {issued.tenant_id}
    assert {entry.tenant_id for entry in AuditEntry.objects.of(issued.tenant)} == {issued.tenant_id}
    assert Tenant.objects.count() == 2
    assert Ownership.objects.count() == 2


def test_case_094_the_history_itself_cannot_be_changed(issued: Invoice) -> None:
    for change in (
        "DELETE FROM audit_entry",
        "UPDATE audit_entry SET operation = 'insert', before = NULL",
        "UPDATE audit_entry SET who = 'somebody else'",
        "UPDATE audit_entry SET after = after || '{\"total\": 1}' WHERE \"table\" = 'billing_invoice'",
        "UPDATE audit_entry SET after = after - 'total' WHERE \"table\" = 'billing_invoice'",
        "INSERT INTO audit_entry SELECT * FROM audit_entry LIMIT 1",
        "TRUNCATE audit_entry",
        "INSERT INTO audit_commit (transaction, number) VALUES (-1, 1000000)",
        "UPDATE audit_commit SET number = number + 1000000",
        "UPDATE audit_commit SET number = NULL",
        "DELETE FROM audit_commit",
    ):
        with refused("The history is kept as it was written"), as_owner() as owner:
            owner.execute(change)
        with refused("The history is kept as it was written|permission denied for table audit_"):
            sql(change)
    assert Payment.objects.count() == 1


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE billing_price SET unit_price = 1",
        "UPDATE billing_price SET gpu_models = '{h100}'",
        "DELETE FROM billing_price",
        "UPDATE billing_planversion SET charges = '{cpu}'",
        "DELETE FROM billing_planversion",
        "UPDATE billing_plan SET currency = 'EUR'",
    ],
)
def test_terms_that_rated_usage_are_frozen_by_the_database(change: str) -> None:
    cluster = a_cluster()
    a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job())
    with refused("Usage has been rated by this"):
        sql(change)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE billing_plan SET currency = 'EUR'",
        "UPDATE billing_plan SET settles = 'wallet-first'",
        "UPDATE billing_planversion SET charges = '{cpu}'",
    ],
)
def test_terms_that_billed_a_fee_are_frozen_by_the_database_without_any_usage(change: str) -> None:
    plan = a_plan(effective_from=date(2026, 3, 1), prices=[])
    Fee.objects.create(version=plan.versions.get(), name="Base fee", amount=100)
    lab = a_tenant(plan=plan, plan_from=date(2026, 3, 1))
    closed("2026-03", lab)
    with refused("Usage has been rated by this plan, or a line billed|version of the plan, or a line billed"):
        sql(change)


def test_a_price_that_rated_usage_can_be_ended() -> None:
    cluster = a_cluster()
    a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job())
    sql("UPDATE billing_price SET valid_until = '2026-04-01'")
    assert Price.objects.get().valid_until == date(2026, 4, 1)
