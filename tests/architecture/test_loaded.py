"""What a worker and a web process load before they are asked: each megabyte is taken by every process of the site."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.peers

CODE = """
import sys
from unittest import mock
sys.argv = ["celery", "worker", "--queues", "webhooks"]
from portal import celery_command
with mock.patch("celery.bin.worker.worker.callback", lambda *_, **__: None):
    try:
        celery_command.main()
    except SystemExit:
        pass
import portal.ops.schema
from portal.celery import app
app.loader.import_default_modules()
print(*sys.modules)
"""
NEEDED = {"billing.tasks", "portal.core.webhooks.tasks", "celery.bin.worker"}
HEAVY = {
    *(
        "prompt_toolkit",
        "billing.admin",
        "portal.admin",
        "portal.urls",
        "stdnum",
        "babel",
        "stripe",
        "botocore",
        "typst",
        "httpx",
    ),
    *("billing.rating.engine", "billing.documents", "billing.queries", "clusters.connectors.prometheus"),
    *("billing.migrations.0001_initial", "rest_framework.serializers"),
}


def test_a_worker_loads_neither_the_administration_nor_what_other_tasks_need() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    loaded = {*done.stdout.split()}
    assert loaded >= NEEDED
    assert not HEAVY & loaded


PAGES = """
import sys
import portal.wsgi
loaded = [*sys.modules]
import requests, yaml  # they can be had afterwards
print(*loaded)
"""
UNASKED = {
    *("celery", "kombu", "click", "requests", "urllib3", "yaml", "stripe", "lxml", "typst", "botocore"),
    *("drf_spectacular.generators", "portal.api.openapi", "billing.tasks"),
    "billing.migrations.0001_initial",
}


def test_a_web_process_loads_its_pages_and_nothing_that_few_of_them_need() -> None:
    done = subprocess.run([sys.executable, "-c", PAGES], capture_output=True, text=True, check=True)
    loaded = {*done.stdout.split()}
    assert loaded >= {"portal.web.urls", "portal.api.routes", "billing.admin"}
    assert not UNASKED & loaded


SERVED = """
import click, yaml
import portal.wsgi
from sys import modules
print(modules["click"] is click, modules["yaml"] is yaml, "requests" in modules)
"""


def test_what_a_process_has_before_it_loads_its_pages_stays() -> None:
    done = subprocess.run([sys.executable, "-c", SERVED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "False"]


LATER = """
from unittest import mock
import portal.wsgi
from sys import modules
from portal.core.outbox.outbox import add_many
with mock.patch("portal.core.outbox.outbox.connection"), mock.patch("portal.core.outbox.outbox.OutboxMessage"):
    add_many("billing.tasks.collect", [{}])
print("celery" in modules, "billing.tasks" in modules)
"""


def test_to_leave_work_to_a_worker_does_not_load_what_does_it() -> None:
    done = subprocess.run([sys.executable, "-c", LATER], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


TRACEBACK = """
import linecache, logging
import portal.settings
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("portal").warning("a peer does not answer", exc_info=True)
print(len(linecache.cache))
"""


def test_of_a_traceback_that_was_logged_no_sources_stay() -> None:
    done = subprocess.run([sys.executable, "-c", TRACEBACK], capture_output=True, text=True, check=True)
    assert "ZeroDivisionError" in done.stderr
    assert done.stdout.split() == ["0"]
