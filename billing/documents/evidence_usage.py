"""`usage.csv` and `people.csv` of the evidence: the stretch of every job behind every line, and who its users are.

What is signed names users by a number (`JobUser`), so that a name can be erased without touching it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC

from django.db import connection

from billing.documents.csv import FORMULA, rows_to_csv
from billing.documents.line_jobs import absent_of, cuts_of, sql
from billing.models import InvoiceLine, LineKind
from clusters import absent_records

_NAMES = ("cluster", "account", "queue", "gpu_model", "mig_profile", "state")
COLUMNS = (
    *("line", "record", "job", "person", *_NAMES, "started", "ended", "suspended", "count"),
    *("service_from", "service_to", "units", "share_num", "share_den"),
)
PIECE = 1 << 16


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
            periods = sorted({line.service_period_id for line in own})
            cursor.execute(sql.PEOPLE, {"tenant": own[0].tenant_id, "periods": periods})
            rows = cursor.fetchall()
    return rows_to_csv(("person", "name"), [(person, name) for person, name, _ in rows])


def _sum(line: InvoiceLine) -> bytes:
    """What another tenant used, whose jobs are not told here."""
    service = line.service_period
    period = [f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" for at in (service.start, service.end)]
    cells = [line.position, *[""] * (COLUMNS.index("service_from") - 1), *period]
    return (",".join(map(str, [*cells, int(line.seconds_num), 1, line.seconds_den])) + "\n").encode()


def _jobs(line: InvoiceLine) -> Iterator[bytes]:
    cuts = cuts_of(line)
    absent_records.show(absent_of(cuts), most=None)
    values = cuts | {"line": line.position, "formula": FORMULA}
    statement = connection.ops.compose_sql(sql.EVIDENCE, values)  # type: ignore[attr-defined]  # of PostgreSQL
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        block = bytearray()
        for row in copy:
            block += row
            if len(block) >= PIECE:
                yield bytes(block)
                block.clear()
        yield bytes(block)
