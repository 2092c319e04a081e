"""A program that writes and reads Parquet by DuckDB: a request a line as JSON on standard input, its answer on output.

It is a process of its own because DuckDB and what it holds in memory are as large as a whole worker, and go away with
it. It knows no Django. Rows come and go as files of CSV, every value in quotes as PostgreSQL writes them, so that rows
that were read back can be compared byte for byte. Its argument is a directory for what does not fit into memory.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import duckdb

MEMORY = "256MB"
LONGEST_ROW = 8 << 20  # bytes
BUFFER = 2 * LONGEST_ROW  # of rows at once; DuckDB would take sixteen
CSV = "DELIM ',', QUOTE '\"', ESCAPE '\"', NULLSTR ''"
PARQUET = (
    "FORMAT parquet, PARQUET_VERSION v2, COMPRESSION zstd, COMPRESSION_LEVEL 9, WRITE_BLOOM_FILTER false"
)
"""Filters by which groups of rows are skipped are a tenth of a small tenant's files, which have one group each."""


def write(db: duckdb.DuckDBPyConnection, rows: str, file: str, columns: Mapping[str, str]) -> dict[str, Any]:
    """Write the rows as Parquet, read them back into the file of rows, and say the digest of what was read."""
    types = ", ".join(f"{_text(name)}: {_text(kind)}" for name, kind in columns.items())
    db.execute(
        f"COPY (SELECT * FROM read_csv({_text(rows)}, header=false, auto_detect=false, parallel=false,"
        f" delim=',', quote='\"', escape='\"', nullstr='', allow_quoted_nulls=false, new_line='\\n',"
        f" max_line_size={LONGEST_ROW}, buffer_size={BUFFER}, columns={{{types}}})) TO {_text(file)} ({PARQUET})"
    )
    read(db, rows, file)
    with Path(rows).open("rb") as stream:
        return {"sha256": hashlib.file_digest(stream, "sha256").hexdigest()}


def read(
    db: duckdb.DuckDBPyConnection,
    rows: str,
    file: str,
    within: tuple[str, int, int] | None = None,
) -> dict[str, Any]:
    """Write the rows of a Parquet file as CSV: all, or those whose column is in (after, last]."""
    where = ""
    if within is not None:
        column, after, last = within
        where = f' WHERE "{column}" > {int(after)} AND "{column}" <= {int(last)}'
    _write_csv(db, f"SELECT * FROM read_parquet({_text(file)}){where}", rows)
    return {}


def pick(db: duckdb.DuckDBPyConnection, rows: str, files: list[str], column: str) -> dict[str, Any]:
    """Replace the numbers in the file of rows by the rows of Parquet files that have one of them in the column."""
    db.execute(
        f"CREATE OR REPLACE TEMP TABLE picked AS SELECT number FROM read_csv({_text(rows)}, header=false,"
        " auto_detect=false, columns={'number': 'BIGINT'})"
    )
    first, last = db.execute(
        "SELECT coalesce(min(number), 0), coalesce(max(number), 0) FROM picked"
    ).fetchall()[0]
    _write_csv(
        db,
        f'SELECT r.* FROM {_parquet(files)} r SEMI JOIN picked p ON p.number = r."{column}"'
        f' WHERE r."{column}" >= {first} AND r."{column}" <= {last}',
        rows,
    )
    return {}


def count_usage(
    db: duckdb.DuckDBPyConnection, files: list[str], clusters: list[int], since: int, until: int
) -> dict[str, Any]:
    """How many records of clusters held something, or waited, in [since, until)."""
    ((count,),) = db.execute(f"SELECT count(*) {_usage(files, clusters, since, until)}").fetchall()
    return {"records": count}


def read_usage(
    db: duckdb.DuckDBPyConnection, rows: str, files: list[str], clusters: list[int], since: int, until: int
) -> dict[str, Any]:
    """Write the records of clusters that held something, or waited, in [since, until) as CSV."""
    _write_csv(db, f"SELECT * {_usage(files, clusters, since, until)}", rows)
    return {}


def _usage(files: list[str], clusters: list[int], since: int, until: int) -> str:
    """Held as by PostgreSQL's `usage_finish`; waited as clusters/usage_reports.sql counts it."""
    since, until = int(since), int(until)
    return (
        f"FROM {_parquet(files)} WHERE cluster_id IN ({', '.join(str(int(cluster)) for cluster in clusters)})"
        f" AND (started < {until}"
        f" AND CASE WHEN meter = '' THEN coalesce(ended, seen_until) ELSE started + 1 END > {since}"
        f" OR coalesce(eligible, submitted) < {until} AND coalesce(started, ended, {until}) > {since})"
    )


def read_jobs(
    db: duckdb.DuckDBPyConnection,
    rows: str,
    files: Mapping[str, list[str]],
    columns: Mapping[str, list[str | None]],
    rated: list[tuple[int, int]] | None,
    **chosen: Any,
) -> dict[str, Any]:
    """Write jobs, their runs, and what was rated of them, from files by kind, as CSV: each row begins with its kind.

    `columns` has by kind, of those to be written, what stands in the columns that all have; `chosen` is what `_choose`
    takes. What was rated is that of records `rated`, ranges (after, last], if these are given: a document covers also
    that of a former job.
    """
    db.execute("CREATE OR REPLACE TEMP TABLE found (number BIGINT)")
    if files["jobs"]:
        db.execute(f"INSERT INTO found SELECT record_id {_choose(db, _parquet(files['jobs']), **chosen)}")
    first, last = db.execute(
        "SELECT coalesce(min(number), 0), coalesce(max(number), 0) FROM found"
    ).fetchall()[0]
    selects = []
    for kind, column in (("jobs", "record_id"), ("rated", "record_id"), ("records", "id")):
        if not files[kind] or kind not in columns:
            continue
        values = ", ".join("NULL" if name is None else f'r."{name}"' for name in columns[kind])
        if kind == "rated" and rated is not None:
            ranges = " OR ".join(
                f"r.record_id > {int(after)} AND r.record_id <= {int(end)}" for after, end in rated
            )
            where = f"WHERE {ranges}"
        else:
            where = (
                f"SEMI JOIN found ON found.number = r.{column}"
                f" WHERE r.{column} >= {first} AND r.{column} <= {last}"
            )
        selects.append(f"SELECT {_text(kind)}, {values} FROM {_parquet(files[kind])} r {where}")
    _write_csv(db, " UNION ALL ".join(selects), rows)
    return {}


def _choose(
    db: duckdb.DuckDBPyConnection,
    jobs: str,
    records: list[int] | None = None,
    part: tuple[str, str] | None = None,
    with_parts: bool = False,
    number: str = "",
    most: int = 0,
) -> str:
    """What chooses among jobs: all; those of these `records`, with the other parts of the first one's job, which is
    named `part` (namespace, name) where no file knows it; or the `most` newest of that `number`, an array or a step of
    it, those of the very number first, as billing/queries/search.sql looks for them in the tables.
    """
    if number:
        signs = " OR ".join(f"starts_with(job_id, {_text(number + sign)})" for sign in "_.[")
        return (
            f"FROM {jobs} WHERE meter = '' AND (job_id = {_text(number)} OR {signs})"
            f" ORDER BY job_id = {_text(number)} DESC, coalesce(shown_at, started) DESC,"
            f" record_id DESC LIMIT {int(most)}"
        )
    if records is None:
        return f"FROM {jobs}"
    where = f"record_id IN ({', '.join(str(int(record)) for record in records)})"
    if with_parts and part is None:  # as portal/schema/months.sql has it of a table's
        part = db.execute(
            f"SELECT split_part(job_id, '/', 1), name FROM {jobs} WHERE record_id = {int(records[0])}"
            " AND name <> '' AND meter = '' AND strpos(job_id, '/') > 1"
        ).fetchone()
    if part is not None:
        where += f" OR starts_with(job_id, {_text(part[0] + '/')}) AND name = {_text(part[1])}"
    return f"FROM {jobs} WHERE {where}"


def find(db: duckdb.DuckDBPyConnection, rows: str, file: str, cluster: int) -> dict[str, Any]:
    """Replace the keys in the file of rows by the cluster's records that have them, as CSV.

    Their numbers are looked for first, by two columns: a batch names few of the groups that rows are stored in.
    """
    db.execute(
        f"CREATE OR REPLACE TEMP TABLE found AS SELECT r.id FROM read_parquet({_text(file)}) r SEMI JOIN"
        f" read_csv({_text(rows)}, header=false, auto_detect=false, delim=',', quote='\"', escape='\"', nullstr='',"
        f" allow_quoted_nulls=false, new_line='\\n', columns={{'key': 'VARCHAR'}}) k ON r.source_key = k.key"
        f" WHERE r.cluster_id = {int(cluster)}"
    )
    first, last = db.execute("SELECT coalesce(min(id), 0), coalesce(max(id), 0) FROM found").fetchall()[0]
    _write_csv(
        db,
        f"SELECT r.* FROM read_parquet({_text(file)}) r SEMI JOIN found ON found.id = r.id"
        f" WHERE r.id >= {first} AND r.id <= {last}",
        rows,
    )
    return {}


def _write_csv(db: duckdb.DuckDBPyConnection, select: str, rows: str) -> None:
    db.execute(f"COPY ({select}) TO {_text(rows)} (FORMAT csv, HEADER false, {CSV}, FORCE_QUOTE *)")


def sums(db: duckdb.DuckDBPyConnection, file: str, select: str) -> dict[str, Any]:
    """The rows of a statement over `file` as texts: sums are 128 bits wide, wider than numbers of JSON."""
    rows = db.execute(select.replace("FROM file", f"FROM read_parquet({_text(file)})")).fetchall()
    return {"rows": [[None if value is None else str(value) for value in row] for row in rows]}


def _parquet(files: list[str]) -> str:
    return f"read_parquet([{', '.join(map(_text, files))}])"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


ACTS: Mapping[str, Callable[..., dict[str, Any]]] = {
    act.__name__: act for act in (write, read, pick, count_usage, read_usage, read_jobs, find, sums)
}


def main(directory: str) -> None:
    """Answer requests until there are no more; one that fails is answered with its error."""
    db = duckdb.connect(
        config={
            "threads": 1,  # rows stay in their order, and the same rows make the same file
            "memory_limit": MEMORY,
            "temp_directory": directory,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
    )
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = ACTS[request.pop("act")](db, **request)
        except (duckdb.Error, OSError) as error:
            answer = {"error": str(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
