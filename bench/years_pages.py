"""Every page of the portal at ten million jobs: a tenant's for the largest and an ordinary one in turn, and operators'.

Beside each the smallest site answers a page of the same size.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from bench import lab_life
from bench.meter import family_cpu
from bench.pages import at95
from bench.result import Figure
from bench.served import Site
from billing.models import InvoiceLine, PeriodTopJob, RatedJob, Wallet
from billing.rules.period import shifted
from portal.core.outbox import outbox
from portal.core.tenants.models import Tenant, User

REQUESTS = 60  # of each page, and a third of them before, which are not measured
FLOOR_ROWS = 1_000  # the most that the smallest site has
TIMES_FLOOR, TIMES_ORDINARY = 2.5, 1.2
OPEN = (200, 302)  # what a search finds alone, it opens


@dataclass(frozen=True)
class Look:
    """Pages by name, all of one person, whose session the cookie is of."""

    person: User
    cookie: str
    pages: dict[str, str]


@dataclass(frozen=True)
class Timed:
    """Seconds of each request by the clock on the wall, and the CPU of site and database that all of them took."""

    walls: list[float]
    cpu: float

    @property
    def late(self) -> float:
        return at95(self.walls)

    @property
    def mean_cpu(self) -> float:
        return self.cpu / len(self.walls)

    def text(self) -> str:
        return f"{self.late * 1000:.0f} ms, {self.mean_cpu * 1000:.1f} of CPU"


@dataclass(frozen=True)
class Sites:
    """Ours and the smallest, and the server of their databases."""

    web: Site
    floor: Site
    postmaster: int
    requests: int = REQUESTS

    def of_tenants(self, name: str, large: Look, other: Look) -> Iterator[Figure]:
        queries = [_count(look, name) for look in (large, other)]
        works = [_request(self.web, look, name) for look in (large, other)]
        if streams(name):
            most, few = self._in_turn(*works)
        else:
            most, few, least = self._in_turn(*works, _same_size(self.web, self.floor, other, name))
            yield _figure(name, few, least, queries[1], "the smallest site's", TIMES_FLOOR)
        yield _figure(f"{name} of the largest", most, few, queries[0], "an ordinary one's", TIMES_ORDINARY)

    def of_operators(self, name: str, look: Look) -> Figure:
        queries = _count(look, name)
        least = _same_size(self.web, self.floor, look, name)
        ours, smallest = self._in_turn(_request(self.web, look, name), least)
        return _figure(f"operator: {name}", ours, smallest, queries, "the smallest site's", TIMES_FLOOR)

    def from_files(self, name: str, large: Look, other: Look) -> Figure:
        queries = _count(large, name)
        most, few = self._in_turn(*(_request(self.web, look, name) for look in (large, other)))
        return _figure(f"from files: {name} of the largest", most, few, queries, "an ordinary one's", None)

    def _in_turn(self, *works: Callable[[], object]) -> list[Timed]:
        """One request of each after the other: what is next to them on the machine slows all."""
        walls: list[list[float]] = [[] for _ in works]
        spent = [0.0 for _ in works]
        warm = self.requests // 3
        for number in range(warm + self.requests):
            for place, work in enumerate(works):
                cpu, began = self._cpu(), time.perf_counter()
                work()
                if number >= warm:
                    walls[place].append(time.perf_counter() - began)
                    spent[place] += self._cpu() - cpu
        return [Timed(*sample) for sample in zip(walls, spent, strict=True)]

    def _cpu(self) -> float:
        return sum(family_cpu(pid) for pid in (self.web.process.pid, self.floor.process.pid, self.postmaster))


def figures(
    sites: Sites, people: lab_life.People, largest: Tenant, ordinary: Tenant, month: date
) -> Iterator[Figure]:
    """Of each page how long it takes at the 95th percentile, in times of what it is measured by, and its queries."""
    cookie = lab_life.cookie_of(people.owner)
    large, other = (Look(people.owner, cookie, tenant_pages(tenant, month)) for tenant in (largest, ordinary))
    for name in other.pages:
        yield from sites.of_tenants(name, large, other)
    operators = Look(people.operator, lab_life.cookie_of(people.operator), operator_pages(largest, month))
    for name in operators.pages:
        yield sites.of_operators(name, operators)


def from_files(
    sites: Sites, people: lab_life.People, largest: Tenant, ordinary: Tenant, month: date
) -> Iterator[Figure]:
    """The same of pages whose rows are in files alone."""
    cookie = lab_life.cookie_of(people.owner)
    large, other = (
        Look(people.owner, cookie, pages_of_files(tenant, month)) for tenant in (largest, ordinary)
    )
    for name in other.pages:
        yield sites.from_files(name, large, other)


def _figure(name: str, ours: Timed, other: Timed, queries: int, of: str, goal: float | None) -> Figure:
    title = f"{name}: {queries} queries, p95 {ours.text()}; in times of {of}, {other.text()}"
    return Figure(f"{title}, CPU {ours.cpu / other.cpu:.2f} ×", ours.late / other.late, goal)


def tenant_pages(tenant: Tenant, month: date) -> dict[str, str]:
    """What a tenant reads, of the month that was closed last where a page has a range."""
    paths = {**_of_usage(tenant, month), **_of_money(tenant, month)}
    return {name: f"/t/{tenant.slug}/{path}" for name, path in paths.items()}


def _of_usage(tenant: Tenant, month: date) -> dict[str, str]:
    last = _after(month) - timedelta(days=1)
    days, period = f"from={month}&through={last}", f"period={month}"
    year = f"from={month.year}-01-01&through={month.year}-12-31&step=month"
    user, job = lab_life.user_of(tenant), _a_job(tenant)
    return {
        "overview": f"?{period}",
        "running now": "live/",
        "costs by project": f"costs/?{days}",
        "costs by user": f"costs/?{days}&by=user",
        "costs of a year by user and model": f"costs/?{year}&by=user&and=gpu_model",
        "costs of a year as CSV": f"costs/csv?{year}&by=user",
        "what changed": f"costs/change/?{days}",
        "efficiency": f"efficiency/?{days}",
        "efficiency by user": f"efficiency/?{days}&by=user&top=5",
        "time limits above use": f"efficiency/waste/time-limit/?{days}",
        "jobs": "jobs/",
        "jobs of a month": f"jobs/?{period}",
        "oldest jobs of a month": f"jobs/?{period}&sort=oldest",
        "jobs by cost": f"jobs/?{period}&sort=cost",
        "jobs by GPU-hours": f"jobs/?{period}&sort=gpu-hours",
        "failed jobs by cost": f"jobs/?{period}&sort=cost&state=FAILED",
        "jobs of a user": f"jobs/?{period}&user={user}",
        "my jobs": "jobs/?mine=1",
        "jobs of some days": f"jobs/?from={month}&through={month + timedelta(days=6)}",
        "a job": f"jobs/{job.record_id}/",
        "jobs as CSV, first bytes": f"jobs/csv?{period}",
        "search for a job": f"search/?q={job.job_id}",
        "search for a user": f"search/?q={user}",
    }


def pages_of_files(tenant: Tenant, month: date) -> dict[str, str]:
    """What a tenant reads of a month whose rows were dropped."""
    lines = InvoiceLine.objects.filter(tenant=tenant, service_period__start__date=month)
    line = lines.order_by("position")[0]
    top = PeriodTopJob.objects.filter(tenant=tenant, period__start__date=month)[0]
    period, invoice = f"period={month}", f"invoices/{line.invoice.number}"
    paths = {
        "jobs of a month": f"jobs/?{period}",
        "jobs by cost": f"jobs/?{period}&sort=cost",
        "a job": f"jobs/{top.record_id}/",
        "jobs of an invoice's line": f"{invoice}/lines/{line.position}/",
        "jobs as CSV, first bytes": f"jobs/csv?{period}",
    }
    return {name: f"/t/{tenant.slug}/{path}" for name, path in paths.items()}


def _of_money(tenant: Tenant, month: date) -> dict[str, str]:
    line = InvoiceLine.objects.filter(tenant=tenant, service_period__start__date=month).order_by("position")[
        0
    ]
    invoice = f"invoices/{line.invoice.number}"
    wallet = f"wallets/{Wallet.objects.get(scheme__tenant=tenant).pk}"
    return {
        "plan": "plan/",
        "calculator": "quote/",
        "quote": "quote/?gpus=4&hours=10&gpu_model=h100",
        "invoices": "invoices/",
        "invoice": f"{invoice}/",
        "jobs of an invoice's line": f"{invoice}/lines/{line.position}/",
        "an invoice as CSV, first bytes": f"{invoice}/csv",
        "a line as CSV, first bytes": f"{invoice}/lines/{line.position}/csv",
        "FOCUS as CSV, first bytes": f"exports/focus?period={month:%Y-%m}",
        "account": f"account/?year={month.year}",
        "wallets": "wallets/",
        "wallet": f"{wallet}/",
        "a wallet's statement": f"{wallet}/statement/",
        "payment": "payment/",
        "budgets": "budgets/",
        "a budget": "budgets/at/year/",
        "idle jobs": "idle-jobs/",
        "team": "team/",
        "billing settings": "billing/",
        "notifications": "notifications/",
        "keys": "api-keys/",
        "webhooks": "webhooks/",
        "audit": "history/",
        "audit as CSV, first bytes": "history/csv",
    }


def operator_pages(tenant: Tenant, month: date) -> dict[str, str]:
    """What operators read, of that tenant where a page is of one."""
    last = _after(month) - timedelta(days=1)
    days, job = f"from={month}&through={last}", _a_job(tenant)
    paths = {
        "home": "operator/",
        "tenants": "tenants/",
        "tenant": f"operator/tenants/{tenant.slug}/",
        "team of a tenant": f"operator/tenants/{tenant.slug}/team/",
        "receivables": "operator/receivables/",
        "close": f"operator/close/?month={_after(month):%Y-%m}",
        "close of the last month": f"operator/close/?month={month:%Y-%m}",
        "quarantine": "operator/quarantine/",
        "unassigned usage": "operator/unassigned/",
        "clusters": "operator/clusters/",
        "cluster": "operator/clusters/gpu1/",
        "margin": f"operator/reports/?{days}",
        "margin by model": f"operator/reports/?{days}&by=model",
        "search for a job": f"operator/search/?q={job.job_id}",
        "search for a tenant": f"operator/search/?q={tenant.slug}",
        "history": "operator/history/",
        "history of a tenant": f"operator/history/?tenant={tenant.slug}",
        "plans": "operator/plans/",
        "plan": "operator/plans/standard/",
        "budgets": "operator/budgets/",
        "bank transfers": "operator/bank-transfers/",
        "reconciliation": "operator/reconciliation/",
        "idle jobs": "operator/idle-jobs/",
        "people": "operator/people/",
    }
    return {name: f"/{path}" for name, path in paths.items()}


def streams(name: str) -> bool:
    """Whether only its beginning is waited for."""
    return name.endswith("first bytes")


def _after(month: date) -> date:
    return date(*shifted((month.year, month.month), 1), 1)


def _a_job(tenant: Tenant) -> RatedJob:
    return RatedJob.objects.runs().filter(tenant=tenant).order_by("-shown_at", "-record_id")[9]


def _count(look: Look, name: str) -> int:
    """How many queries the page asks. Then what it left to a worker is done, so that the next shows it."""
    client = Client(SERVER_NAME="127.0.0.1")
    client.force_login(look.person)
    path = look.pages[name]
    client.get(path)
    outbox.drain()
    with CaptureQueriesContext(connection) as queries:
        answer = client.get(path)
        assert answer.status_code in OPEN, (path, answer.status_code)
        if not streams(name):
            answer.getvalue()
        answer.close()
    from tests.web.test_page_weight import is_question

    return sum(is_question(query["sql"]) for query in queries)


def _request(web: Site, look: Look, name: str) -> Callable[[], object]:
    path, headers = look.pages[name], {"Cookie": look.cookie}
    if streams(name):
        return lambda: _first_bytes(web, path, headers)
    return lambda: _whole(web, path, headers)


def _whole(web: Site, path: str, headers: dict[str, str]) -> bytes:
    status, answer = web.answer("GET", path, b"", headers)
    assert status in OPEN, (path, status)
    return answer


def _first_bytes(web: Site, path: str, headers: dict[str, str]) -> None:
    """Until the answer begins; the rest of it is hung up on."""
    connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=60)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    assert answer.status == 200, (path, answer.status)
    assert answer.read(1)
    connection.close()


def _same_size(web: Site, floor: Site, look: Look, name: str) -> Callable[[], object]:
    """A page of the smallest site with as many bytes, to a row."""
    size = len(_whole(web, look.pages[name], {"Cookie": look.cookie}))
    empty, row = len(floor.get("/floor/0/")), len(floor.get("/floor/101/")) - len(floor.get("/floor/100/"))
    rows = min(max(size - empty, 0) // row, FLOOR_ROWS)
    return lambda: floor.get(f"/floor/{rows}/")
