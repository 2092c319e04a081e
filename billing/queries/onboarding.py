"""How far a new installation is set up: what there is decides, so it goes on wherever it was left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from django.db import connection
from django.db.models import Min, QuerySet

from billing.models import DailyUsage, Resource, UsageSeries
from billing.rules.period import shifted
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from portal.sql_files import Statements

sql = Statements(__file__, "onboarding.sql")

TENANTS = 20  # with a draft that the last step names


@dataclass(frozen=True, slots=True)
class Progress:
    """What there is of each step."""

    seller: bool
    cluster: bool
    usage: bool
    owned: bool  # some account has a tenant
    priced: bool  # some tenant has a plan
    drafted: bool  # a month was previewed, or closed

    @property
    def steps(self) -> tuple[bool, ...]:
        return (self.seller, self.cluster, self.usage, self.owned, self.priced, self.drafted)

    @property
    def is_complete(self) -> bool:
        return all(self.steps)

    @property
    def current(self) -> int:
        """The place of the first step that is open, from 0; that after the last one where none is."""
        return next((place for place, done in enumerate(self.steps) if not done), len(self.steps))


def progress() -> Progress:
    """One query."""
    with connection.cursor() as cursor:
        cursor.execute(sql.PROGRESS)
        return Progress(*cursor.fetchone())


def gpu_models() -> list[str]:
    """Models that tenants used GPUs of, by name. One query."""
    rows = UsageSeries.objects.filter(resource=Resource.GPU).order_by("gpu_model")
    return list(rows.values_list("gpu_model", flat=True).distinct())


def first_day() -> date | None:
    """The first day on which a tenant used anything. One query."""
    return DailyUsage.objects.order_by("day").values_list("day", flat=True).first()


def drafts() -> tuple[date | None, Sequence[Tenant]]:
    """The month to look at, by its first day, and tenants that used something in it. Four queries.

    The last one that is read to its end, else the last one with usage.
    """
    last = DailyUsage.objects.order_by("-day").values_list("day", flat=True).first()
    if last is None:
        return None, []
    through = Cluster.objects.aggregate(through=Min("complete_through"))["through"]
    month = last.replace(day=1)
    if through is not None:
        read = _shifted(through.date().replace(day=1), -1)
        if read < month and _used_in(read).exists():
            month = read
    tenants = Tenant.objects.filter(pk__in=_used_in(month).values("tenant"))
    return month, list(tenants.order_by("name")[:TENANTS])


def _used_in(month: date) -> QuerySet[DailyUsage]:
    return DailyUsage.objects.filter(day__gte=month, day__lt=_shifted(month, 1))


def _shifted(month: date, by: int) -> date:
    return date(*shifted((month.year, month.month), by), 1)
