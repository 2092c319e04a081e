"""What every test stands on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import pytest
from django.test.utils import teardown_databases
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
def django_db_setup(
    request: pytest.FixtureRequest, django_test_environment: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[None]:
    """Start the test database with the first test that needs one, unless DATABASE_URL names another server."""
    from tests import databases, emptying

    if os.environ["DATABASE_URL"] == POSTGRES.url():
        with django_db_blocker.unblock():
            databases.start(POSTGRES)
            emptying.prepare()
        yield
        POSTGRES.__exit__(None, None, None)
        return
    request.getfixturevalue("django_db_modify_db_settings_parallel_suffix")
    with django_db_blocker.unblock():
        created = databases.migrate()
        emptying.prepare()
    yield
    with django_db_blocker.unblock():
        teardown_databases(created, verbosity=0)


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
