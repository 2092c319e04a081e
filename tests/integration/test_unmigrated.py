"""An upgrade whose migrations have not run: nothing begins to bill, and each process says why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.db.migrations.recorder import MigrationRecorder

from portal.env import ROOT
from portal.ops.schema import pending_migrations

PATIENCE = 400  # seconds
CELERY = [sys.executable, "-m", "celery", "--app", "portal.celery"]
PROCESSES = {
    "web": [sys.executable, "-m", "gunicorn", "--config", "deploy/gunicorn.conf.py"],
    "worker": [*CELERY, "worker"],
    "scheduler": [*CELERY, "beat"],
    "close_period": [sys.executable, "manage.py", "close_period", "2026-03"],
    "pull_usage": [sys.executable, "manage.py", "pull_usage", "lab", "--json"],
}


@pytest.mark.django_db
@pytest.mark.parametrize("name", PROCESSES)
def test_case_092_nothing_begins_over_a_schema_of_another_version(name: str, tmp_path: Path) -> None:
    environ = os.environ | {
        "DJANGO_SETTINGS_MODULE": "portal.settings",
        "CLUSTERTAB_HOME": str(tmp_path),
        "DATABASE_URL": os.environ["DATABASE_URL"],  # not the test database: nothing was ever migrated there
        "REDIS_URL": f"unix://{tmp_path}/none.sock",
        "PORT": "0",
    }
    done = subprocess.run(
        PROCESSES[name], env=environ, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 3
    assert "migrations have not run" in done.stderr
    assert "run the command migrate." in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout or name == "scheduler"  # which greets


@pytest.mark.django_db
def test_case_092_a_single_migration_that_has_not_run_is_named() -> None:
    assert pending_migrations() == []
    newest = MigrationRecorder.Migration.objects.filter(app="billing").latest("name")
    newest.delete()
    assert pending_migrations() == [f"billing.{newest.name}"]
