"""Lists in pages: no row is skipped or repeated, whatever comes and goes between two of them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from portal.core.pagination import Page, page
from portal.core.tenants.models import Tenant

pytestmark = pytest.mark.django_db

ZONES = ("UTC", "Asia/Tokyo", "UTC", "Europe/Berlin", "Asia/Tokyo", "UTC", "Europe/Berlin")


def tenants() -> list[Tenant]:
    return [
        Tenant.objects.create(slug=f"lab-{n}", name=f"Lab {n}", timezone=zone) for n, zone in enumerate(ZONES)
    ]


def of(*order: str, after: str = "", size: int = 3) -> Page[Tenant]:
    return page(Tenant.objects.all(), *order, after=after, size=size)


def all_pages(*order: str) -> list[Tenant]:
    rows, after = list[Tenant](), ""
    while True:
        part = of(*order, after=after)
        assert part.is_first == (not after)
        rows += part.rows
        if not part.next:
            return rows
        after = part.next


@pytest.mark.parametrize("order", [("id",), ("-id",), ("slug",), ("timezone", "slug"), ("-timezone", "-id")])
def test_the_pages_together_are_the_list(order: Sequence[str]) -> None:
    tenants()
    assert all_pages(*order) == list(Tenant.objects.order_by(*order))


def test_what_comes_and_goes_moves_no_other_row() -> None:
    rows = tenants()
    first = of("slug")
    assert first.rows == rows[:3]
    Tenant.objects.create(slug="lab", name="Before all of them")
    rows[2].delete()  # the one that the cursor names
    assert of("slug", after=first.next).rows == rows[3:6]


@pytest.mark.parametrize("cursor", ["x", "1", "_", "UTC_", "UTC_x", "UTC_" + "9" * 30, "UTC_1\0x", "9" * 99])
def test_a_text_that_is_no_cursor_begins_at_the_top(cursor: str) -> None:
    tenants()
    assert of("timezone", "id", after=cursor) == of("timezone", "id")


def test_a_last_page_that_is_full_is_the_last() -> None:
    tenants()
    assert not of("id", size=len(ZONES)).next
    assert of("id", size=len(ZONES) - 1).next
