"""How far the jobs of standing reservations have come: what is left of each, in seconds of its tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from typing import Any

from billing.models import Reservation, ReservedAmount
from clusters.models import Cluster
from portal.prepared import instances, prepared_cursor
from portal.sql_files import Statements

sql = Statements(__file__, "progress.sql")


@dataclass(frozen=True, slots=True)
class Progress:
    """Of one reservation. `rated` and `counted_on`: seconds that count already of each run that goes on."""

    row: Reservation
    ended: int
    rated: Sequence[int]
    counted_on: Sequence[int]
    amounts: list[ReservedAmount] = field(default_factory=list)  # what it holds
    names: list[str] = field(
        default_factory=list
    )  # of the quotas, and of who owns the wallets, in the same order

    def left(self, *, within: int | None = None, rated_only: bool = False) -> int:
        """Seconds that its tasks may still use, none of which counts as used; of each at most `within`.

        `rated_only`: as of what is rated, without what figures count on since.
        """
        row = self.row
        slots = max(0, min(row.at_once, row.tasks - self.ended))
        used = [
            rated + (0 if rated_only else more)
            for rated, more in zip(self.rated, self.counted_on, strict=True)
        ]
        rests = [max(0, row.seconds - seconds) for seconds in used[:slots]]
        rests += [row.seconds] * (slots - len(rests))
        return sum(rest if within is None else min(rest, within) for rest in rests)


def load_progress(
    tenants: Iterable[int],
    *,
    moment: datetime,
    unseen: int,
    besides: int = 0,
    lapsed_since: datetime | None = None,
) -> dict[int, Progress]:
    """By standing reservation of the tenants, without that one; and those that lapsed since a moment. One query.

    `unseen`: seconds behind its cluster from which a run is not counted on, as in figures.
    """
    values: dict[str, Any] = {
        "tenants": sorted({*tenants}),
        "second": int(moment.timestamp()),
        "unseen": unseen,
        "besides": besides,
        "lapsed_since": lapsed_since,
    }
    with prepared_cursor() as cursor:
        cursor.execute(sql.PROGRESS, values)
        progress: dict[int, Progress] = {}
        for amount, row, row.cluster, *columns, name in instances(
            cursor, ReservedAmount, Reservation, Cluster
        ):
            one = progress.setdefault(row.pk, Progress(row, *columns))
            if amount.pk is not None:
                one.amounts.append(amount)
                one.names.append(name)
        return progress


def left_of(
    row: ReservedAmount, progress: Progress, *, within: int | None, rated_only: bool = False
) -> Fraction:
    """What is left of the amount: in proportion to the seconds that are, never more than its cap."""
    reservation = progress.row.at_once * row.seconds
    seconds = progress.left(within=within, rated_only=rated_only)
    left = Fraction(row.amount) * seconds / reservation
    return left if row.most is None else min(left, Fraction(row.most))


def is_standing(row: Reservation, moment: datetime) -> bool:
    """Whether it holds anything at the moment."""
    return row.released_at is None and (row.expires_at is None or row.expires_at > moment)
