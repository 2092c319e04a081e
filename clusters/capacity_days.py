"""What nodes of all clusters had, day by day: what capacity costs depends on the day."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, date, datetime
from fractions import Fraction

from django.db import connection

from clusters import declared_nodes
from portal.sql_files import Statements

sql = Statements(__file__, "capacity_days.sql")

DAY = 86_400


def by_day(*, since: int, until: int) -> dict[tuple[str, str], dict[date, Fraction]]:
    """GPU-seconds by (cluster, model) and UTC day of [since, until), epoch seconds, idle and down included.

    As far as each cluster is read. What was declared holds before nodes were first observed. Two queries.
    """
    days: dict[tuple[str, str], dict[date, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    with connection.cursor() as cursor:
        cursor.execute(sql.OBSERVED, {"since": since, "until": until})
        observed = cursor.fetchall()
    first = {cluster: looked for cluster, looked, *_ in observed}
    for cluster, _, model, day, seconds in observed:
        if model is not None:
            days[cluster, model][_date(day)] += Fraction(seconds)
    for node in declared_nodes.everywhere():
        begin, end = max(node.since, since), min(node.until, until, node.through)
        looked = first.get(node.cluster)
        if looked is not None:
            end = min(end, looked)
        for day in range(begin // DAY * DAY, end, DAY):
            part = min(end, day + DAY) - max(begin, day)
            days[node.cluster, node.gpu_model][_date(day)] += Fraction(node.gpus * part)
    return {key: dict(value) for key, value in days.items()}


def _date(second: int) -> date:
    return datetime.fromtimestamp(second, UTC).date()
