"""The overview page: its queries beside a scan of the table, and the whole page beside an empty one."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

from django.conf import settings
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.test.utils import override_settings
from django.urls import include, path

from bench import world
from bench.meter import Cost, own_cpu, server_cpu
from bench.result import Goal, Result
from bench.scale import Scale
from billing.reading import invoices, jobs, overview
from portal.tenants.access import Action
from portal.tenants.models import Membership, Role, Tenant, User
from portal.tenants.scope import tenant_scope
from portal.web.visit import Visit, answer, tenant_page

REQUESTS = 100
SCAN = "SELECT tenant_id, sum(gpu_units), sum(cost_rank) FROM billing_ratedjob WHERE shown_at >= 0 GROUP BY tenant_id"


def dashboard(scale: Scale, postmaster: int) -> Result:
    """All queries of the overview page for tenants drawn at random, the largest among them; p95 of wall time."""
    tenants = list(Tenant.objects.order_by("pk"))
    draw = Random(7).randrange
    chosen = [tenants[0] if n % 10 == 0 else tenants[draw(len(tenants))] for n in range(REQUESTS)]
    ours = _p95([lambda tenant=tenant: _queries(tenant) for tenant in chosen], postmaster)  # type: ignore[misc]
    scan = _p95([_scan] * 5, postmaster)
    title = "the overview's queries, p95, beside a scan of the jobs"
    return Result("dashboard", title, 1, "pages", ours, scan, Goal(at_least="10"), by_wall=True)


def page(scale: Scale, postmaster: int) -> Result:
    """The page through all of the site's layers but the socket, in turn with one that shows nothing; p95."""
    person = User.objects.create_user("ann@lab.example", "correct horse battery")
    tenant = Tenant.objects.order_by("pk")[
        1
    ]  # one like nearly all; `dashboard` has the largest among its own
    Membership.objects.create(user=person, tenant=tenant, role=Role.OWNER)
    plain = {
        **settings.STORAGES,
        "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
    }
    caches = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    with override_settings(ROOT_URLCONF="bench.pages", STORAGES=plain, CACHES=caches, ALLOWED_HOSTS=["*"]):
        client = Client(SERVER_NAME="localhost")
        client.force_login(person)
        ours, floor = _in_turn(
            lambda: _get(client, f"/t/{tenant.slug}/?period=2026-01-01"),
            lambda: _get(client, f"/floor/{tenant.slug}/"),
            postmaster,
        )
    title = "the overview page, p95, beside an empty page"
    return Result("page", title, 1, "pages", ours, floor, Goal(at_most="2"), by_wall=True)


@tenant_page(Action.READ, area="overview")
def _nothing(request: HttpRequest, visit: Visit) -> HttpResponse:
    return answer(request, visit.shell, None, whole="base.html")


urlpatterns = [path("floor/<slug:slug>/", _nothing), path("", include("portal.urls"))]


def _get(client: Client, address: str) -> None:
    response = client.get(address)
    if response.status_code != 200:
        raise AssertionError(f"{address}: {response.status_code}")


def _queries(tenant: Tenant) -> None:
    with tenant_scope(tenant):
        periods = overview.periods(tenant, moment=world.MOMENT)
        period = periods[0]
        overview.overview(tenant, period, None, today=overview.days_of(period)[1])
        jobs.count(tenant, period)
        jobs.costliest(tenant, period, limit=8)
        invoices.newest(tenant, on=world.MOMENT.date(), limit=6)


def _scan() -> None:
    with connection.cursor() as cursor:
        cursor.execute(SCAN)
        cursor.fetchall()


def _in_turn(ours: Callable[[], None], floor: Callable[[], None], postmaster: int) -> tuple[Cost, Cost]:
    """One request of each after the other."""
    for warm_up in (ours, floor, ours, floor):
        warm_up()
    walls: tuple[list[float], list[float]] = ([], [])
    for _ in range(REQUESTS):
        for work, taken in zip((ours, floor), walls, strict=True):
            taken.append(_wall(work))
    return Cost(0, 0, _at95(walls[0]), 0), Cost(0, 0, _at95(walls[1]), 0)


def _p95(works: list[Callable[[], None]], postmaster: int) -> Cost:
    works[0]()
    client, server = own_cpu(), server_cpu(postmaster)
    walls = [_wall(work) for work in works]
    client, server = own_cpu() - client, server_cpu(postmaster) - server
    return Cost((client + server) / len(works), client / len(works), _at95(walls), 0)


def _wall(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _at95(walls: list[float]) -> float:
    return sorted(walls)[len(walls) * 95 // 100]
