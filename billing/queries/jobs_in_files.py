"""Which jobs no list has, since their rows stand in the files of sealed months."""

from __future__ import annotations

from collections.abc import Iterable

from billing.models import BillingPeriod
from billing.queries.jobs import JobFilter
from clusters import absent_records


def refuse_absent(filters: JobFilter) -> None:
    """Raise RowsInFilesError where jobs of the period or days that are asked for are in no table. A query, or none."""
    if filters.period is not None:
        absent_records.refuse_periods([filters.period.pk])
    if filters.ran is not None:
        absent_records.refuse_between(*filters.ran)


def absent_months(periods: Iterable[BillingPeriod]) -> str:
    """Months whose jobs no list of these billing periods has, as text; empty where there are none. One query."""
    return absent_records.months_text(absent_records.list_of_periods(period.pk for period in periods))
