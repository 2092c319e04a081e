"""Op looks at a statement as the database gets it, and at its plan."""

from __future__ import annotations

import re
from functools import cache

import pytest
from django.core.management import call_command
from django.db import connection

from billing.models.plans import SELECTORS
from billing.models.rated import MEASURES, Resource
from clusters import temp_tables
from portal.ops.cli import BadInputError
from portal.ops.management.commands.show_sql import plan_of
from portal.sql_files import every
from tests.scenarios.configuring import run_json

pytestmark = pytest.mark.django_db


def test_all_statements_are_listed_and_one_is_printed_whole(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("show_sql")
    names = capsys.readouterr().out.split("\n")
    assert "billing.rating.rate_usage.CUTS" in names
    call_command("show_sql", "MOVE_WATERMARK")
    assert capsys.readouterr().out == (
        "UPDATE clusters_cluster SET complete_through = %(as_of)s\n"
        "WHERE id = %(cluster)s AND (complete_through IS NULL OR complete_through < %(as_of)s);\n"
    )
    answer = run_json("show_sql", "rate_usage.PAYERS")
    assert answer["name"] == "billing.rating.rate_usage.PAYERS"
    assert answer["about"] == "Somebody may have come to pay while the locks were waited for."
    assert answer["placeholders"] == ["tenants"]


def test_a_plan_is_that_of_the_values_and_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT billing_ensure_jobs(674)")  # of a table without a month nothing is planned
        cursor.execute("DISCARD TEMP")  # else the session's working tables are there already
    call_command("show_sql", "live.GONE", "--plan", "--set", "tenant=4711")
    assert "= '4711'::bigint" in capsys.readouterr().out
    assert run_json("show_sql", "ledger.COPY_STAGE", "--plan")["plan"] == []
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('pg_temp.suppose_cut')")
        assert cursor.fetchone() == (None,)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["NOTHING"], "There is no statement 'NOTHING'"),
        (
            ["SUMS"],
            "Several statements are called so: billing.proof.records.SUMS, billing.reports.report.SUMS",
        ),
        (["live.GONE", "--plan", "--set", "price=1"], "sets no placeholder; there are tenant"),
    ],
)
def test_what_is_no_name_or_placeholder_is_refused(arguments: list[str], sentence: str) -> None:
    with pytest.raises(BadInputError, match=re.escape(sentence)):
        call_command("show_sql", *arguments)


@cache
def plans() -> dict[str, list[str]]:
    """Of each statement by its whole name; empty for what has none. Made once: it takes seconds."""
    return {name: plan_of(statement, {}, verbose=True) for name, statement in every()}


def test_every_statement_stands_whole() -> None:
    """The database takes each as it is, once its placeholders are filled, and nothing is a piece of another."""
    without = {name.rpartition(".")[2] for name, plan in plans().items() if not plan}
    assert {name for name in without if not re.match(r"COPY_|ANALYZE_", name)} == {
        *temp_tables.TABLES,
        "SETTINGS",
    }


def test_functions_that_statements_share_are_put_in_their_place() -> None:
    """A call that stays in a plan would be made for each row."""
    text = "\n".join("\n".join(plan) for plan in plans().values())
    for function in (
        "held_seconds",
        "resource_amount",
        "resource_parts",
        "usage_finish",
        "day_start",
        "utc_month",
        "units_within",
    ):
        assert f"{function}(" not in text
    assert not re.search(
        r"Function Scan on (covered_within|billing_terms_of|report_|line_cuts|jobs_as_billed)", text
    )


def test_what_is_rated_and_selected_by_is_the_same_in_models_and_in_the_database() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT resource, is_measure FROM billing_resource")
        assert dict(cursor.fetchall()) == {resource.value: resource in MEASURES for resource in Resource}
        cursor.execute("SELECT resource FROM billing_anyresource WHERE meter = ''")
        assert {resource for (resource,) in cursor.fetchall()} == set(Resource.values)
    selected = next(one for name, one in every() if name.endswith("price_spans.SELECTED"))
    assert re.findall(r"bool_or\((\w+) <> '{}'\), false\) AS by_", selected.text) == list(SELECTORS.values())
    assert re.findall(r"AS by_(\w+)", selected.text) == list(SELECTORS)
