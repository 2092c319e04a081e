"""Kill -9 while the partitions of new months are made: what is read again ends as if nothing had happened."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from clusters.models import UsageRecord
from tests.builders import LONG_AGO, a_cluster, a_plan, a_tenant
from tests.integration.operators import Operator
from tests.owner import as_owner
from tests.stories import prove

MONTHS, KILLS = 24, 5
BEGUN = 1_325_419_200  # 2012-01-01 12:00
MONTH = 2_629_800


@pytest.fixture
def new_months(transactional_db: None) -> Iterator[None]:
    """What the test makes goes with it: months outlast their rows, and there are too few in the past for all seeds."""
    before = attached()
    yield
    for (part,) in sorted(set(attached()) - set(before)):
        with as_owner() as owner:
            owner.execute(f"DROP TABLE {part}")


@pytest.mark.usefixtures("new_months")
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 10))])
def test_months_whose_maker_is_killed_are_made_again(seed: int, database_url: str, tmp_path: Path) -> None:
    """Five kills a seed, each while somebody holds the lock under which partitions are made."""
    cluster = a_cluster()
    a_tenant(plan=a_plan(prices=[("gpu-hour", {}, "1.37", LONG_AGO)]), accounts=[(cluster, "vision")])
    dice = random.Random(seed)
    files = [jobs(tmp_path / f"{number}.sacct", number) for number in range(KILLS)]

    killed = 0
    with Operator(database_url) as op:
        for file in files:
            killed += op.is_killed_doing(
                "import_usage", "gpu1", file, count=makers, at=1, after=dice.uniform(0, 0.05)
            )
            assert attached() == made(), "a partition is made whole or not at all"
            op.does("import_usage", "gpu1", file)

    assert killed > KILLS // 2, "the others had made all before the blow fell"
    assert attached() == made()
    assert UsageRecord.objects.count() == KILLS * MONTHS
    assert prove()["pending"] == KILLS * MONTHS * 3600


def jobs(path: Path, number: int) -> Path:
    """A job of an hour in each of two years' months that no file before it has."""
    lines = ["JobIDRaw|JobID|User|Account|Partition|Submit|Start|End|ElapsedRaw|Suspended|State|AllocTRES"]
    for month in range(number * MONTHS, (number + 1) * MONTHS):
        start = BEGUN + month * MONTH
        lines.append(
            f"{month + 1}|{month + 1}|ada|vision|gpu|{_at(start)}|{_at(start)}|{_at(start + 3600)}|3600|00:00:00"
            "|COMPLETED|cpu=4,mem=4G,gres/gpu=1,gres/gpu:a100=1"
        )
    path.write_text("\n".join(lines) + "\n")
    return path


def makers() -> int:
    """How many hold the lock of those who make partitions of records."""
    return int(
        _rows(
            "SELECT count(*) FROM pg_locks, hashtextextended('clusters_usagerecord', 0) AS key"
            " WHERE locktype = 'advisory' AND granted AND classid::bigint = (key >> 32) & 4294967295"
            " AND objid::bigint = key & 4294967295"
        )[0][0]
    )


def made() -> list[Any]:
    return _rows(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname ~ '_20[0-9]{2}_[0-9]{2}$' ORDER BY 1"
    )


def attached() -> list[Any]:
    return _rows(
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
        " WHERE c.relkind = 'r' AND c.relname ~ '_20[0-9]{2}_[0-9]{2}$' ORDER BY 1"
    )


def _rows(statement: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def _at(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
