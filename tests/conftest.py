"""What every test stands on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from urllib.parse import quote, urlencode

import pytest

from tests.peers import HOME, POSTGRES


@pytest.fixture(scope="session")
def django_db_modify_db_settings() -> Iterator[None]:
    """Start the test database with the first test that needs one, unless DATABASE_URL names another."""
    if os.environ["DATABASE_URL"] != POSTGRES.url():
        yield
        return
    with POSTGRES:
        yield


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
