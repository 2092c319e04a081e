"""An upgrade without downtime: pages and workers of the last release go on while its database gets this schema.

The release is taken from the repository's history: the commit that wrote its file in `portal/schema/releases`.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import subprocess
import sys
import tarfile
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from portal.dev.embedded.postgres import Postgres, binaries
from portal.dev.embedded.redis import Redis
from portal.dev.releases import RELEASES
from portal.env import ROOT
from tests.integration.slurm_lab import until
from tests.integration.test_outbox_worker import kill
from tests.integration.web_process import WebProcess

pytestmark = [pytest.mark.peers, pytest.mark.one_attempt]

PATIENCE = 400  # seconds
PYTHON = sys.executable
NAMES = sorted(
    (path.stem for path in RELEASES.glob("*.json")), key=lambda name: tuple(map(int, name.split(".")))
)
SITE = """
[seller]
name = "Northern Compute GmbH"
address = "Hafenstraße 1"

[[cluster]]
name = "lab"
kind = "import"
timezone = "UTC"

[[plan]]
name = "standard"
currency = "USD"
charges = ["gpu"]
[[plan.price]]
meter = "gpu-hour"
unit_price = "2"
from = 2026-01-01

[[tenant]]
slug = "vision-lab"
name = "Vision Lab"
plan = "standard"
plan_from = 2026-01-01
accounts = [{ cluster = "lab", account = "vision" }]
"""
HEADER = "JobID|JobIDRaw|Account|User|Partition|State|Submit|Start|End|ElapsedRaw|AllocTRES"


def released(version: str, directory: Path) -> Path:
    """The code of a release, as it was committed."""
    file = f"portal/schema/releases/{version}.json"
    git = ["git", "-C", str(ROOT)]
    log = subprocess.run(
        [*git, "log", "--diff-filter=A", "--format=%H", "--", file],
        capture_output=True,
        text=True,
        check=False,
    )
    commits = log.stdout.split()
    if not commits:
        pytest.skip(f"the commit that released {version} is not in this checkout")
    archive = subprocess.run([*git, "archive", commits[-1]], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(directory, filter="data")
    return directory


def environment_of(server: Postgres, home: Path) -> dict[str, str]:
    return os.environ | {
        "DJANGO_SETTINGS_MODULE": "portal.settings",
        "CLUSTERTAB_HOME": str(home),
        "DATABASE_URL": server.url(),
        "DATABASE_OWNER_URL": server.owner_url(),
        "REDIS_URL": f"unix://{home}/none.sock",
        "SECRET_KEY": "of the upgrade",
    }


def manage(code: Path, environ: dict[str, str], *arguments: str) -> Any:
    """What a command answers, of this version or of the release."""
    done = subprocess.run(
        [PYTHON, "manage.py", *arguments],
        cwd=code,
        env=environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout) if "--json" in arguments else done.stdout


def jobs(file: Path, *, day: int, count: int = 40) -> Path:
    rows = [
        f"{day}{number:03}|{day}{number:03}|vision|ben|gpu|COMPLETED|2026-03-{day:02}T00:00:00|"
        f"2026-03-{day:02}T01:00:00|2026-03-{day:02}T02:00:00|3600|billing=1,cpu=4,gres/gpu:a100=2,gres/gpu=2,node=1"
        for number in range(count)
    ]
    file.write_text("\n".join([HEADER, *rows]) + "\n")
    return file


@contextmanager
def worker(code: Path, environ: dict[str, str], log: Path) -> Iterator[None]:
    """With its scheduler inside; whatever is left of it is killed."""
    command = [PYTHON, "-m", "portal.celery_command", "worker", "--beat", "--concurrency", "1"]
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, cwd=code, env=environ, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield
        assert process.poll() is None, log.read_text()[-3000:]
    finally:
        kill(process)


SIGN_IN = """
import django; django.setup()
from django.test import Client
from portal.core.tenants.models import Membership, Tenant, User
ann = User.objects.create_user("ann@lab.example", "a password of hers")
Membership.objects.create(tenant=Tenant.objects.get(slug="vision-lab"), user=ann, role="owner")
browser = Client()
browser.force_login(ann)
print(browser.cookies["sessionid"].value)
"""


@contextmanager
def reader(url: str, session: str) -> Iterator[list[int]]:
    """Ann reads her pages all the time; what each request was answered."""
    answers: list[int] = []
    ends = threading.Event()
    pages = itertools.cycle(("/t/vision-lab/", "/t/vision-lab/jobs/", "/t/vision-lab/invoices/"))

    def read() -> None:
        while not ends.is_set():
            request = urllib.request.Request(url + next(pages), headers={"Cookie": f"sessionid={session}"})
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    answers.append(answer.status if b"Vision Lab" in answer.read() else -1)
            except OSError as error:
                answers.append(getattr(error, "code", 0))

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield answers
    finally:
        ends.set()
        thread.join()


@contextmanager
def held(server: Postgres, *, seconds: float) -> Iterator[None]:
    """Somebody holds what the upgrade changes, for longer than it waits at a time."""
    with psycopg.connect(server.owner_url()) as holder:
        holder.execute("LOCK TABLE schema_level IN EXCLUSIVE MODE")
        timer = threading.Timer(seconds, holder.rollback)
        timer.start()
        yield
        timer.join()


def is_rendered(server: Postgres) -> bool:
    """Whether the worker has rendered the invoice."""
    with psycopg.connect(server.owner_url()) as owner:
        return owner.execute("SELECT FROM billing_invoicedocument").fetchone() is not None


def structure(server: Postgres) -> list[str]:
    """All that a schema is, in an order of its own: columns that were added later stand behind the others."""
    dump = subprocess.run(
        [binaries() / "pg_dump", "--schema-only", "--no-comments", server.owner_url()],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    lines = (line.strip().rstrip(",") for line in dump.splitlines())
    return sorted(
        line for line in lines if line and not line.startswith(("--", "\\restrict", "\\unrestrict"))
    )


@pytest.mark.parametrize("version", NAMES)
def test_a_database_of_a_release_becomes_what_a_new_one_is(version: str, tmp_path: Path) -> None:
    code = released(version, tmp_path / "code")
    with Postgres(tmp_path / "old", volatile=True) as old, Postgres(tmp_path / "new", volatile=True) as new:
        manage(code, environment_of(old, tmp_path), "migrate", "-v0")
        for server in (old, new):
            manage(ROOT, environment_of(server, tmp_path), "migrate", "-v0")
        assert structure(old) == structure(new)
        mark = "SELECT level, digest, complete FROM schema_level"
        with psycopg.connect(old.url()) as one, psycopg.connect(new.url()) as other:
            assert one.execute(mark).fetchall() == other.execute(mark).fetchall()


def test_pages_and_workers_of_the_last_release_go_on_while_the_schema_is_upgraded(tmp_path: Path) -> None:
    code = released(NAMES[-1], tmp_path / "code")
    site = tmp_path / "site.toml"
    site.write_text(SITE)
    with Postgres(tmp_path / "database", volatile=True) as server, Redis(tmp_path / "redis") as redis:
        environ = environment_of(server, tmp_path) | {"REDIS_URL": redis.url(), "ALLOWED_HOSTS": "127.0.0.1"}
        manage(code, environ, "migrate", "-v0")
        manage(code, environ, "apply", str(site))
        read = ("--as-of", "2026-04-02", "--json")
        manage(code, environ, "import_usage", "lab", str(jobs(tmp_path / "a.sacct", day=2)), *read)
        signed_in = subprocess.run(
            [PYTHON, "-c", SIGN_IN], cwd=code, env=environ, capture_output=True, text=True, check=True
        )
        session = signed_in.stdout.strip()
        web = WebProcess(server.url(), tmp_path, REDIS_URL=redis.url(), SECRET_KEY=environ["SECRET_KEY"])
        web.code = code
        web.collect()
        with web, worker(code, environ, tmp_path / "worker.log"), reader(web.url, session) as answers:
            until(lambda: len(answers) > 20, seconds=120)
            with held(server, seconds=5):
                manage(ROOT, environ, "migrate", "-v0")
            manage(code, environ, "import_usage", "lab", str(jobs(tmp_path / "b.sacct", day=3)), *read)
            before = len(answers)
            until(lambda: len(answers) > before + 20, seconds=120)
            web.kill()  # and comes back, over a schema that is newer than it
            web.start()
            closed = manage(
                code, environ, "close_period", "2026-03", "--as-of", "2026-04-02", "--yes", "--json"
            )
            assert [one["total"] for one in closed["tenants"]] == ["320.00"]
            until(partial(is_rendered, server), seconds=120)
        assert set(answers[:before]) == {200}
        # What the release wrote adds up for this version, whose processes now take over.
        assert "Every sum closes." in manage(ROOT, environ, "prove")
        manage(ROOT, environ, "import_usage", "lab", str(jobs(tmp_path / "c.sacct", day=4)), *read)
        with WebProcess(server.url(), tmp_path, REDIS_URL=redis.url()):
            assert "Every sum closes." in manage(ROOT, environ, "prove")
