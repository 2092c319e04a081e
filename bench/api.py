"""What integrations ask most, over HTTP with a key, of the tenant that has a tenth of a year's million jobs.

*Raw* are the same statements alone, sent by psycopg over one connection.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import cycle
from typing import Any
from urllib.parse import quote

from django.db import connection
from django.test import Client

from bench import closing, instance, served
from bench.meter import Cost, family_cpu, own_cpu, server_cpu
from bench.pages import at95
from bench.result import Figure, Goal, Result
from bench.scale import Scale
from bench.served import Site
from billing.queries import jobs
from billing.queries.usage_series import Grouping, Interval, usage_series
from portal.api import keys
from portal.api.models import ApiKey
from portal.api.resources.jobs import NEWEST, ORDERS, listed
from portal.core.tenants.models import Membership, Role, Tenant, User
from portal.core.tenants.scope import tenant_scope
from portal.dev.embedded.redis import Redis

NAMES = ("apilist", "apideep", "apicost", "apirare", "apiusage", "apiquote", "apikey")
RUN = "bench_api"
BORDERS = [datetime(2025 + month // 12, month % 12 + 1, 1, tzinfo=UTC) for month in range(14)]
DAYS = 365
WARM, REQUESTS = 20, 300  # of each kind
SHARED = 8  # keys of one kind of request: each may write 60 times a minute
PAGE, DEEP, LONGEST = 50, 10_000, 200
KEYS = 10_000
LIST = "/api/v1/jobs"
QUOTE = {"hours": "12", "gpus": 8, "gpu_model": "h100", "starts_at": "2025-12-20T12:00:00Z"}

Walls = list[float]
"""Wall seconds, one after the other."""
Work = Callable[[], object]


@dataclass(frozen=True)
class Asking:
    """A site that counts requests as in production, and somebody who owns the tenant."""

    site: Site
    tenant: Tenant
    maker: User
    postmaster: int

    def compare(
        self, name: str, title: str, ours: Work, limit: Work, goal: Goal, *figures: Figure, most: float = 0
    ) -> Result:
        """The p95 of both by the clock on the wall, one of each in turn, and CPU seconds by themselves.

        `most`: milliseconds that ours may take.
        """
        walls = in_turn(ours, limit)
        costs = [
            Cost(self._cpu(work), 0, at95(wall), 0) for work, wall in zip((ours, limit), walls, strict=True)
        ]
        shown = [Figure("times its CPU seconds", costs[0].cpu / max(costs[1].cpu, 1e-6)), *figures]
        if most:
            shown.insert(0, Figure("p95, ms", costs[0].wall * 1000, most))
        return Result(
            name, title, 1, "requests", costs[0], costs[1], goal, by_wall=True, figures=tuple(shown)
        )

    def _cpu(self, work: Work) -> float:
        """Of one call: this process, the site and the database, where all of them work for it alone."""
        began = self._spent()
        for _ in range(REQUESTS):
            work()
        return (self._spent() - began) / REQUESTS

    def _spent(self) -> float:
        return own_cpu() + family_cpu(self.site.process.pid) + server_cpu(self.postmaster)

    def secret(self) -> str:
        scopes = ["jobs:read", "usage:read"]
        moment = datetime.now(UTC)
        return keys.make(
            maker=self.maker, tenant=self.tenant, name="bench", scopes=scopes, moment=moment
        ).secret

    def request(self, address: str, body: object = None) -> Work:
        """A request with one of its own keys in turn, so that no limit is met."""
        secrets = cycle([self.secret() for _ in range(SHARED)])
        data, method = (b"", "GET") if body is None else (json.dumps(body).encode(), "POST")

        def ask() -> None:
            headers = {"Authorization": f"Bearer {next(secrets)}", "Content-Type": "application/json"}
            self.site.sent(method, address, data, headers)

        return ask

    def cursor_of(self, page: int) -> str:
        """The cursor of that page of the list, or of the last one: read in this process, where nobody counts."""
        client, rows, cursor = (
            Client(SERVER_NAME="127.0.0.1", headers={"Authorization": f"Bearer {self.secret()}"}),
            0,
            "",
        )
        while rows < (page - 1) * PAGE:
            limit = min(LONGEST, (page - 1) * PAGE - rows)
            answer = client.get(
                f"{LIST}?limit={limit}" + (f"&cursor={quote(cursor)}" if cursor else "")
            ).json()
            if answer["next"] is None:
                return cursor
            rows, cursor = rows + limit, answer["next"]
        return cursor


@contextmanager
def asking(database: str, postmaster: int) -> Iterator[Asking]:
    """Of the tenant with the most jobs."""
    tenant = Tenant.objects.order_by("pk")[0]
    maker = User.objects.create_user("api@lab.example")
    Membership.objects.create(user=maker, tenant=tenant, role=Role.OWNER)
    with Redis(instance.HOME), served.site("", DATABASE_URL=served.url_of(database)) as site:
        yield Asking(site, tenant, maker, postmaster)


def works(scale: Scale, postmaster: int, names: set[str]) -> Iterator[Result]:
    if not names & set(NAMES):
        return
    closing.build(scale, name=RUN, borders=BORDERS, days=DAYS)
    with asking(RUN, postmaster) as client:
        for name, work in WORKS.items():
            if name in names:
                yield work(client)
    instance.drop(RUN)


def in_turn(*works: Work) -> list[Walls]:
    """One of each after the other: what is next to them on the machine slows all."""
    walls: list[Walls] = [[] for _ in works]
    for number in range(WARM + REQUESTS):
        for work, samples in zip(works, walls, strict=True):
            began = time.perf_counter()
            work()
            if number >= WARM:
                samples.append(time.perf_counter() - began)
    return walls


def raw(tenant: Tenant, work: Work) -> Callable[[], None]:
    """What `work` asks of the database, in the tenant's scope or without, as bare statements."""
    statements: list[tuple[str, Any]] = []

    def note(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.lstrip().startswith(("SELECT", "WITH")) and "set_config" not in sql:
            statements.append((sql, params))
        return execute(sql, params, many, context)

    with tenant_scope(tenant), connection.execute_wrapper(note):
        work()

    def run() -> None:
        for sql, params in statements:
            connection.connection.execute(sql, params).fetchall()

    return run


def newest(tenant: Tenant) -> list[jobs.Job]:
    """What the list reads of the first page, and of one job more, as the endpoint does."""
    rows = listed(by_cost=False).filter(tenant=tenant).order_by(*ORDERS[NEWEST])
    return jobs.costed(tenant, list(rows[: PAGE + 1])[:PAGE])


def a_year(tenant: Tenant, year: int) -> Any:
    first, end = datetime(year, 1, 1, tzinfo=UTC).date(), datetime(year + 1, 1, 1, tzinfo=UTC).date()
    return usage_series(tenant, first=first, end=end, interval=Interval.MONTH, grouping=[Grouping.PROJECT])


def usage_address(year: int) -> str:
    return f"/api/v1/usage?from={year}-01-01&to={year + 1}-01-01&interval=month&group_by=project"


def _list(client: Asking) -> Result:
    alone = raw(client.tenant, partial(newest, client.tenant))
    title = "50 jobs, p95, beside their statements"
    return client.compare("apilist", title, client.request(LIST), alone, Goal(at_most="2.5"), most=60)


def _deep(client: Asking) -> Result:
    deep, first = deep_and_first(client)
    return client.compare(
        "apideep", f"page {DEEP:,} or the last, p95, beside page 1", deep, first, Goal(at_most="1.2")
    )


def deep_and_first(client: Asking) -> tuple[Work, Work]:
    cursor = quote(client.cursor_of(DEEP))
    return client.request(f"{LIST}?cursor={cursor}"), client.request(LIST)


def _by_cost(client: Asking) -> Result:
    costly, first = client.request(f"{LIST}?order=-cost"), client.request(LIST)
    return client.compare(
        "apicost", "the 50 most expensive jobs, p95, beside the newest", costly, first, Goal()
    )


def _rare(client: Asking) -> Result:
    rare, first = client.request(f"{LIST}?user=nobody"), client.request(LIST)
    return client.compare(
        "apirare", "jobs of a user who has none, p95, beside the newest", rare, first, Goal()
    )


def _usage(client: Asking) -> Result:
    year = BORDERS[0].year
    ours, alone = (
        client.request(usage_address(year)),
        raw(client.tenant, partial(a_year, client.tenant, year)),
    )
    title = "a year by month and project, p95, beside its statement"
    return client.compare("apiusage", title, ours, alone, Goal(), most=80)


def _quote(client: Asking) -> Result:
    ours, other = client.request("/api/v1/quotes", QUOTE), client.request("/api/v1/me")
    return client.compare("apiquote", "a quote, p95, beside whose key it is", ours, other, Goal(), most=200)


def _key(client: Asking) -> Result:
    """Of many, since a single one takes less than the clock is good for."""
    secret, moment = client.secret(), datetime.now(UTC)
    like = ApiKey.objects.latest("pk")
    values = {field.attname: getattr(like, field.attname) for field in ApiKey._meta.concrete_fields}
    ApiKey.objects.bulk_create(
        [ApiKey(**values | {"id": None, "prefix": f"{number:08d}"}) for number in range(KEYS)],
        batch_size=1_000,
    )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE api_apikey")
    statement = f"SELECT * FROM {ApiKey._meta.db_table} WHERE prefix = '{secret[8:16]}'"

    def ours() -> None:
        keys.find(secret, moment=moment)

    def alone() -> None:
        connection.connection.execute(statement).fetchall()

    title = f"looking up one of {KEYS:,} keys, beside its row"
    return client.compare("apikey", title, ours, alone, Goal(), most=0.3)


WORKS: dict[str, Callable[[Asking], Result]] = {
    "apilist": _list,
    "apideep": _deep,
    "apicost": _by_cost,
    "apirare": _rare,
    "apiusage": _usage,
    "apiquote": _quote,
    "apikey": _key,
}
