"""An invoice over very many jobs: its lines are few, its PDF is small, and each job is a row of its table."""

from __future__ import annotations

import io
from datetime import date

import pytest
from pypdf import PdfReader

from billing.documents import build, pdf
from billing.invoicing import numbering
from billing.models import Invoice, InvoiceSeries
from billing.queries import line_usage
from billing.reports import focus, focus_documents, focus_files, focus_use
from portal.core.tenants.models import Tenant
from tests.builders import a_cluster, a_job, a_plan, a_seller, a_tenant, at, ingest, own
from tests.stories import close, draft, invoice_of, lines_of, prove, total
from tests.tiers import LONG

pytestmark = pytest.mark.django_db

JOBS = 200_000 if LONG else 4_000
PROJECTS = ("audio", "speech", "vision", "robots")
MEGABYTE = 1 << 20


@pytest.fixture
def lab() -> Tenant:
    a_seller()
    cluster = a_cluster(complete_through="2027-01-01")
    lab = a_tenant(plan=a_plan(), accounts=[(cluster, name) for name in PROJECTS])
    jobs = (
        a_job(account=PROJECTS[n % 4], started="2026-03-02 10:00:00", ended="2026-03-02 10:00:37")
        for n in range(JOBS)
    )
    ingest(cluster, *jobs)
    return lab


@pytest.mark.larger
def test_case_060_very_many_jobs_are_few_lines_and_a_small_pdf(lab: Tenant) -> None:
    close("2026-03")
    march = invoice_of(lab, "2026-03")
    assert sorted(line.project for line in lines_of(march)) == sorted(PROJECTS)
    table = b"".join(line_usage.as_csv(march, lines_of(march))).decode()
    assert len(table.splitlines()) == JOBS + 1
    document = pdf.render(build.document_of(march))
    assert len(document) < 2 * MEGABYTE
    assert len(PdfReader(io.BytesIO(document)).pages) == 1
    # 37 s at 2.00 an hour: each project rounded once
    assert total(march) == {4_000: "82.24", 200_000: "4111.12"}[JOBS]
    prove()


def test_case_060_very_many_lines_are_summed_on_the_pdf_alone(
    lab: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = a_cluster()
    for n in range(3):
        own(lab, cluster, f"team-{n}")
        ingest(cluster, a_job(account=f"team-{n}", ended="2026-03-02 10:30"))
    close("2026-03")
    march = invoice_of(lab, "2026-03")
    whole = build.document_of(march)
    assert len(whole.lines) == 7

    monkeypatch.setattr(build, "MOST_LINES", 5)
    summed = build.document_of(march)

    assert [(line.project, line.unit_price, line.amount) for line in summed.lines] == [
        ("7 projects", "$2.00", whole.subtotal)
    ]
    assert "summed over projects" in summed.notes
    assert (summed.subtotal, summed.total) == (whole.subtotal, whole.total)


def test_case_056_a_draft_that_is_dropped_uses_no_number(lab: Tenant) -> None:
    march = draft(lab, "2026-03")
    assert march.number is None
    numbering.discard_draft(invoice=march)
    assert not Invoice.objects.exists()
    assert not InvoiceSeries.objects.exists()

    close("2026-03", on="2026-04-03")
    assert invoice_of(lab, "2026-03").number == "INV-2026-0001"
    assert InvoiceSeries.objects.get().last_number == 1
    assert invoice_of(lab, "2026-03").issued_on == date(2026, 4, 3)


def test_an_export_of_very_many_jobs_begins_with_the_first_line_alone_and_is_the_same(
    lab: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    close("2026-03")
    march = invoice_of(lab, "2026-03")
    document = next(focus_documents.issued(lab, (2026, 3)))
    lines = [(0, document, line) for line in lines_of(march)]

    def export() -> bytes:
        dataset = focus.make_dataset(tenants=[lab], month=(2026, 3), moment=at("2026-08-01"))
        return b"".join(focus_files.as_csv(dataset.charges))

    monkeypatch.setattr(focus_use, "MANY_JOBS", JOBS - 1)
    assert len(focus_use._split_lines(lines)) == 1  # their jobs were not counted yet
    line_usage.keep(march)
    begun_soon = export()
    assert [[line.position for _, _, line in part] for part in focus_use._split_lines(lines)] == [
        [1],
        [2, 3, 4],
    ]
    monkeypatch.setattr(focus_use, "MANY_JOBS", JOBS)
    assert [len(part) for part in focus_use._split_lines(lines)] == [4]
    assert export() == begun_soon
    assert len(begun_soon.splitlines()) == 1 + len(lines)


def test_an_invoice_of_very_many_jobs_as_csv_begins_with_the_first_line_alone_and_is_the_same(
    lab: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    close("2026-03")
    march = invoice_of(lab, "2026-03")
    lines = lines_of(march)

    def export() -> bytes:
        return b"".join(line_usage.as_csv(march, lines))

    monkeypatch.setattr(line_usage, "MANY_JOBS", JOBS - 1)
    assert line_usage._split_lines(march, lines) == [slice(0, None)]  # their jobs were not counted yet
    line_usage.keep(march)
    assert line_usage._split_lines(march, lines) == [slice(0, 1), slice(1, None)]
    begun_soon = export()
    monkeypatch.setattr(line_usage, "MANY_JOBS", JOBS)
    assert line_usage._split_lines(march, lines) == [slice(0, None)]
    assert export() == begun_soon
    assert len(begun_soon.splitlines()) == 1 + JOBS
