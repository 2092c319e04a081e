"""Kill -9 of the worker that writes the charges of all tenants: the next one writes the same file."""

from __future__ import annotations

import random
from datetime import date

import pytest

from billing.models import FocusExport, FocusExportPart, FocusFormat
from billing.reports import focus_exports
from tests.builders import a_cluster, a_job, a_plan, a_tenant, at, ingest
from tests.integration.operators import Operator
from tests.stories import close

pytestmark = pytest.mark.usefixtures("transactional_db")

NOW = at("2024-05-02")
LATER = at("2099-01-01")  # than the last file was written
MARCH = date(2024, 3, 1)
LABS = 12
WORKER = ("task", "billing.reports.tasks.perform_focus_export")


def request() -> FocusExport:
    return focus_exports.request_export(month=MARCH, kind=FocusFormat.CSV, by="op@lab.example", moment=LATER)


def begun() -> int:
    return FocusExport.objects.unfinished().filter(started_at__isnull=False).count()


def content(export: FocusExport) -> bytes:
    export.refresh_from_db()
    assert (export.error, export.ended_at is not None) == ("", True)
    return b"".join(focus_exports.open_file(export, by="op@lab.example", moment=NOW))


@pytest.mark.parametrize(
    ("seed", "kills"), [(0, 2), *(pytest.param(seed, 4, marks=pytest.mark.long) for seed in range(1, 4))]
)
def test_a_file_is_whole_or_not_there_and_the_next_worker_writes_it(
    seed: int, kills: int, database_url: str
) -> None:
    dice, cluster, plan = random.Random(seed), a_cluster(), a_plan()
    labs = [a_tenant(f"lab-{n}", plan=plan, accounts=[(cluster, f"lab-{n}")]) for n in range(LABS)]
    jobs = [
        a_job(
            job_id=str(1000 + job),
            account=f"lab-{job % LABS}",
            user=f"person-{job % 97}",
            started=f"2024-03-{1 + job % 28:02d} 10:00",
            ended=f"2024-03-{1 + job % 28:02d} 11:{job % 60:02d}",
        )
        for job in range(1200)
    ]
    ingest(cluster, *jobs, as_of="2024-05-01")
    for lab in labs:
        close("2024-03", lab, on="2024-05-01", now="2024-05-01")
    killed = 0
    with Operator(database_url) as op:
        first = request()
        took = op.does(*WORKER)
        whole = content(first)
        for turn in range(kills):  # the first as it begins, the others somewhere
            export, after = request(), dice.uniform(0, 0.5) * took if turn else 0
            killed += op.is_killed_doing(*WORKER, count=begun, at=1, after=after)
            export.refresh_from_db()
            parts = FocusExportPart.objects.filter(export=export).exists()
            assert parts == (export.ended_at is not None)
            op.does(*WORKER)
            assert content(export) == whole
    assert killed >= 1
    assert not FocusExport.objects.unfinished().exists()
