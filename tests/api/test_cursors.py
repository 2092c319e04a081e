"""A list that is read while rows come and go: whoever stays is read exactly once. Case 7 of the API."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from portal.api import cursors
from portal.core.tenants.models import Tenant

ORDERS = st.sampled_from([("name", "pk"), ("-name", "pk"), ("-name", "-pk"), ("anchor_day", "-name", "pk")])


class WhileRowsComeAndGo(TestCase):
    @given(
        names=st.lists(st.sampled_from("abc"), min_size=1, max_size=12),
        order=ORDERS,
        limit=st.integers(1, 4),
        moves=st.lists(st.tuples(st.sampled_from(["add", "drop"]), st.sampled_from("abc")), max_size=12),
    )
    def test_api_007_each_row_that_stays_is_read_once(
        self, names: list[str], order: tuple[str, ...], limit: int, moves: list[tuple[str, str]]
    ) -> None:
        Tenant.objects.bulk_create(
            Tenant(slug=f"t{number}", name=name, anchor_day=1 + number % 3)
            for number, name in enumerate(names)
        )
        stays = set(Tenant.objects.values_list("pk", flat=True))
        read: list[int] = []
        query: dict[str, Any] = {"limit": limit, "cursor": None}
        number = 100
        while True:
            page = cursors.page(Tenant.objects.all(), order=order, query=query, listing="t", owner="o")
            read += [row.pk for row in page.rows]
            if moves:
                kind, name = moves.pop()
                number += 1
                if kind == "add":
                    Tenant.objects.create(slug=f"t{number}", name=name)
                else:
                    stays.discard(drop_a_tenant(name))
            if page.next is None:
                break
            query["cursor"] = page.next
        assert len(read) == len({*read})
        assert stays <= {*read}


def drop_a_tenant(name: str) -> int | None:
    """Without the 60 questions of Django after what else would go."""
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM tenants_tenant WHERE id = (SELECT min(id) FROM tenants_tenant WHERE name = %s)"
            " RETURNING id",
            [name],
        )
        row = cursor.fetchone()
    return row[0] if row else None


@pytest.mark.django_db
def test_api_006_counting_ends_at_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursors, "COUNTED", 2)
    query = {"limit": 1, "cursor": None, "count": True}

    def count() -> int | str | None:
        return cursors.page(Tenant.objects.all(), order=("pk",), query=query, listing="t", owner="o").count

    for number in range(2):
        Tenant.objects.create(slug=f"t{number}", name="x")
    assert count() == 2
    Tenant.objects.create(slug="more", name="x")
    assert count() == "2+"
