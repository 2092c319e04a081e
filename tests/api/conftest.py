"""The house of two labs, and the API as its people's scripts use it."""

from __future__ import annotations

import pytest
from django.core.cache import cache

from tests import sharing
from tests.api.door import Door, door
from tests.web.house import House, a_house


@pytest.fixture(autouse=True)
def _nothing_counted() -> None:
    """Of the limits that the test before used up."""
    cache.clear()


begun, house = sharing.fixtures(a_house, "house")


@pytest.fixture
def ann(house: House) -> Door:
    return door(house.ann, house.vision)


@pytest.fixture
def op(house: House) -> Door:
    return door(house.op, None)
