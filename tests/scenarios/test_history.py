"""The history keeps every change of what is money, whichever way it was made, and says who made it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal

import pytest
from django.db import DatabaseError, connection, transaction

from billing.invoicing import offboarding
from billing.models import SavedMethod, TaxRate
from clusters.models import Cluster
from portal.core.audit import acting_as
from portal.core.audit.models import AuditEntry
from portal.core.audit.tracking import TRACKED
from portal.core.tenants.models import Tenant
from tests.builders import a_cluster, a_person, a_tenant, at
from tests.history import history
from tests.owner import as_owner

MARCH = date(2026, 3, 1)


def rate(category: str = "standard", per_cent: str = "19", since: date = MARCH) -> TaxRate:
    return TaxRate(country="DE", region="", category=category, rate=Decimal(per_cent), since=since)


def sql(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def copy() -> None:
    columns = "billing_taxrate (country, region, category, rate, since)"
    with connection.cursor() as cursor, cursor.copy(f"COPY {columns} FROM STDIN") as rows:
        rows.write_row(("FR", "", "standard", Decimal(20), MARCH))


def first() -> TaxRate:
    return TaxRate.objects.get(category="standard", country="DE")


def changed(**values: object) -> None:
    row = first()
    for name, value in values.items():
        setattr(row, name, value)
    row.save()


def many() -> None:
    with connection.cursor() as cursor:
        cursor.executemany(
            "UPDATE billing_taxrate SET rate = %s WHERE category = %s", [(1, "standard"), (2, "reduced")]
        )


def by_name() -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE billing_taxrate SET rate = rate + %(more)s", {"more": 1})


INSERTED, UPDATED, DELETED = ["insert"], ["update"], ["delete"]
VALUES = "('FR', '', 'standard', 20, '2026-03-01')"
COLUMNS = "(country, region, category, rate, since)"
KINDS: dict[str, tuple[Callable[[], object], list[str]]] = {
    "create": (lambda: TaxRate.objects.create(country="FR", rate=20, since=MARCH), INSERTED),
    "save": (lambda: changed(rate=Decimal(16)), UPDATED),
    "delete": (lambda: first().delete(), DELETED),
    "update or create": (
        lambda: TaxRate.objects.update_or_create(country="DE", category="standard", defaults={"rate": 16}),
        UPDATED,
    ),
    "bulk create": (
        lambda: TaxRate.objects.bulk_create([rate("a"), rate("b")]),
        INSERTED * 2,
    ),
    "bulk update": (
        lambda: TaxRate.objects.bulk_update([TaxRate(pk=first().pk, rate=Decimal(7))], ["rate"]),
        UPDATED,
    ),
    "update of a query": (lambda: TaxRate.objects.update(rate=16), UPDATED * 2),
    "delete of a query": (lambda: TaxRate.objects.all().delete(), DELETED * 2),
    "INSERT": (lambda: sql(f"INSERT INTO billing_taxrate {COLUMNS} VALUES {VALUES}"), INSERTED),
    "UPDATE": (lambda: sql("UPDATE billing_taxrate SET rate = rate + 1 WHERE category = 'reduced'"), UPDATED),
    "UPDATE FROM": (
        lambda: sql("UPDATE billing_taxrate t SET rate = v.r FROM (VALUES (16)) v (r) WHERE t.rate > 10"),
        UPDATED,
    ),
    "DELETE": (lambda: sql("DELETE FROM billing_taxrate WHERE category = 'reduced'"), DELETED),
    "ON CONFLICT": (
        lambda: sql(
            f"INSERT INTO billing_taxrate (id, {COLUMNS[1:]} SELECT id, country, region, category, 16, since "
            "FROM billing_taxrate WHERE category = 'standard' ON CONFLICT (id) DO UPDATE SET rate = excluded.rate"
        ),
        UPDATED,
    ),
    "MERGE": (
        lambda: sql(
            f"MERGE INTO billing_taxrate t USING (VALUES {VALUES}, ('DE', '', 'standard', 16, '2026-03-01')) "
            "v (country, region, category, rate, since) ON t.country = v.country AND t.category = v.category "
            "WHEN MATCHED THEN UPDATE SET rate = v.rate WHEN NOT MATCHED THEN INSERT "
            f"{COLUMNS} VALUES (v.country, v.region, v.category, v.rate, v.since::date)"
        ),
        [*INSERTED, *UPDATED],
    ),
    "WITH": (
        lambda: sql(
            "WITH gone AS (DELETE FROM billing_taxrate WHERE category = 'reduced' RETURNING country, rate) "
            f"INSERT INTO billing_taxrate {COLUMNS} SELECT country, '', 'moved', rate, '2026-03-01' FROM gone"
        ),
        [*DELETED, *INSERTED],
    ),
    "COPY": (copy, INSERTED),
    "many times over": (many, UPDATED * 2),
    "with names": (by_name, UPDATED * 2),
    "another key": (
        lambda: sql("UPDATE billing_taxrate SET id = -1 WHERE category = 'reduced'"),
        UPDATED * 2,
    ),
}


@pytest.mark.django_db
@pytest.mark.parametrize("kind", KINDS)
def test_case_094_whichever_way_a_row_is_changed_it_is_kept_with_who_and_why(kind: str) -> None:
    TaxRate.objects.bulk_create([rate(), rate("reduced", "7")])
    make, operations = KINDS[kind]
    seen = AuditEntry.objects.latest("pk").pk
    with transaction.atomic(), acting_as("op", why="a new law", through="command apply"):
        make()
    entries = AuditEntry.objects.filter(pk__gt=seen).order_by("pk")
    assert sorted(entry.operation for entry in entries) == sorted(operations)
    assert {(entry.who, entry.why, entry.through) for entry in entries} == {
        ("op", "a new law", "command apply")
    }


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", ["save", "COPY", "many times over", "with names"])
def test_case_094_so_is_one_that_is_a_transaction_by_itself(kind: str) -> None:
    TaxRate.objects.bulk_create([rate(), rate("reduced", "7")])
    make, operations = KINDS[kind]
    seen = AuditEntry.objects.latest("pk").pk
    with acting_as("op", why="a new law", through="command apply"):
        make()
    assert not connection.in_atomic_block
    entries = AuditEntry.objects.filter(pk__gt=seen)
    assert sorted(entry.operation for entry in entries) == sorted(operations)
    assert {(entry.who, entry.why, entry.through) for entry in entries} == {
        ("op", "a new law", "command apply")
    }
    TaxRate.objects.update(rate=3)
    assert {entry.who for entry in AuditEntry.objects.order_by("-pk")[:2]} == {""}


@pytest.mark.django_db
def test_a_change_of_nothing_is_no_history() -> None:
    TaxRate.objects.bulk_create([rate(), rate("reduced", "7")])
    before = history(TaxRate)
    sql("UPDATE billing_taxrate SET rate = rate")
    assert history(TaxRate) == before


@pytest.mark.django_db
def test_many_rows_at_once_have_an_entry_each_with_what_changed_in_it_alone() -> None:
    days = [date(2026, 1, 1 + number % 28) for number in range(200)]
    rows = [rate(f"c{number}", str(number % 3), days[number]) for number in range(200)]
    TaxRate.objects.bulk_create(rows)
    sql("UPDATE billing_taxrate SET rate = 2, region = CASE WHEN rate = 0 THEN 'BY' ELSE region END")
    changes = [entry.changes for entry in AuditEntry.objects.filter(operation="update").order_by("pk")]
    assert sorted(changes) == sorted(
        [[("rate", Decimal(0), Decimal(2)), ("region", "", "BY")]] * 67
        + [[("rate", Decimal(1), Decimal(2))]] * 67
    )


@pytest.mark.django_db
def test_what_the_system_moves_by_itself_is_no_part_of_the_history() -> None:
    cluster = a_cluster(complete_through="2026-03-01")
    Cluster.objects.update(complete_through=at("2026-04-01"))
    assert history(cluster) == [("insert",)]
    assert not AuditEntry.objects.filter(after__has_key="complete_through").exists()


@pytest.mark.django_db
def test_the_tables_that_name_a_tenant_say_so_in_each_entry() -> None:
    a_tenant("vision-lab")
    named = {model.table for model in TRACKED if model.tenant}
    assert {"tenants_tenant", "billing_invoice", "billing_price", "tenants_ownership"} <= named
    assert AuditEntry.objects.of_table(Tenant).get().tenant_id == Tenant.objects.get().pk


@pytest.mark.django_db
def test_who_acts_is_told_apart_in_blocks_within_blocks_and_forgotten_after_them() -> None:
    row = rate()
    with acting_as("ann", through="page /t/vision-lab/"):
        row.save()
        with acting_as("op", why="asked for"):
            TaxRate.objects.update(rate=16)
        TaxRate.objects.update(rate=17)
        sql("UPDATE billing_taxrate SET category = '100%' WHERE category LIKE 'stand%'")
    TaxRate.objects.update(rate=18)
    entries = AuditEntry.objects.of(row)
    assert [(entry.who, entry.through, entry.why) for entry in entries] == [
        ("ann", "page /t/vision-lab/", ""),
        ("op", "page /t/vision-lab/", "asked for"),
        ("ann", "page /t/vision-lab/", ""),
        ("ann", "page /t/vision-lab/", ""),
        ("", "", ""),
    ]


@pytest.mark.django_db
def test_what_is_shown_of_a_card_is_erased_from_the_history_too() -> None:
    lab = a_tenant("vision-lab")
    a_person("ann@vision.example", lab)
    SavedMethod.objects.create(
        tenant=lab, external_id="pm_1", kind="card", brand="visa", last4="4242", added_at=at("2026-03-01")
    )
    offboarding.archive_tenant(tenant=lab, by="Op", reason="Contract ended", moment=at("2026-04-01"))
    offboarding.erase_tenant(tenant=lab, moment=at("2026-04-01"))
    inserted, updated = AuditEntry.objects.of_table(SavedMethod)
    assert {("brand", None, "(erased)"), ("last4", None, "(erased)"), ("kind", None, "card")} <= set(
        inserted.changes
    )
    assert ("last4", "(erased)", "") in updated.changes


@pytest.mark.django_db
def test_nothing_but_erasing_changes_the_history() -> None:
    rate().save()
    with acting_as("op"):
        TaxRate.objects.update(rate=16)
    for statement in ("who = 'ann'", "at = 'epoch'", "after = after || '{\"rate\": 0}'", "after = '{}'"):
        with (
            pytest.raises(DatabaseError, match="The history is kept as it was written"),
            as_owner() as owner,
        ):
            owner.execute(f"UPDATE audit_entry SET {statement} WHERE \"table\" = 'billing_taxrate'")


@pytest.mark.django_db
def test_case_086_the_people_of_a_tenant_are_erased_from_the_history_as_from_the_tables() -> None:
    lab = a_tenant("vision-lab", email="ann@vision.example", address="Gate 1")
    a_person("ann@vision.example", lab)
    a_person("ben@vision.example", lab)
    a_person("ben@vision.example", a_tenant("speech-lab"))
    for who, days in (("ann@vision.example", 30), ("ben@vision.example", 20)):
        with acting_as(who, through="page /t/vision-lab/"):
            Tenant.objects.filter(pk=lab.pk).update(payment_terms_days=days)
    offboarding.archive_tenant(tenant=lab, by="Op", reason="Contract ended", moment=at("2026-04-01"))

    for _ in range(2):  # a second time there is nothing left to erase
        offboarding.erase_tenant(tenant=lab, moment=at("2026-04-01"))
        entries = list(AuditEntry.objects.of(lab))
        assert [(entry.who, entry.after) for entry in entries[1:3]] == [
            ("an erased person", {"payment_terms_days": 30}),
            ("ben@vision.example", {"payment_terms_days": 20}),
        ]
        assert {("address", None, "(erased)"), ("name", None, "Vision Lab")} <= set(entries[0].changes)
        assert ("email", "(erased)", "") in entries[3].changes
        for column in ("before", "after", "who"):
            assert not AuditEntry.objects.filter(**{f"{column}__icontains": "ann@vision"}).exists()
            assert not AuditEntry.objects.filter(**{f"{column}__icontains": "Gate 1"}).exists()
