"""No page of a tenant asks more than any other because its rows stand in files, however many months are dropped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urljoin, urlsplit

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import resolve

from billing.models import RatedJob
from billing.sealed_months import drop, seal
from portal.core.tenants.models import Membership, Tenant
from tests.builders import a_job, a_person, ingest
from tests.sealed_march import NOW, enter_march
from tests.stories import close
from tests.web.house import House, a_house, signed_in
from tests.web.test_access import ACTS, NOT_YET, TENANTS, address
from tests.web.test_dropped_months_read import dropped as drop_march
from tests.web.test_dropped_months_read import sealed as seal_march
from tests.web.test_page_weight import ASKED, QUERIES, is_question

pytestmark = pytest.mark.django_db(transaction=True)  # what is shown of files goes as a transaction ends

MONTHS = [date(2026, month, 1) for month in range(3, 9)]
OF_ALL = "from=2026-03-01&through=2026-08-31"
BEGUN_BEFORE = "from=2026-04-01&through=2026-08-31"
CHANGED = (
    "from=2026-06-01&through=2026-08-31&compare=other&earlier_from=2026-03-01&earlier_through=2026-05-31"
)
FORMS = [  # what people choose in forms, to which no link leads
    "search/?q=17",
    "search/?q=300",
    *(f"jobs/{kind}{days}" for days in ("period=2026-03-01", OF_ALL, BEGUN_BEFORE) for kind in ("?", "csv?")),
    *(f"jobs/?{BEGUN_BEFORE}&totals=1&sort={order}" for order in ("newest", "oldest", "cost", "gpu-hours")),
    "jobs/?period=2026-03-01&totals=1&sort=cost",
    "jobs/?period=2026-03-01&totals=1&user=ben&mine=1",
    "costs/?from=2026-03-01&through=2026-03-04&interval=hour",
    f"costs/change/?{CHANGED}",
    f"costs/change/?{CHANGED}&by=user&and=queue",
    *(f"efficiency/?{OF_ALL}&by={by}" for by in ("project", "user", "pod")),
    f"efficiency/?{OF_ALL}&by=user&top=1",
    f"efficiency/csv?{OF_ALL}",
    f"efficiency/waste/idle-tail/?{OF_ALL}",
    "?period=2026-03-01",
    "exports/focus?period=2026-03",
]
MORE = {"/t/vision-lab/exports/focus?period=2026-03": 28}
"""A file of all documents of a month, each of which it asks for; and twice, as it is refused before it is sent."""


class Cost(NamedTuple):
    """What a page asked the database."""

    statements: int
    of_files: bool
    status: int


@pytest.fixture(autouse=True)
def directory(settings: Any, tmp_path: Path) -> None:
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"


@pytest.fixture
def house() -> House:
    """From March to August jobs of each kind, which may be sealed; of September there are some in their tables."""
    house = a_house(close=False)
    months = [f"2026-{month:02d}" for month in range(3, 10)]
    for month, after in zip(months, [*months[1:], "2026-10"], strict=True):
        tasks = {"name": "sweep", "user": "mia", "started": f"{month}-05 10:00", "ended": f"{month}-05 12:00"}
        pods = {"name": "train", "started": f"{month}-06 10:00", "ended": f"{month}-06 12:00"}
        into = after if after < "2026-09" else month  # what ran into September could not be sealed without it
        ingest(
            house.cluster,
            *(a_job(job_id=f"{month[-1]}00_{number}", **tasks) for number in range(2)),
            *(
                a_job(job_id=f"team/train-{number}", source_key=f"{month}/{number}", **pods)
                for number in range(2)
            ),
            a_job(job_id=f"{month[-1]}77", started=f"{month}-28 20:00", ended=f"{into}-28 21:00"),
            a_job(
                job_id=f"{month[-1]}78",
                user="eve",
                account="speech",
                started=f"{month}-07",
                ended=f"{month}-08",
            ),
            as_of="2026-10-05",
        )
    for month in months:
        close(month, on="2026-10-06")
    for first in MONTHS:
        seal.seal_month(month=first, moment=NOW, quiet_months=12)
    return house


def dropped(*months: date) -> None:
    for month in months:
        drop.drop_month(month=month, moment=NOW, all_processes_replaced=True)


def walked(client: Client, paths: Sequence[str]) -> list[str]:
    """These, and what links on pages lead to: of each page one with the same names in its query."""
    reached = {_kind(path): path for path in paths}
    left = list(reached.values())
    while left:
        path = left.pop()
        response: Any = client.get(path)
        content = response.getvalue()
        if response.status_code != 200 or not response.headers["Content-Type"].startswith("text/html"):
            continue
        for link in re.findall(r'href="([^"]+)"', content.decode()):
            target = urljoin(path, unescape(link)).partition("#")[0]
            if target.startswith("/t/vision-lab/") and (kind := _kind(target)) not in reached:
                reached[kind] = target
                left.append(target)
    return list(dict.fromkeys([*paths, *reached.values()]))


def _kind(path: str) -> tuple[str, ...]:
    split = urlsplit(path)
    return resolve(split.path).route, *sorted(name for name, _ in parse_qsl(split.query))


def cost_of(client: Client, path: str) -> Cost:
    connection.queries_log.clear()  # which has room for a thousandfold of a page's
    with CaptureQueriesContext(connection) as queries:
        response: Any = client.get(path)
        response.getvalue()
    statements = [query["sql"] or "" for query in queries]
    count = sum(is_question(sql) for sql in statements)
    return Cost(count, any("INSERT INTO shown_job" in sql for sql in statements), response.status_code)


def test_a_page_asks_as_often_for_six_dropped_months_as_for_one(house: House) -> None:
    ann = signed_in(house.ann)
    seeds = [
        address(route, house) + ASKED.get(route, "")
        for route in TENANTS
        if route not in ACTS and route not in NOT_YET
    ]
    pod = RatedJob.objects.filter(part_of="team/train").order_by("record_id")[0].record_id
    seeds += [f"/t/vision-lab/{form}" for form in FORMS] + [f"/t/vision-lab/jobs/{pod}/"]
    paths = walked(ann, seeds)
    dropped(MONTHS[0])
    one = {path: cost_of(ann, path) for path in paths}
    dropped(*MONTHS[1:])
    six = {path: cost_of(ann, path) for path in paths}
    of_files = [path for path in paths if one[path].of_files]
    assert len(of_files) > 30
    assert {path: (one[path], six[path]) for path in of_files if one[path] != six[path]} == {}
    assert {path: six[path] for path in paths if six[path].statements > MORE.get(path, QUERIES)} == {}
    longer = {"name": "train", "started": "2026-03-06 10:00", "ended": "2026-03-06 13:00"}
    ingest(house.cluster, a_job(job_id="team/train-0", source_key="2026-03/0", **longer), as_of="2026-10-07")
    assert (
        RatedJob.objects.get(part_of="team/train", tenant=house.vision, started__lt=1775000000).record_id
        == pod
    )
    late = cost_of(ann, f"/t/vision-lab/jobs/{pod}/")
    assert late.of_files
    assert late.statements <= QUERIES


def test_nor_does_one_of_who_sees_their_own_usage_alone(house: House) -> None:
    Tenant.objects.filter(pk=house.vision.pk).update(members_see_own=True)
    Membership.objects.filter(user=house.ben).update(scheduler_users=["ben"])
    ben, record = signed_in(house.ben), RatedJob.objects.filter(job_id="team/train-0").first()
    assert record is not None
    paths = [
        f"/t/vision-lab/jobs/?{OF_ALL}&totals=1",
        f"/t/vision-lab/jobs/csv?{OF_ALL}",
        "/t/vision-lab/search/?q=77",
    ]
    paths.append(f"/t/vision-lab/jobs/{record.record_id}/")
    dropped(*MONTHS)
    for path in paths:
        cost = cost_of(ben, path)
        assert cost.of_files, path
        assert cost.statements <= QUERIES, (path, cost)


@pytest.mark.sample
def test_of_one_dropped_month_a_list_and_its_totals_ask_no_more_than_any_page() -> None:
    enter_march()
    seal_march()
    drop_march()
    ann = signed_in(a_person(tenant=Tenant.objects.get(slug="vision-lab")))
    for path in ("/t/vision-lab/jobs/?period=2026-03-01", "/t/vision-lab/jobs/?period=2026-03-01&totals=1"):
        cost = cost_of(ann, path)
        assert cost.of_files, path
        assert cost.statements <= QUERIES, (path, cost)
