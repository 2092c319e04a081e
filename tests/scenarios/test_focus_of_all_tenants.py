"""The charges of all tenants in one dataset: the usage of everybody is read once, and each reads as by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from billing.models import BilledJob, Invoice
from billing.reports import focus, focus_documents, focus_files
from billing.reports.focus_documents import Document
from portal.core.tenants.models import Tenant
from tests.builders import a_cluster, a_job, a_plan, a_tenant, at, ingest
from tests.integration.test_race_for_the_same_rows import at_once
from tests.stories import closed

pytestmark = pytest.mark.django_db

NOW = at("2026-04-20 08:00")
LABS = ("audio-lab", "robot-lab", "vision-lab")


@pytest.fixture
def labs() -> list[Tenant]:
    """Three with a closed March each: Ben used a GPU of each, Ada one of the vision lab's."""
    cluster = a_cluster(complete_through="2026-09-01")
    plan = a_plan("standard")
    tenants = [a_tenant(slug, plan=plan, accounts=[(cluster, slug)]) for slug in LABS]
    ingest(
        cluster, *(a_job(account=slug, source_key=slug) for slug in LABS), a_job(account=LABS[-1], user="ada")
    )
    for tenant in tenants:
        closed("2026-03", tenant)
    return tenants


def charges_of(*tenants: Tenant) -> bytes:
    dataset = focus.make_dataset(tenants=tenants, month=(2026, 3), moment=NOW)
    return b"".join(focus_files.as_csv(dataset.charges))


def test_the_usage_of_all_tenants_is_read_at_once_and_reads_as_that_of_each(
    labs: list[Tenant], monkeypatch: pytest.MonkeyPatch
) -> None:
    header = charges_of()
    each = [charges_of(lab).removeprefix(header) for lab in labs]
    assert [text.count(b"\r\n") for text in each] == [1, 1, 2]
    reads: list[str] = []

    def counted(execute: Any, sql: Any, *rest: Any) -> Any:
        reads.extend(["usage"] if "billing_ratedusage" in str(sql) else [])
        return execute(sql, *rest)

    with connection.execute_wrapper(counted):
        assert charges_of(*labs) == header + b"".join(each)
        assert len(reads) == 1
        monkeypatch.setattr(focus, "TENANTS", 2)
        assert charges_of(*labs) == header + b"".join(each)
        assert len(reads) == 1 + 2


def test_a_job_that_changed_since_is_told_of_each_tenant_as_it_was_billed(labs: list[Tenant]) -> None:
    before = charges_of(*labs)
    ingest(a_cluster(), a_job(account="vision-lab", user="eva", source_key="new", ended="2026-03-02 10:30"))
    ingest(a_cluster(), *(a_job(account=slug, source_key=slug, queue="other") for slug in LABS))

    assert BilledJob.objects.values("tenant").distinct().count() == len(LABS)
    assert charges_of(*labs) == before


@pytest.mark.django_db(transaction=True)
def test_a_tenant_that_is_closed_meanwhile_is_in_the_month_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = a_cluster(complete_through="2026-09-01")
    plan = a_plan("standard")
    for slug in LABS:
        a_tenant(slug, plan=plan, accounts=[(cluster, slug)])
    ingest(cluster, *(a_job(account=slug, source_key=slug) for slug in LABS))
    tenants = list(Tenant.objects.order_by("slug"))
    drafted = focus_documents.drafted

    def closes_before(tenant: Tenant, *rest: Any, **options: Any) -> Iterator[Document]:
        monkeypatch.undo()
        at_once(lambda: closed("2026-03", tenant))
        yield from drafted(tenant, *rest, **options)

    monkeypatch.setattr(focus_documents, "drafted", closes_before)
    meanwhile = charges_of(*tenants)
    assert Invoice.objects.get().tenant == tenants[0]
    for content in (meanwhile, charges_of(*tenants)):
        assert [content.count(f"tenants/{slug}".encode()) for slug in LABS] == [1, 1, 1]
