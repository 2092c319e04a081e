"""Files that a bucket has are fetched while no transaction is open: a slow store holds back nobody else."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from billing.models import Evidence, FocusFormat, Invoice, SealedMonth
from billing.reports import focus_exports
from billing.reports.tasks import perform_focus_export
from billing.sealed_months import drop, object_storage, unseal
from billing.tasks import render_document
from clusters.models import Cluster, Quarantined, UsageRecord
from portal.celery import app
from portal.core.tenants.models import Tenant, User
from tests.api.door import door
from tests.builders import a_cluster, a_job, a_person, a_plan, a_tenant, at, ingest
from tests.fakes.object_storage import Store
from tests.integration.test_sealed_months_in_a_bucket import (
    books,
    cached,
    drop_march,
    goes_away,
    server,
    store,
)
from tests.sealed_march import MARCH, sealed
from tests.stories import close, prove
from tests.web.house import signed_in

__all__ = ("books", "cached", "server", "store")
pytestmark = pytest.mark.django_db(transaction=True)

KNOWN = a_job(job_id="3", source_key="pod/without/month", user="zoë", account="nobody",
              started="2026-03-02 10:00", ended="2026-03-02 11:00")  # fmt: skip
LONGER = a_job(job_id="1", user="ben", gpus=4, name='train\n"one", two', started="2026-03-02 10:00",
               ended="2026-03-02 14:30")  # fmt: skip


class Fetches(list[tuple[str, bool]]):
    """Of each file that was fetched the kind, and whether a transaction was open."""

    @property
    def in_transactions(self) -> list[str]:
        return [kind for kind, is_open in self if is_open]


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> Fetches:
    done, read = Fetches(), object_storage.Bucket.read

    def watched(bucket: Any, file: Any, stream: Any) -> Any:
        done.append((file.kind, connection.in_atomic_block))
        return read(bucket, file, stream)

    monkeypatch.setattr(object_storage.Bucket, "read", watched)
    return done


@pytest.fixture
def ann(store: Store, books: None, cached: Path) -> User:
    """March is dropped, and the cache is lost."""
    sealed()
    drop_march()
    shutil.rmtree(cached)
    return a_person(tenant=Tenant.objects.get(slug="vision-lab"))


@pytest.mark.parametrize(
    "path",
    ["jobs/?period=2026-03-01", "jobs/csv?period=2026-03-01", "exports/focus?period=2026-03", "search/?q=1"],
)
def test_a_page_or_download_fetches_before_its_transaction(ann: User, fetches: Fetches, path: str) -> None:
    response: Any = signed_in(ann).get(f"/t/vision-lab/{path}", follow=True)
    assert response.status_code == 200
    if response.streaming:
        assert b"".join(response.streaming_content)
    assert fetches
    assert fetches.in_transactions == []
    assert len(fetches) == len(set(fetches))


def test_the_api_fetches_before_its_transaction(ann: User, fetches: Fetches) -> None:
    answer = door(ann, Tenant.objects.get(slug="vision-lab")).get(
        "/jobs?from=2026-03-01T00:00:00Z&to=2026-04-01T00:00:00Z"
    )
    assert (answer.status, len(answer.body["data"])) == (200, 2)
    assert fetches
    assert fetches.in_transactions == []


def test_an_import_fetches_before_its_transaction_and_stores_each_row_once(
    ann: User, fetches: Fetches
) -> None:
    stored = ingest(Cluster.objects.get(), KNOWN, LONGER, as_of="2026-05-02").stored
    assert (stored.new, stored.revised, stored.quarantined) == (0, 1, 0)
    assert {"records", "names", "jobs", "rated"} == {kind for kind, _ in fetches}
    assert fetches.in_transactions == []
    assert UsageRecord.objects.count() == 1
    assert SealedMonth.objects.get().dropped_at is not None
    prove()


@pytest.mark.parametrize("act", [drop.load_back, unseal.unseal_month])
def test_a_month_is_loaded_back_by_files_that_were_fetched_before(
    ann: User, fetches: Fetches, act: Callable[..., Any]
) -> None:
    assert act(month=MARCH)["jobs"] == 3
    assert len(fetches) == 6
    assert fetches.in_transactions == []
    prove()


def test_a_task_begins_again_once_its_files_are_there(ann: User, fetches: Fetches) -> None:
    invoice = Invoice.objects.get(tenant__slug="vision-lab", number__isnull=False)
    app.tasks[render_document.name](invoice_id=invoice.pk)  # as a worker calls it
    assert fetches
    assert fetches.in_transactions == []
    assert Evidence.objects.filter(invoice=invoice).count() == 1


def test_the_charges_of_many_tenants_are_begun_once_however_many_files_are_fetched(
    store: Store, cached: Path, fetches: Fetches
) -> None:
    cluster, plan = a_cluster(complete_through="2026-04-02"), a_plan()
    slugs = [f"lab-{number}" for number in range(focus_exports.ATTEMPTS + 2)]
    labs = [a_tenant(slug, plan=plan, accounts=[(cluster, slug)]) for slug in slugs]
    ingest(cluster, *(a_job(account=slug, source_key=slug) for slug in slugs), as_of="2026-05-02")
    close("2026-03", *labs, on="2026-04-03")
    sealed()
    drop_march()
    shutil.rmtree(cached)
    fetches.clear()
    export = focus_exports.request_export(
        month=date(2026, 3, 1), kind=FocusFormat.CSV, by="op", moment=at("2026-06-01")
    )
    app.tasks[perform_focus_export.name]()  # as a worker calls it
    export.refresh_from_db()
    assert (export.error, export.attempts, export.done) == ("", 1, len(labs))
    assert sum(kind == "rated" for kind, _ in fetches) == len(labs)
    assert fetches.in_transactions == []


def test_a_store_that_is_away_is_asked_once_and_never_in_a_transaction(
    ann: User, fetches: Fetches, settings: Any
) -> None:
    goes_away(settings)
    answer = signed_in(ann).get("/t/vision-lab/jobs/?period=2026-03-01")
    assert (answer.status_code, "cannot be read here now" in answer.content.decode()) == (409, True)
    assert len(fetches) == 1
    stored = ingest(Cluster.objects.get(), KNOWN, as_of="2026-05-02").stored
    assert (stored.new, stored.quarantined) == (0, 1)
    assert "is away or refuses" in Quarantined.objects.get().values["reason"]
    assert fetches.in_transactions == []


def test_a_file_that_the_store_has_no_more_is_named(ann: User, fetches: Fetches, store: Store) -> None:
    store.empty()
    assert signed_in(ann).get("/t/vision-lab/jobs/?period=2026-03-01").status_code == 409
