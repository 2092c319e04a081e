"""The overview: its queries beside a scan of the table, and the page beside one of the smallest site, over HTTP."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from functools import partial
from random import Random

from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.test import Client

from bench import closing, instance, served, world
from bench.meter import Cost, family_cpu, own_cpu, resident, server_cpu
from bench.result import Goal, Result
from bench.scale import Scale
from bench.served import Site
from billing.queries import invoices, overview
from billing.tasks import render_document
from portal.core.tenants.models import Membership, Role, Tenant, User
from portal.core.tenants.scope import tenant_scope
from portal.env import ROOT

REQUESTS = 100
FLOOR = "bench_floor"
SCAN = "SELECT tenant_id, sum(gpu_units), sum(cost_units) FROM billing_ratedjob WHERE shown_at >= 0 GROUP BY tenant_id"
MOST = 120 * 1024  # KiB that a process may hold


def dashboard(scale: Scale, postmaster: int) -> Result:
    """All queries of the overview page for tenants drawn at random, the largest among them; p95 of wall time."""
    tenants = list(Tenant.objects.order_by("pk"))
    draw = Random(7).randrange
    chosen = [tenants[0] if n % 10 == 0 else tenants[draw(len(tenants))] for n in range(REQUESTS)]
    ours = _p95([partial(_queries, tenant) for tenant in chosen], postmaster)
    scan = _p95([_scan] * 5, postmaster)
    title = "the overview's queries, p95, beside a scan of the jobs"
    return Result("dashboard", title, 1, "pages", ours, scan, by_wall=True)  # `page` has the goal


def works(scale: Scale, postmaster: int, names: set[str]) -> Iterator[Result]:
    """What is asked over HTTP, of an ordinary tenant: `dashboard` has the largest among its own."""
    from bench import busy, growth, paint  # which ask by what is here

    tenant = Tenant.objects.order_by("pk")[1]
    collect()
    with ours(tenant, closing.RUN) as web:
        address = f"/t/{tenant.slug}/?period=2026-01-01"
        if "page" in names:
            with floor() as least:
                yield page(web, address, least, postmaster)
        if "paint" in names:
            yield paint.first(web, _operator(), tenant.slug)
        if "web" in names:
            yield memory(web, tenant)
        if "growpage" in names:
            yield growth.page(scale, web, address, postmaster)
        if "busy" in names:
            yield busy.page(scale, web, address)


def collect() -> None:
    """The pages' files under the names that they have in production."""
    (instance.HOME / "static").mkdir(exist_ok=True)
    call_command("collectstatic", interactive=False, verbosity=0)


@contextmanager
def ours(tenant: Tenant, database: str) -> Iterator[Site]:
    """Our site, and somebody who is signed in and owns that tenant."""
    person = User.objects.create_user("ann@lab.example", "correct horse battery")
    Membership.objects.create(user=person, tenant=tenant, role=Role.OWNER)
    client = Client()
    client.force_login(person)
    name = settings.SESSION_COOKIE_NAME
    cookie = f"{name}={client.cookies[name].value}"
    with served.site(cookie, DATABASE_URL=served.url_of(database)) as web:
        yield web


@contextmanager
def floor(*, after: str = closing.RUN) -> Iterator[Site]:
    """The smallest site, with a database of its own on the same server; then `after` is in use again."""
    instance.create(FLOOR)
    environment = {"FLOOR_DATABASE_URL": served.url_of(FLOOR)}
    command = [sys.executable, "-m", "bench.floor_app"]
    key = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, check=True, capture_output=True, text=True
    )
    try:
        with served.site(f"sessionid={key.stdout}", app="bench.floor_app", **environment) as web:
            yield web
    finally:
        instance.drop(FLOOR)
        instance.use(after)


def _operator() -> str:
    """The cookie of somebody who runs all clusters and is signed in."""
    client = Client()
    client.force_login(User.objects.create_superuser("op@cluster.example", "correct horse battery"))
    name = settings.SESSION_COOKIE_NAME
    return f"{name}={client.cookies[name].value}"


def page(web: Site, address: str, least: Site, postmaster: int) -> Result:
    """One request of each in turn; of the same size, to a hundredth or so."""
    size, row = len(web.get(address)), len(least.get("/floor/101/")) - len(least.get("/floor/100/"))
    rows = (size - len(least.get("/floor/0/"))) // row
    cost, baseline = in_turn(web, address, least, f"/floor/{rows}/", postmaster)
    title = f"the overview over HTTP, p95, beside the smallest site ({size // 1024} KiB)"
    return Result("page", title, 1, "pages", cost, baseline, Goal(at_most="2.5"), by_wall=True)


def in_turn(
    first: Site, address: str, second: Site, other: str, postmaster: int, *, requests: int = 3 * REQUESTS
) -> tuple[Cost, Cost]:
    """One request of each after the other: the 95th percentile of wall time, and the mean CPU of a page."""
    for _ in range(20):
        first.get(address)
        second.get(other)
    walls: tuple[list[float], list[float]] = ([], [])
    spent = [0.0, 0.0]
    began = [family_cpu(first.process.pid), family_cpu(second.process.pid)]
    for _ in range(requests):
        for (site, path), samples in zip(((first, address), (second, other)), walls, strict=True):
            samples.append(_wall(partial(site.get, path)))
    for place, site in enumerate((first, second)):
        spent[place] = (family_cpu(site.process.pid) - began[place]) / requests
    return (
        Cost(spent[0], spent[0], at95(walls[0]), resident(first.workers[0])),
        Cost(spent[1], spent[1], at95(walls[1]), resident(second.workers[0])),
    )


def memory(web: Site, tenant: Tenant) -> Result:
    """What the web process holds after a thousand requests of all kinds. A worker has kept the PDF before."""
    invoice = tenant.invoices.order_by("pk")[0]
    render_document(invoice_id=invoice.pk)
    number = invoice.number
    record = tenant_jobs(tenant)[0]
    here = f"/t/{tenant.slug}"
    kinds = [
        f"{here}/",
        f"{here}/?period=2026-01-01",
        f"{here}/jobs/",
        f"{here}/jobs/?period=2026-01-01&state=failed",
        f"{here}/jobs/{record}/",
        f"{here}/invoices/",
        f"{here}/invoices/{number}/",
        f"{here}/invoices/{number}/lines/1/",
        f"{here}/invoices/{number}/csv",
        f"{here}/invoices/{number}/pdf",
    ]
    began, wall = family_cpu(web.process.pid), time.perf_counter()
    for n in range(1_000):
        web.get(kinds[n % len(kinds)])
    spent = family_cpu(web.process.pid) - began
    cost = Cost(spent, spent, time.perf_counter() - wall, max(resident(pid) for pid in web.workers))
    title = "memory of the web process after 1,000 requests of ten kinds"
    return Result("web", title, 1_000, "requests", cost, cost, memory=(cost.peak, MOST))


def tenant_jobs(tenant: Tenant) -> list[int]:
    from billing.models import RatedJob

    return list(
        RatedJob.objects.filter(tenant=tenant).order_by("pk").values_list("record_id", flat=True)[:10]
    )


def _queries(tenant: Tenant) -> None:
    with tenant_scope(tenant):
        periods = overview.around(tenant, moment=world.MOMENT, day=date(2026, 1, 1))
        assert periods is not None
        period = periods.period
        overview.overview(tenant, period, None, today=overview.days_of(period)[1])
        invoices.newest(tenant, on=world.MOMENT.date(), size=6)


def _scan() -> None:
    with connection.cursor() as cursor:
        cursor.execute(SCAN)
        cursor.fetchall()


def _p95(works: list[Callable[[], None]], postmaster: int) -> Cost:
    works[0]()
    client, server = own_cpu(), server_cpu(postmaster)
    walls = [_wall(work) for work in works]
    client, server = own_cpu() - client, server_cpu(postmaster) - server
    return Cost((client + server) / len(works), client / len(works), at95(walls), 0)


def _wall(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def at95(walls: list[float]) -> float:
    return sorted(walls)[len(walls) * 95 // 100]
