"""A test that needs nothing but its database, and goes on until it may end: for whoever follows a run that is killed.

In a file of its own, since one that names a lab starts it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from django.db import connection

from tests import peers
from tests.integration.hanging import READY

HOME = "home"  # names the file beside READY's that says where the run has its servers


@pytest.mark.django_db
def test_its_database_answers_until_it_may_end() -> None:
    """It may when READY's file is deleted."""
    ready = Path(os.environ[READY])
    ready.with_name(HOME).write_text(str(peers.HOME))
    ready.touch()
    end = time.monotonic() + 600
    while ready.exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    assert connection.introspection.table_names()
