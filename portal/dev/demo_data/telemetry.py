"""How busy the GPUs of all clusters were. Pure, like the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from random import Random

from clusters.connectors.base import BusyHour, BusySource, Row, UsageFact
from portal.dev.demo_data.cast import BUSY, DAY, HOUR, NOTEBOOKS

METRIC = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
SCRAPED = 30  # seconds between two samples
NOTEBOOK = {group.namespace for group in NOTEBOOKS}
# Per cent that a service's GPUs work by hour of the day: people ask by day.
BY_DAY = (
    *(12, 10, 9, 9, 10, 12, 18, 30),
    *(46, 58, 66, 70, 64, 68, 72, 71),
    *(65, 56, 44, 36, 30, 25, 20, 15),
)
UNSEEN = 7  # per cent of slices' pods whose samples carry no labels
OUTAGE = (9 * DAY + 2 * HOUR, 9 * DAY + 8 * HOUR)  # after the beginning: no exporter answered


def with_telemetry(rows: Iterable[Row], *, since: int) -> Iterator[Row | BusyHour]:
    """Each run and then its hours from `since` on, as an exporter would have told of them; the same for the same."""
    for row in rows:
        yield row
        if isinstance(row, UsageFact) and row.gpus and row.started is not None:
            yield from _hours(row, since)


def _hours(fact: UsageFact, since: int) -> Iterator[BusyHour]:
    rng = Random(f"telemetry {fact.source_key}")  # noqa: S311 - not for secrets
    started, end = fact.started or 0, fact.ended or fact.seen_until or 0
    if fact.mig_profile and rng.randrange(100) < UNSEEN:
        return
    strength = rng.randint(70, 125)  # per cent of what is usual
    for hour in range(max(started - started % HOUR, since), end, HOUR):
        allocated = fact.gpus * (min(end, hour + HOUR) - max(started, hour))
        covered = allocated - allocated % SCRAPED
        if covered <= 0 or OUTAGE[0] <= hour - since < OUTAGE[1]:
            continue
        usual = _usual(rng, fact, hour, end)
        thousandths = min(usual * strength // 100 + rng.randrange(30), 1000)
        yield BusyHour(
            fact.source_key, hour, Decimal(covered * thousandths) / 1000, covered, BusySource.DEVICE, METRIC
        )


def _usual(rng: Random, fact: UsageFact, hour: int, end: int) -> int:
    """In thousandths, of a run that is as busy as most of its kind."""
    if fact.account in BUSY:
        return 0 if fact.qos == "normal" and end - hour <= HOUR // 6 else 10 * BUSY[fact.account]
    return _of_notebook(rng, hour, end) if fact.account in NOTEBOOK else 10 * BY_DAY[hour // HOUR % 24]


def _of_notebook(rng: Random, hour: int, end: int) -> int:
    """In thousandths: people think more than they compute, and the last hour stands still until it is culled."""
    if end - hour <= HOUR:
        return 0
    return rng.choice((0, 20, 60, 150, 300, 550))
