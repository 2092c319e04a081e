"""An accounting file into the ledger and the rated totals, the same file again, and its parsing alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from django.db import connection, transaction

from bench import instance, jobs, limits, world
from bench.result import Goal, Result, Side, in_turn
from bench.scale import Scale

BATCH = 10_000
RUN, READY = "bench_run", "bench_ready"


def works(scale: Scale, postmaster: int, names: set[str]) -> Iterator[Result]:
    """Taking in new jobs, taking them in again, reading the file without a database."""
    if not names & {"ingest", "floor", "replay", "parse"}:
        return
    count, accounts = scale.of(100_000), 40
    file = instance.HOME / "jobs.sacct"
    workload = list(jobs.jobs(count, accounts=accounts, days=45))
    file.write_text("".join(jobs.sacct_lines(iter(workload))))
    if "parse" in names:
        yield parse(scale, postmaster, file, count)
    instance.copy(instance.EMPTY, READY)
    cluster = world.build(accounts)
    world.resolve_terms()
    limits.tables()
    blocks = list(_blocks(world.record_rows(cluster, workload)))
    fresh = partial(instance.copy, READY, RUN)
    if "ingest" in names or "floor" in names:
        ours = Side(partial(ingest_file, file), fresh, partial(limits.sums, "billing"))
        limit = Side(partial(ingest_limit, blocks), fresh, partial(limits.sums, "bench"))
        cost, least = in_turn(postmaster, ours, limit, rounds=scale.rounds)
        title = "file → usage, rated, totals, watermark"
        yield Result("ingest", title, count, "jobs", cost, least, Goal(at_least="0.40"))
        bare = Side(partial(copy_bare, blocks), fresh)
        _, floor = in_turn(postmaster, Side(lambda: None), bare, rounds=scale.rounds)
        yield Result("floor", "the same beside a bare COPY of its rows", count, "jobs", cost, floor)
    if "replay" in names:
        fresh()
        ingest_file(file)
        again = Side(partial(ingest_file, file))
        lookup = Side(partial(look_up, blocks))
        cost, least = in_turn(postmaster, again, lookup, rounds=scale.rounds)
        yield Result("replay", "the same file again", count, "jobs", cost, least, Goal(at_least="0.40"))
    instance.drop(RUN, READY)


def ingest_file(file: Path) -> None:
    """What `import_usage` does."""
    from billing.rating import ingest
    from clusters.connectors.sacct import text_export
    from clusters.models import Cluster

    cluster = Cluster.objects.get()
    export = text_export.open_export(file, zone=ZoneInfo(cluster.timezone))
    ingest.ingest(
        cluster=cluster,
        rows=export.rows(),
        reading=export.reading,
        source=file.name,
        moment=world.MOMENT,
    )


def ingest_limit(blocks: list[bytes]) -> None:
    for block in blocks:
        with transaction.atomic(), connection.cursor() as cursor:
            _stage(cursor, block)
            cursor.execute(limits.TAKE_IN)
            cursor.execute("UPDATE clusters_cluster SET complete_through = %s", [world.MOMENT])


def look_up(blocks: list[bytes]) -> None:
    for block in blocks:
        with transaction.atomic(), connection.cursor() as cursor:
            _stage(cursor, block)
            cursor.execute(limits.UNKNOWN)
            if cursor.fetchone() != (0,):
                raise AssertionError("the limit's look-up does not know its own rows")


def copy_bare(blocks: list[bytes]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE bench_bare (LIKE clusters_usagerecord INCLUDING DEFAULTS)")
        cursor.execute("ALTER TABLE bench_bare ALTER id DROP NOT NULL")
        for block in blocks:
            with cursor.copy(f"COPY bench_bare ({world.RECORD_COLUMNS}) FROM STDIN") as copy:
                copy.write(block)


def parse(scale: Scale, postmaster: int, file: Path, count: int) -> Result:
    """Reading alone, against splitting the same lines at their separators."""
    from clusters.connectors.sacct import text_export

    def ours() -> None:
        for _ in text_export.open_export(file, zone=ZoneInfo("UTC")).rows():
            pass

    def bare() -> None:
        with file.open() as lines:
            for line in lines:
                line.split("|")

    cost, least = in_turn(postmaster, Side(ours), Side(bare), rounds=scale.rounds)
    return Result("parse", "sacct text → facts, beside a bare split", count, "jobs", cost, least)


def _stage(cursor: Any, block: bytes) -> None:
    cursor.execute(limits.STAGE)
    with cursor.copy(f"COPY bench_stage ({world.RECORD_COLUMNS}) FROM STDIN") as copy:
        copy.write(block)
    cursor.execute("ANALYZE bench_stage")


def _blocks(rows: Any) -> Iterator[bytes]:
    """The rows in COPY's own text, 10,000 at a time: the limit formats nothing while it is measured."""
    rows = iter(rows)
    while batch := list(islice(rows, BATCH)):
        text = ("\t".join("\\N" if value is None else str(value) for value in row) for row in batch)
        yield ("\n".join(text) + "\n").encode()
