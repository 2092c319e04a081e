"""`usage.csv` and `people.csv` of the evidence: the stretch of every job behind every line, and who its users are.

What is signed names users by a number (`JobUser`), so that a name can be erased without touching it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC

from django.db import connection

from billing.documents.csv import FORMULA, rows_to_csv
from billing.documents.line_jobs import CUTS, ORDER, cuts_of
from billing.models import InvoiceLine, LineKind

_NAMES = ("cluster", "account", "queue", "gpu_model", "mig_profile", "state")
COLUMNS = (
    *("line", "record", "job", "person", *_NAMES, "started", "ended", "suspended", "count"),
    *("service_from", "service_to", "units", "share_num", "share_den"),
)
PIECE = 1 << 16


def _cell(column: str) -> str:
    """The column as one cell of a spreadsheet: `billing.documents.csv.cell` in SQL."""
    return f"CASE WHEN {column} ~ %(formula)s THEN '''' || {column} ELSE coalesce({column}, '') END"


def _instant(second: str) -> str:
    return f"to_char(to_timestamp({second}) AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')"


_ROWS = f"""COPY (
SELECT %(line)s, u.record_id, {_cell("u.job_id")}, CASE WHEN p.id IS NOT NULL THEN 'u' || p.id ELSE '' END,
       {", ".join(_cell(f"u.{name}") for name in _NAMES)}, {_instant("u.started")},
       {_instant("coalesce(u.ended, u.seen_until)")}, u.suspended, u.count, {_instant("u.service_from")},
       {_instant("u.service_to")}, u.units, u.share_num, u.share_den
FROM ({CUTS}) u LEFT JOIN billing_jobuser p ON p.tenant_id = %(tenant)s AND p.name = u."user" AND p.name <> ''
ORDER BY {", ".join(f"u.{name.strip()}" for name in ORDER.split(","))}
) TO STDOUT WITH (FORMAT csv)
"""  # noqa: S608 - built from constants

_PEOPLE = """
SELECT DISTINCT 'u' || p.id, p.name, p.id FROM billing_usertotal t
JOIN billing_jobuser p ON p.tenant_id = t.tenant_id AND p.name = t."user"
WHERE t.tenant_id = %s AND t.period_id = ANY (%s) ORDER BY p.id
"""


def usage(lines: Sequence[InvoiceLine]) -> Iterator[bytes]:
    """The CSV, in pieces, as the database writes it. Two queries a line. `invoice` and `service_period` are loaded."""
    yield f"{','.join(COLUMNS)}\n".encode()
    for line in lines:
        if line.kind != LineKind.USAGE or not line.seconds_num:
            continue
        yield from (_sum(line),) if line.used_by() is not None else _jobs(line)


def people(lines: Sequence[InvoiceLine]) -> Iterator[bytes]:
    """Who used anything in the periods of these lines, by number. One query."""
    own = [line for line in lines if line.kind == LineKind.USAGE and line.used_by() is None]
    rows = []
    if own:
        with connection.cursor() as cursor:
            cursor.execute(_PEOPLE, [own[0].tenant_id, sorted({line.service_period_id for line in own})])
            rows = cursor.fetchall()
    return rows_to_csv(("person", "name"), [(person, name) for person, name, _ in rows])


def _sum(line: InvoiceLine) -> bytes:
    """What another tenant used, whose jobs are not told here."""
    service = line.service_period
    period = [f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" for at in (service.start, service.end)]
    cells = [line.position, *[""] * (COLUMNS.index("service_from") - 1), *period]
    return (",".join(map(str, [*cells, int(line.seconds_num), 1, line.seconds_den])) + "\n").encode()


def _jobs(line: InvoiceLine) -> Iterator[bytes]:
    values = cuts_of(line) | {"line": line.position, "formula": FORMULA}
    statement = connection.ops.compose_sql(_ROWS, values)  # type: ignore[attr-defined]  # of PostgreSQL
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        block = bytearray()
        for row in copy:
            block += row
            if len(block) >= PIECE:
                yield bytes(block)
                block.clear()
        yield bytes(block)
