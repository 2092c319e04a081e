"""Tests that begin with what one transaction holds for all of their file are held to the same laws as others."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, transaction

from billing.models import Price
from tests import builders, sharing
from tests.web.house import House, a_house

pytestmark = pytest.mark.django_db

begun, house = sharing.fixtures(a_house, "house")


def breaks_a_law() -> None:
    builders.a_plan("next-deal", prices=[("gpu-hour", {}, "1.00", builders.LONG_AGO)])
    with pytest.raises(IntegrityError, match="not per the unit of a declared meter"), transaction.atomic():
        Price.objects.filter(version__plan__name="next-deal").update(
            meter="tokens", resource="tokens", unit="token", title="Tokens", unit_code="C62"
        )


def test_a_law_that_holds_at_once_holds_at_once(house: House) -> None:
    breaks_a_law()


def test_what_one_test_changed_is_not_there_for_the_next(house: House) -> None:
    assert house.vision.slug == "vision-lab"
    breaks_a_law()  # the plan is made once more
