"""What every test stands on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, settings
from pytest_django import DjangoDbBlocker

from tests.peers import HOME, POSTGRES

if TYPE_CHECKING:
    from tests.collecting import Counter

# Over whatever holds already, as in CI. No test is about time: what is slow is the machine, or a matter of the bench.
settings.register_profile(
    "any machine", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

pytest_plugins = ["tests.integration.prom_lab", "tests.integration.slurm_lab"]  # their fixtures


@pytest.fixture(scope="session")
def django_db_modify_db_settings() -> Iterator[None]:
    """Start the test database with the first test that needs one, unless DATABASE_URL names another."""
    if os.environ["DATABASE_URL"] != POSTGRES.url():
        yield
        return
    with POSTGRES:
        yield


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> None:
    """Each table counts from a number of its own, so that the id of one is never by chance that of another."""
    from django.db import connection

    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT setval(format('%I.%I', schemaname, sequencename)::regclass,"
            " 10000 * row_number() OVER (ORDER BY schemaname, sequencename))"
            " FROM pg_sequences WHERE max_value > 100000000"
        )


@pytest.fixture
def counter() -> Iterator[Counter]:
    """March's invoice of 4.00, which is due, and a stand-in for Stripe that has nothing of its tenant yet."""
    from tests.collecting import a_counter

    with a_counter() as found:
        yield found


def pytest_unconfigure() -> None:
    shutil.rmtree(HOME, ignore_errors=True)


@pytest.fixture
def database_url(transactional_db: None) -> str:
    """The address of the test database, for tests that start processes of their own."""
    from django.db import connection

    told = connection.settings_dict
    user = f"{quote(told['USER'])}:{quote(told['PASSWORD'])}"
    options = urlencode({"host": told["HOST"], **told["OPTIONS"]})
    port = f":{told['PORT']}" if told["PORT"] else ""
    return f"postgresql://{user}@{port}/{quote(told['NAME'])}?{options}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `long` wait for `./run test --long`."""
    if os.environ.get("CLUSTERTAB_LONG") == "1":
        return
    skip = pytest.mark.skip(reason="takes minutes: ./run test --long")
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(skip)
