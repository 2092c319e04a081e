"""The reports' door: what runs held and how busy they were in a span, as SQL that a statement above joins to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from django.db import connection
from django.db.models import F, Min, Q, Sum
from django.db.models.functions import Coalesce, Greatest, Least

from clusters.models import CapacityInterval, CapacityState, Cluster
from clusters.usage import active

RUNS = """(
    SELECT u.id AS record_id, u.cluster_id, c.name AS cluster, u.account_id, a.name AS account, u."user", u.job_id,
           u.name, u.gpu_model, u.gpus, u.share_num, u.share_den, u.started,
           coalesce(u.ended, u.seen_until) AS finish, u.suspended
    FROM clusters_usagerecord u JOIN clusters_account a ON a.id = u.account_id
    JOIN clusters_cluster c ON c.id = u.cluster_id
)"""
"""Every run with its names; [started, finish) is what it held so far, as epoch seconds."""

HOURS = "(SELECT record_id, hour, busy, covered, source, metric FROM clusters_utilisationhour)"
"""`UtilisationHour`: device-seconds of one run in one hour of UTC."""


def busy_in(spans: str, *, keep: Sequence[str], hours: str = HOURS) -> str:
    """SQL for (keep …, busy, covered, source, metric): device-seconds of the spans, summed over what is not kept.

    `spans` is a relation with record_id, since, until and the columns of `RUNS` that say what the run held. An hour
    that a span cuts gives by its part of the seconds that the run held in it, as differences of one running total:
    the parts of any cuts add up to the hour. What was busy goes with the seconds that were covered, so that no part was
    busier than it was covered. A run that held less in an hour than telemetry covered counts with what
    it held, `busy` less in proportion.
    """
    kept = ", ".join(keep)
    whole, before, upto = (
        f"s.gpus::bigint * {active('h.hour', end, 's')}"
        for end in ("h.hour + 3600", "greatest(s.since, h.hour)", "least(s.until, h.hour + 3600)")
    )
    return f"""
    SELECT {kept},
           sum(CASE WHEN begins = 0 AND ends = covered THEN busy
                    ELSE trunc(busy * ends / covered, 9) - trunc(busy * begins / covered, 9) END) AS busy,
           sum(ends - begins) AS covered,
           source, metric
    FROM (
        SELECT {", ".join(f"s.{column}" for column in keep)}, h.busy, h.covered, h.source, h.metric, a.*,
               least(h.covered, a.whole) AS reached
        FROM {spans} s JOIN {hours} h
          ON h.record_id = s.record_id AND h.hour < s.until AND h.hour > s.since - 3600 AND h.covered > 0
        CROSS JOIN LATERAL (SELECT {whole} AS whole, {before} AS before, {upto} AS upto) a
    ) part
    CROSS JOIN LATERAL (
        SELECT CASE WHEN upto = whole THEN reached ELSE div(reached::numeric * upto, whole)::bigint END AS ends,
               CASE WHEN before = 0 THEN 0 ELSE div(reached::numeric * before, whole)::bigint END AS begins
    ) b
    WHERE whole > 0 AND upto > before
    GROUP BY {kept}, source, metric"""  # noqa: S608 - built from constants


BUSY = f"""
SELECT coalesce(sum(div(h.busy * ends, h.covered) - div(h.busy * begins, h.covered)), 0)::bigint AS busy,
       coalesce(sum(ends - begins), 0)::bigint AS covered
FROM (
    SELECT * FROM {HOURS} k WHERE k.record_id = u.record_id AND k.covered > 0
      AND k.hour < {{until}} AND k.hour > {{since}} - 3600 OFFSET 0
) h CROSS JOIN LATERAL (
    SELECT u.gpus::bigint * {active("h.hour", "h.hour + 3600", "u")} AS whole,
           u.gpus::bigint * {active("h.hour", "greatest({since}, h.hour)", "u")} AS before,
           u.gpus::bigint * {active("h.hour", "least({until}, h.hour + 3600)", "u")} AS upto
) a CROSS JOIN LATERAL (
    SELECT div(least(h.covered, whole)::numeric * upto, whole)::bigint AS ends,
           div(least(h.covered, whole)::numeric * before, whole)::bigint AS begins WHERE whole > 0
) b"""  # noqa: S608 - built from constants
"""SQL for (busy, covered) of [since, until): whole device-seconds of the run `u`, with the columns of `RUNS`.

As `busy_in`, but that each hour's running total of what was busy is rounded down to whole seconds: any cuts of the
run add up to the same seconds.
"""


def allocated(cluster: Cluster, *, since: int, until: int) -> dict[str, Fraction]:
    """GPU-seconds by model that the ledger holds of [since, until), epoch seconds. One query."""
    found: dict[str, Fraction] = {}
    with connection.cursor() as cursor:
        cursor.execute(_ALLOCATED, {"cluster": cluster.pk, "since": since, "until": until})
        for model, den, units in cursor.fetchall():
            found[model] = found.get(model, Fraction(0)) + Fraction(int(units), den)
    return found


_ALLOCATED = f"""
SELECT u.gpu_model, u.share_den, sum(u.gpus::numeric * u.share_num * {
    active("%(since)s::bigint", "%(until)s::bigint", "u")
})
FROM {RUNS} u
WHERE u.cluster_id = %(cluster)s AND u.started < %(until)s AND u.finish > %(since)s AND u.gpus > 0
GROUP BY u.gpu_model, u.share_den
"""  # noqa: S608 - built from constants


@dataclass(frozen=True, slots=True)
class Had:
    """GPU-seconds that nodes had in [since, until), by model and state: the part of a period that was looked at."""

    since: int
    until: int
    seconds: Mapping[tuple[str, CapacityState], int]


def had(cluster: Cluster, *, since: int, until: int) -> Had | None:
    """Of what nodes had in [since, until), epoch seconds, what is known; None where nothing is. Two queries.

    Known from the first look at the nodes to the watermark: what lasts still is taken to last until there.
    """
    intervals = CapacityInterval.objects.filter(cluster=cluster)
    first = intervals.aggregate(first=Min("since"))["first"]
    through = cluster.complete_through
    if first is None or through is None:
        return None
    known = max(first, since), min(int(through.timestamp()), until)
    if known[0] >= known[1]:
        return None
    within = Least(Coalesce("until", known[1]), known[1]) - Greatest("since", known[0])
    rows = (
        intervals.filter(Q(until__isnull=True) | Q(until__gt=known[0]), since__lt=known[1])
        .values_list("gpu_model", "state")
        .annotate(seconds=Sum(F("gpus") * within))
    )
    return Had(*known, {(model, CapacityState(state)): int(seconds) for model, state, seconds in rows})
