"""What else happens while a month is dropped: no change that comes between is lost."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection

from billing.models import MonthProof, RatedJob, RatedUsage, SealedMonth
from billing.rating import engine
from billing.sealed_months import drop, month_files
from billing.sealed_months.errors import SealError
from clusters import absent_records, usage
from clusters.absent_records import MonthFilesError
from clusters.models import Account, Cluster, UsageRecord
from portal.core.tenants import ownership
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import tenant_scope
from tests.builders import a_job, at, ingest
from tests.sealed_march import MARCH, NOW, enter_march, rows, sealed
from tests.stories import close

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def books(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """March is sealed, and may be dropped."""
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"
    monkeypatch.setattr(drop, "ATTEMPTS", 2)
    enter_march()
    ingest(Cluster.objects.get(), as_of="2026-05-02")
    close("2026-04", on="2026-05-03")
    sealed()


@pytest.fixture
def other() -> Iterator[psycopg.Connection[Any]]:
    """Somebody else's connection to the database."""
    values = connection.get_connection_params()
    with psycopg.connect(
        **{name: values[name] for name in ("host", "port", "user", "password", "dbname") if name in values}
    ) as session:
        yield session


def meanwhile(monkeypatch: pytest.MonkeyPatch, happens: Any) -> None:
    """Let it happen once the files of the month are read."""
    compare = drop._compare

    def read(*values: Any) -> dict[str, int]:
        rows = compare(*values)
        happens()
        return rows

    monkeypatch.setattr(drop, "_compare", read)


def give_away() -> None:
    speech = Tenant.objects.get(slug="speech-lab")
    ownership.assign(account=Account.objects.get(name="vision"), tenant=speech, since=at("2026-03-02 11:00"))


def rate_given() -> None:
    give_away()
    engine.rate_accounts([Account.objects.get(name="vision").pk])


@pytest.mark.parametrize(
    "happens",
    [
        give_away,
        rate_given,
        lambda: ingest(Cluster.objects.get(), a_job(job_id="9", started="2026-03-09 10:00", ended="2026-03-09 11:00")),
    ],
    ids=["an account changes hands", "and is rated again", "a late job arrives"],
)  # fmt: skip
def test_a_month_is_not_dropped_of_which_something_changes_while_its_files_are_read(
    monkeypatch: pytest.MonkeyPatch, happens: Any
) -> None:
    meanwhile(monkeypatch, happens)
    with pytest.raises(
        SealError, match=r"Something of 2026-03 was written meanwhile|2026-03 was changed since"
    ):
        drop.drop_month(month=MARCH, moment=NOW, all_processes_replaced=True)
    assert SealedMonth.objects.get().dropped_at is None
    assert UsageRecord.objects.exists()


def test_who_asked_which_months_are_dropped_reads_their_rows_to_the_end_of_its_transaction(
    other: psycopg.Connection[Any],
) -> None:
    before = rows()
    assert other.execute("SELECT count(*) FROM billing_dropped_months()").fetchone() == (0,)
    with pytest.raises(SealError, match="Somebody reads or writes 2026-03 right now"):
        drop.drop_month(month=MARCH, moment=NOW, all_processes_replaced=True)
    assert rows() == before
    other.rollback()
    assert drop.drop_month(month=MARCH, moment=NOW, all_processes_replaced=True).dropped_at == NOW


def test_a_month_is_not_dropped_under_a_dump_that_may_not_have_locked_its_tables_yet(
    other: psycopg.Connection[Any],
) -> None:
    other.execute("SET application_name = 'pg_dump'")
    other.commit()
    with pytest.raises(SealError, match="such as a backup"):
        drop.drop_month(month=MARCH, moment=NOW, all_processes_replaced=True)
    assert SealedMonth.objects.get().dropped_at is None


@pytest.mark.django_db(transaction=True)
def test_rating_gives_way_to_an_import_that_loads_the_month_back_and_comes_again(
    other: psycopg.Connection[Any],
) -> None:
    drop.drop_month(month=MARCH, moment=NOW, all_processes_replaced=True)
    give_away()
    other.execute("SELECT FROM billing_sealedmonth FOR UPDATE")
    with pytest.raises(MonthFilesError, match="2026-03 is being loaded back by somebody else"):
        engine.rate_accounts([Account.objects.get(name="vision").pk])
    assert SealedMonth.objects.get().dropped_at == NOW
    other.rollback()
    engine.rate_accounts([Account.objects.get(name="vision").pk])
    assert SealedMonth.objects.get().dropped_at is None


def test_who_reads_the_month_for_a_moment_is_waited_for(
    other: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    other.execute("SELECT count(*) FROM billing_ratedusage_2026_03")
    monkeypatch.setattr(drop, "ATTEMPTS", 5)
    empty, turns = connection.execute_wrapper, []

    def leave_later(execute: Any, sql: str, *values: Any) -> Any:
        if "billing_drop_month" in sql:
            turns.append(sql)
            if len(turns) == 3:
                other.rollback()
        return execute(sql, *values)

    with empty(leave_later):
        assert drop.drop_month(month=MARCH, moment=NOW, all_processes_replaced=True).dropped_at == NOW
    assert len(turns) == 3


def test_a_month_that_is_dropped_between_two_slices_is_loaded_back_where_they_change_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vision = Account.objects.get(name="vision")
    monkeypatch.setattr(usage, "load_all", lambda accounts: None)

    def slices(accounts: Any) -> Iterator[tuple[int, int]]:
        drop.drop_month(month=MARCH, moment=NOW, all_processes_replaced=True)
        SealedMonth.objects.update(terms="others")
        yield 0, 2**62

    monkeypatch.setattr(usage, "slices", slices)
    engine.rate_accounts([vision.pk])
    assert absent_records.list_all() == []
    assert UsageRecord.objects.exists()


def test_the_terms_of_dropped_months_are_asked_for_by_the_first_slice_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drop.drop_month(month=MARCH, moment=NOW, all_processes_replaced=True)
    vision = Account.objects.get(name="vision")
    proofs, terms_of = [], month_files.terms_of

    def ask(proof: MonthProof) -> str:
        proofs.append(proof)
        return terms_of(proof)

    monkeypatch.setattr(month_files, "terms_of", ask)
    engine.rate_slice([vision.pk])
    assert len(proofs) == 1
    engine.rate_slice([vision.pk], after=1)
    assert len(proofs) == 1


@pytest.mark.django_db(transaction=True)
def test_who_reads_a_month_from_its_files_sees_each_row_once_while_somebody_loads_it_back() -> None:
    jobs, rated = RatedJob.objects.filter(tenant__slug="vision-lab"), RatedUsage.objects.all()
    before = jobs.count(), sum(rated.values_list("units", flat=True))
    drop.drop_month(month=MARCH, moment=NOW, all_processes_replaced=True)

    def load_back() -> None:
        drop.load_back(month=MARCH)
        connection.close()

    with tenant_scope(Tenant.objects.get(slug="vision-lab")):
        assert not jobs.exists()
        absent_records.show([MARCH])
        own = jobs.count(), sum(rated.values_list("units", flat=True))
        with ThreadPoolExecutor(1) as somebody:
            somebody.submit(load_back).result()
        assert (jobs.count(), sum(rated.values_list("units", flat=True))) == own
        assert jobs.filter(pk__in=jobs.values("pk")).count() == before[0]
    assert (jobs.count(), sum(rated.values_list("units", flat=True))) == before
    assert own[0] == before[0]
