"""Statements that are planned for any values leave the connection as it was, also where one fails."""

from __future__ import annotations

import pytest
from django.db import connection, transaction
from django.db.utils import DataError

from portal.prepared import prepared_cursor

pytestmark = pytest.mark.django_db(transaction=True)

QUOTIENT = "SELECT current_setting('plan_cache_mode'), 6 / %(by)s::int"


def mode() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW plan_cache_mode")
        return str(cursor.fetchone()[0])


def divided(by: int) -> tuple[str, int]:
    with prepared_cursor(any_values=True) as cursor:
        cursor.execute(QUOTIENT, {"by": by})
        how, quotient = cursor.fetchone()
        return how, quotient


def test_a_plan_for_any_values_is_taken_for_these_statements_alone() -> None:
    assert divided(3) == ("force_generic_plan", 2)
    assert mode() == "auto"
    with prepared_cursor() as cursor:
        cursor.execute(QUOTIENT, {"by": 2})
        assert cursor.fetchone() == ("auto", 3)


def test_one_that_fails_leaves_the_connection_as_it_was() -> None:
    with pytest.raises(DataError, match="division by zero"):
        divided(0)
    assert mode() == "auto"
    with transaction.atomic():
        with pytest.raises(DataError), transaction.atomic():
            divided(0)
        assert mode() == "auto"
        assert divided(2) == ("force_generic_plan", 3)
