"""Whoever waits too long for the database reads that, and nothing is half done."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from django.db import connection

from billing.queries import search
from portal.env import database
from portal.patience import limit
from tests.web.house import a_house, signed_in

pytestmark = pytest.mark.django_db


def takes_too_long(*_: Any, **__: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = '20ms'")
        cursor.execute("SELECT pg_sleep(5)")


def test_a_page_that_takes_too_long_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    house = a_house(close=False)
    monkeypatch.setattr(search, "of_everybody", takes_too_long)
    answer = signed_in(house.op).get("/operator/search/", {"q": "4711"})
    assert answer.status_code == 503
    assert "That takes too long now" in answer.content.decode()
    assert "Nothing that you entered was saved" in answer.content.decode()


def test_the_last_word_of_the_limits_is_the_operators() -> None:
    ours = database("postgresql://portal:secret@database/clustertab", pool=8)
    assert limit(ours)["OPTIONS"]["options"] == "-c lock_timeout=20s -c statement_timeout=120s"
    theirs = database("postgresql://portal@database/tab?options=-c%20statement_timeout%3D5s", pool=8)
    assert limit(theirs)["OPTIONS"]["options"].endswith(" -c statement_timeout=5s")


@pytest.mark.parametrize(("pool", "waits"), [("8", "2min"), ("0", "0")])
def test_processes_that_serve_pages_have_limits_and_workers_have_none(pool: str, waits: str) -> None:
    code = (
        "import django; django.setup()\n"
        "from django.db import connection\n"
        "with connection.cursor() as cursor:\n"
        "    cursor.execute('SHOW statement_timeout')\n"
        "    print(cursor.fetchone()[0])"
    )
    environ = os.environ | {"DJANGO_SETTINGS_MODULE": "portal.settings", "DATABASE_POOL": pool}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == waits
