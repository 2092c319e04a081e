"""What a web process holds after every example of the REST API, every page, and every table of the administration.

There are two of them, as in docker-compose.yml, and each goes through all of it. What they share counts for each by its
part (PSS). The two labs of the tests are asked, whose objects the examples name.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from django.conf import settings
from django.contrib import admin
from django.test import Client, override_settings
from django.urls import reverse

from bench import instance, pages, served
from bench.meter import Cost, family_cpu, proportional, resident
from bench.result import Figure, Result
from bench.scale import Scale
from bench.served import Site
from portal.api.examples import JSON, Example, examples
from portal.core.tenants.models import User

if TYPE_CHECKING:
    from tests.api.example_world import World

NAME, RUN = "walk", "bench_walk"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")  # what is deleted was looked at before
PROCESSES, SETTLING = 2, 20  # seconds
PATIENT = {"GUNICORN_CMD_ARGS": "--timeout 600"}  # with a process that stands still
PUBLIC = ("/healthz", "/readyz", "/accounts/login/", "/api/v1/openapi.json")


def works(scale: Scale, postmaster: int, names: set[str]) -> Iterator[Result]:
    """Goes through all of it once, whatever the scale."""
    del scale, postmaster
    if NAME not in names:
        return
    from tests.api.example_world import a_world_of_examples

    instance.copy(instance.EMPTY, RUN)
    pages.collect()
    with (
        override_settings(CLUSTERTAB_SENDS_MAIL=True, PORTAL_URL="https://portal.example"),
        a_world_of_examples() as world,
        served.site("", DATABASE_URL=served.url_of(RUN), WEB_CONCURRENCY=str(PROCESSES), **PATIENT) as site,
    ):
        yield _walked(site, world)
    instance.drop(RUN)


def _walked(site: Site, world: World) -> Result:
    time.sleep(SETTLING)  # one that stands still while it looks at the schema would give up
    spent, began = family_cpu(site.process.pid), time.perf_counter()
    statuses: list[int] = []
    for pid in site.workers:
        with _alone(site, pid):
            statuses += [*_api(site, world), *_pages(site, world)]
    spent, wall = family_cpu(site.process.pid) - spent, time.perf_counter() - began
    if 500 in statuses:  # 503 is what lacks here: Redis, and a gateway
        raise AssertionError(f"Something failed: see {instance.HOME}.")
    cost = Cost(spent, spent, wall, max(proportional(pid) for pid in site.workers))
    whole = sum(map(proportional, (site.process.pid, *site.workers)))
    figures = (
        Figure("answered with what they ask for", sum(status < 400 for status in statuses)),
        Figure("RSS of one, MiB", max(map(resident, site.workers)) / 1024),
        Figure("PSS of all with the process that started them, MiB", whole / 1024),
    )
    title = "memory of a web process after all endpoints and pages"
    return Result(
        NAME, title, len(statuses), "requests", cost, cost, memory=(cost.peak, pages.MOST), figures=figures
    )


@contextmanager
def _alone(site: Site, pid: int) -> Iterator[None]:
    """The other processes stand still meanwhile, so this one answers."""
    others = [other for other in site.workers if other != pid]
    for other in others:
        os.kill(other, signal.SIGSTOP)
    site.connection.close()
    try:
        yield
    finally:
        for other in others:
            os.kill(other, signal.SIGCONT)


def _api(site: Site, world: World) -> Iterator[int]:
    """Each example by the owner of the tenant where a tenant's key may, else by the operator."""
    from tests.api.addresses import ADDRESSES

    by_tenant = {
        (address.method, address.route.replace("str:", "").replace("<", "{").replace(">", "}"))
        for address in ADDRESSES
        if address.tenant or address.route == "me"
    }
    for method, path in sorted(examples(), key=lambda name: METHODS.index(name[0])):
        example = examples()[method, path]
        door = world.ann if (method, path.removeprefix("/")) in by_tenant else world.op
        yield _sent(site, example, door.secret, world.asked)


def _sent(site: Site, example: Example, secret: str, asked: Callable[[str], str]) -> int:
    """The status that it is answered with."""
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": example.content_type}
    if example.method == "POST":
        headers["Idempotency-Key"] = "example-1"
    text = (
        json.dumps(example.body)
        if example.content_type == JSON and example.body is not None
        else example.body
    )
    body = b"" if text is None else asked(text if isinstance(text, str) else json.dumps(text)).encode()
    return site.answer(example.method, f"/api/v1{asked(example.path)}", body, headers)[0]


def _pages(site: Site, world: World) -> Iterator[int]:
    """Those of the tenant by its owner, all others by the operator, who also looks at each table."""
    from tests.web.test_access import OURS, address

    admin.autodiscover()
    tables = [
        reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
        for model in admin.site._registry
    ]
    for person, paths in (
        (world.house.ann, [address(route, world.house) for route in OURS if route.startswith("t/")]),
        (world.house.op, [address(route, world.house) for route in OURS if not route.startswith("t/")]),
        (world.house.op, [*PUBLIC, "/admin/", *tables]),
    ):
        headers = {"Cookie": f"{settings.SESSION_COOKIE_NAME}={_session(person)}"}
        for path in paths:
            yield site.answer("GET", path, b"", headers)[0]


def _session(person: User) -> str:
    client = Client()
    client.force_login(person)
    return client.cookies[settings.SESSION_COOKIE_NAME].value
