"""A page asks the database as often for a hundred jobs as for ten."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from portal.core.tenants.models import User
from tests import builders, stories
from tests.web.house import House, a_house, signed_in

pytestmark = pytest.mark.django_db

PATHS = {
    "/t/vision-lab/": 25,
    "/t/vision-lab/costs/": 20,
    "/t/vision-lab/costs/?from=2026-03-01&through=2026-06-30&by=user&and=queue": 20,
    "/t/vision-lab/costs/csv?from=2026-03-01&through=2026-06-30&by=user": 20,
    "/t/vision-lab/costs/change/?from=2026-04-01&through=2026-06-30": 20,
    "/t/vision-lab/search/?q=1": 20,
    "/operator/search/?q=1": 20,
    "/t/vision-lab/live/": 25,
    "/t/vision-lab/jobs/": 20,
    "/t/vision-lab/jobs/{record}/": 20,
    "/t/vision-lab/efficiency/": 20,
    "/t/vision-lab/invoices/": 20,
    "/t/vision-lab/invoices/{number}/": 25,
    "/t/vision-lab/invoices/{number}/csv": 21,  # of them six marks of transactions and scopes
    "/t/vision-lab/invoices/{number}/lines/1/": 20,
    "/t/vision-lab/invoices/{number}/lines/1/csv": 20,
    "/t/vision-lab/notifications/": 20,
    "/operator/notifications/": 20,
    "/t/vision-lab/plan/": 20,
    "/t/vision-lab/plan/change/": 20,
    "/t/vision-lab/quote/": 20,
    "/t/vision-lab/quote/?hours=2&gpus=3&gpu_model=a100": 75,
    "/operator/": 20,
    "/operator/tenants/vision-lab/": 20,
    "/operator/unassigned/assign/?cluster=gpu1&account=nobody-1": 20,
    "/operator/plans/": 20,
    "/operator/sign-ups/": 20,
    "/operator/plans/vision-deal/": 25,
    "/operator/clusters/": 20,
    "/operator/reports/": 25,
    "/operator/reports/models/": 20,
    "/operator/exports/focus/": 20,
    "/operator/unassigned/": 20,
    "/operator/quarantine/": 20,
    "/operator/reconciliation/": 20,
    "/tenants/": 20,
}


def test_the_number_of_queries_does_not_grow_with_the_data() -> None:
    house = a_house()
    few = all_pages(house, grown(house, "2026-05", range(10)))
    many = all_pages(house, grown(house, "2026-06", range(10, 110)))
    assert many == few
    assert {path: queries for path, queries in many.items() if queries > PATHS[path]} == {}


def all_pages(house: House, named: dict[str, object]) -> dict[str, int]:
    """How many queries each page takes."""
    people = {path: house.op if path.startswith("/operator") else house.ann for path in PATHS}
    return {path: query_count(person, path, named) for path, person in people.items()}


def grown(house: House, month: str, jobs: range) -> dict[str, object]:
    """More of everything, in a closed month; returns what the path names of it."""
    for n in jobs:
        builders.own(house.vision, house.cluster, f"account-{n}", project=f"Project {n % 12}")
    builders.ingest(
        house.cluster,
        *(
            builders.a_job(
                account=f"account-{n}", user=f"u{n}", started=f"{month}-02 10:00", ended=f"{month}-02 11:00"
            )
            for n in jobs
        ),
        *(
            builders.a_job(
                account=f"nobody-{n}",
                started=f"{month}-02 10:00",
                ended=f"{month}-02 11:00",
                gpu_share=(1, 1 + n),
            )
            for n in jobs
        ),
        *(builders.a_bad_row(raw=f"{month} {n}") for n in jobs),
    )
    stories.close(month, house.vision, on="2026-08-01", accept="test")
    invoice = stories.invoice_of(house.vision, month)
    return {"number": invoice.number, "record": house.record("17")}


def query_count(person: User, path: str, named: dict[str, object]) -> int:
    client = signed_in(person)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        response = client.get(path.format(**named))
        assert response.status_code == 200
        response.getvalue()
    return len(queries)
