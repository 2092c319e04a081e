"""`show_sql [NAME]`: a statement as it is sent to the database, and how it is planned there."""

from __future__ import annotations

import re
from typing import Any

from django.core.management.base import CommandParser
from django.db import Error, connection, transaction

from clusters import temp_tables
from portal.excerpt import quoted
from portal.ops.cli import Answer, BadInputError, OperatorCommand, RefusedError
from portal.sql_files import Statement, every

PLACEHOLDER = re.compile(r"%\((\w+)\)s")
PLANNED = re.compile(r"(?:SELECT|INSERT|UPDATE|DELETE|WITH)\b")
COPIED = re.compile(r"COPY \((.+)\) TO STDOUT\b.*", re.DOTALL)

SAMPLES: dict[str, str | None] = {
    **dict.fromkeys(
        ("as_of", "moment", "begun_at", "earliest", "quiet_before", "start", "end"), "2026-03-01 00:00:00+00"
    ),
    **dict.fromkeys(
        ("by_cluster", "by_queue", "by_qos", "by_priority_class", "by_mig_profile", "by_state"), "false"
    ),
    **dict.fromkeys(("by_use", "of_one_tenant", "in_hours", "unrated"), "false"),
    **dict.fromkeys(("ended", "marks", "month"), None),
    **dict.fromkeys(("day", "earlier", "first_day", "first_month", "last_month", "same_end"), "2026-03-01"),
    "by": "tenant",
    "since": "1772323200",
    "minor_units": "{}",
    "until": "1775001600",
}
"""Values of placeholders that are no number; every other one is 1, or an array of 1."""


class Command(OperatorCommand):
    help = "Print a statement as it is sent to the database, with its placeholders; without a name, list all."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", nargs="?", help="the statement's name, or how it ends; default: list all")
        parser.add_argument(
            "--plan", action="store_true", help="also print how the database would carry it out"
        )
        parser.add_argument(
            "--set",
            dest="assignments",
            action="append",
            default=[],
            metavar="PLACEHOLDER=VALUE",
            help="with --plan, the value of a placeholder; default: a sample",
        )

    def answer(self, *, name: str | None, plan: bool, assignments: list[str], **_: Any) -> Answer:
        if name is None:
            rows = [{"name": whole, "about": one.about} for whole, one in every()]
            return Answer({"statements": rows}, "\n".join(row["name"] for row in rows))
        whole, statement = _named(name)
        names = list(dict.fromkeys(PLACEHOLDER.findall(statement.text)))
        values = _values(assignments, names)
        data = {"name": whole, "about": statement.about, "placeholders": names, "text": statement.text}
        about = "".join(f"-- {line}\n" for line in statement.about.splitlines())
        text = f"{about}{statement.text};"
        if plan:
            data["plan"] = plan_of(statement, values)
            text += "\n\n" + "\n".join(data["plan"] or ["-- It has no plan."])
        return Answer(data, text)


def _named(name: str) -> tuple[str, Statement]:
    statements = dict(every())
    names = [name] if name in statements else [one for one in statements if one.endswith(f".{name}")]
    if not names:
        raise BadInputError(f"There is no statement {quoted(name)}: show_sql lists all.")
    if len(names) > 1:
        raise BadInputError(f"Several statements are called so: {', '.join(names)}.")
    return names[0], statements[names[0]]


def _values(assignments: list[str], names: list[str]) -> dict[str, str | None]:
    values: dict[str, str | None] = {}
    for setting in assignments:
        name, equals, value = setting.partition("=")
        if not equals or name not in names:
            raise BadInputError(
                f"{quoted(setting)} sets no placeholder; there are {', '.join(names) or 'none'}."
            )
        values[name] = None if value == "NULL" else value
    return values


def plan_of(statement: Statement, values: dict[str, str | None], *, verbose: bool = False) -> list[str]:
    """How the database would carry it out, by these values and samples; empty for what has no plan. Changes nothing."""
    lines: list[str] = []
    with transaction.atomic(), connection.cursor() as cursor:
        temp_tables.prepare(cursor, *temp_tables.TABLES)
        for part in re.split(r";\s*\n", statement.text):
            inner = COPIED.match(part)
            query = inner[1] if inner else part
            if not PLANNED.match(query.lstrip()):
                continue
            samples = {name: sample(name, query) for name in PLACEHOLDER.findall(query)}
            try:
                cursor.execute(
                    f"EXPLAIN (VERBOSE {verbose}) {query}", {**samples, **values} if samples else None
                )
            except Error as error:
                raise RefusedError(f"It cannot be planned: {str(error).strip().splitlines()[0]}.") from error
            lines += [line for (line,) in cursor.fetchall()]
        transaction.set_rollback(True)
    return lines


def sample(name: str, query: str) -> str | None:
    """A value that the placeholder can have there."""
    if re.search(rf"%\({name}\)s::(timestamptz|date)\[\]", query):
        return "{2026-03-01}"
    if re.search(rf"%\({name}\)s::(timestamptz|date)\b", query):
        return "2026-03-01"
    if re.search(rf"(?:ANY|ALL) ?\(%\({name}\)s\)|%\({name}\)s::\w+\[\]", query):
        return None if SAMPLES.get(name, "") is None else "{1}"
    return SAMPLES.get(name, "1")
