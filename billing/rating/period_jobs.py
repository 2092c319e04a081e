"""What is kept of the jobs of each billing period: a page of a large tenant reads no more than of a small one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clusters import temp_tables
from portal.sql_files import Statements

sql = Statements(__file__, "period_jobs.sql")

SHOWN = 8  # the most expensive jobs on the overview
KEPT = 12  # so many are left of them when MOST are kept: a few may come to cost less before all are looked through
MOST = 24


def keep_anew(cursor: Any, period_ids: Sequence[int]) -> None:
    """Look through all jobs of these billing periods: some are back that were in no table while others were rated."""
    temp_tables.prepare(cursor, "RATE")
    cursor.execute(sql.ALL_IN_DOUBT, {"periods": list(period_ids)})
    cursor.execute(sql.ANEW, {"shown": 2**31 - 1, "kept": KEPT, "most": MOST})
    temp_tables.empty(cursor, "RATE")


def keep(cursor: Any, *, unrated: bool) -> list[int]:
    """Follow what rating has just written of jobs, which stands in `rate_job`; `unrated`: none was there before.

    Returns the billing periods to look through again whose jobs stand in files alone.
    """
    limits = {"shown": SHOWN, "kept": KEPT, "most": MOST}
    cursor.execute(sql.PERIODS)
    cursor.execute(sql.STARTED)
    in_doubt = 0
    if not unrated:
        cursor.execute(sql.LESS)
        in_doubt = cursor.rowcount
    cursor.execute(sql.TOP, limits)
    if cursor.rowcount:
        cursor.execute(sql.CUT, limits)
    in_files: list[int] = []
    if in_doubt:
        cursor.execute(sql.IN_FILES, limits)
        in_files = sorted({period for period, is_short in cursor.fetchall() if is_short})
        cursor.execute(sql.ANEW, limits)
    return in_files
