"""A `pg_dump` of one's own beside a drop: it has the rows or the mark, or it fails."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest

from billing.models import SealedMonth
from billing.sealed_months import drop
from billing.sealed_months.errors import SealError
from clusters.models import Cluster
from portal.dev.embedded.postgres import binaries
from tests.builders import ingest
from tests.integration.slurm_lab import until
from tests.integration.test_restore_and_reconcile import dump, owner_of, restored
from tests.sealed_march import MARCH, NOW, enter_march, rows, sealed
from tests.stories import close, prove

__all__ = ("dump",)
pytestmark = pytest.mark.usefixtures("transactional_db")

WAITING = """
SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted AND a.application_name = %s
"""


@pytest.fixture(autouse=True)
def march(transactional_db: None, settings: Any, tmp_path: Path) -> dict[str, list[Any]]:
    """The rows of March, which is sealed."""
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"
    enter_march()
    ingest(Cluster.objects.get(), as_of="2026-05-02")
    close("2026-04", on="2026-05-03")
    sealed()
    return rows()


def begin_dump(database_url: str, file: str, **environ: str) -> subprocess.Popen[str]:
    options = ("--enable-row-security", "--format=custom", "--no-owner", f"--file={file}")
    return subprocess.Popen(
        [binaries() / "pg_dump", *options, owner_of(database_url)],
        env=os.environ | environ,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("name", ["", "nightly"])
def test_it_fails_since_it_would_have_neither_the_rows_nor_the_mark_and_the_next_one_has_all(
    march: dict[str, list[Any]], database_url: str, dump: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    look, begun = drop._is_backed_up, []
    environ = {"PGAPPNAME": name} if name else {}

    def begin_after(cursor: Any) -> bool:
        """Its snapshot is of after the look and of before the drop's end, and it waits for what the drop holds."""
        seen = look(cursor)
        begun.append(begin_dump(database_url, dump, **environ))
        with psycopg.connect(database_url, autocommit=True) as other:
            until(lambda: other.execute(WAITING, [name or "pg_dump"]).fetchone() != (0,), seconds=60)
        return seen

    monkeypatch.setattr(drop, "_is_backed_up", begin_after)
    assert drop.drop_month(month=MARCH, moment=NOW, all_processes_replaced=True).dropped_at == NOW
    _, errors = begun[0].communicate(timeout=120)
    assert begun[0].returncode != 0
    assert re.search(r'relation "public.billing_drops_(even|odd)" does not exist', errors), errors
    again = begin_dump(database_url, dump)
    assert again.wait(120) == 0
    with restored(database_url, dump):
        assert SealedMonth.objects.get().dropped_at == NOW
        prove()
        drop.load_back(month=MARCH)
        assert rows() == march
        prove()


def test_one_that_runs_under_any_name_has_the_drop_try_later(
    march: dict[str, list[Any]], database_url: str, dump: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drop, "ATTEMPTS", 2)
    with psycopg.connect(database_url) as holder:
        holder.execute("LOCK TABLE webhooks_webhook IN ACCESS EXCLUSIVE MODE")
        running = begin_dump(database_url, dump, PGAPPNAME="nightly")
        with psycopg.connect(database_url, autocommit=True) as other:
            until(lambda: other.execute(WAITING, ["nightly"]).fetchone() != (0,), seconds=60)
        with pytest.raises(SealError, match="Somebody reads or writes 2026-03 right now"):
            drop.drop_month(month=MARCH, moment=NOW, all_processes_replaced=True)
    assert running.wait(120) == 0
    assert drop.drop_month(month=MARCH, moment=NOW, all_processes_replaced=True).dropped_at == NOW
    with restored(database_url, dump):
        assert SealedMonth.objects.get().dropped_at is None
        assert rows() == march
