"""A test that starts one of everything and never ends: for whoever looks what is left when its run is killed.

Its file is not called test_…, so it runs where it is named alone: `pytest tests/integration/hanging.py`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from django.db import connection

from portal.dev.embedded.postgres import Postgres
from portal.dev.embedded.redis import Redis
from tests.integration.prom_lab import Lab as Prometheus
from tests.integration.prom_lab import bare
from tests.integration.slurm_lab import Lab as Slurm
from tests.owner import as_owner
from tests.web.browser import chromium

READY = "CLUSTERTAB_TEST_READY"  # names the file that says that all of it runs


@pytest.mark.django_db(transaction=True)
def test_all_of_it_runs(tmp_path: Path) -> None:
    with as_owner() as cursor:
        cursor.execute("CREATE TABLE left_by_a_killed_run ()")
    with Postgres(tmp_path), Redis(tmp_path), chromium() as browser:
        browser.new_page().goto("about:blank")
        _waits()


def test_the_labs_run(pushed_lab: Prometheus, slurm_lab: Slurm) -> None:
    with bare(pushed_lab):
        _waits()


@pytest.mark.django_db
def test_the_next_run_finds_nothing_of_it() -> None:
    assert "left_by_a_killed_run" not in connection.introspection.table_names()


def _waits() -> None:
    Path(os.environ[READY]).touch()
    time.sleep(600)
