"""The reports' door: what runs held and how busy they were in a span, as SQL that a statement above joins to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from django.db import connection
from django.db.models import Min, Q
from django.db.models.functions import Coalesce

from clusters import declared
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
class Span:
    """GPUs of one model that a node had in one state in [since, until), epoch seconds."""

    gpu_model: str
    gpus: int
    state: CapacityState
    since: int
    until: int


@dataclass(frozen=True, slots=True)
class Had:
    """What nodes had in [since, until): the part of a period that was looked at, or declared."""

    since: int
    until: int
    spans: Sequence[Span]

    @property
    def seconds(self) -> Mapping[tuple[str, CapacityState], int]:
        """GPU-seconds by model and state."""
        found: dict[tuple[str, CapacityState], int] = {}
        for span in self.spans:
            key = span.gpu_model, span.state
            found[key] = found.get(key, 0) + span.gpus * (span.until - span.since)
        return found


def had(cluster: Cluster, *, since: int, until: int) -> Had | None:
    """Of what nodes had in [since, until), epoch seconds, what is known; None where nothing is. Three queries.

    Known from the first look at the nodes to the watermark: what lasts still is taken to last until there. Before the
    first look it is what the operator declared.
    """
    intervals = CapacityInterval.objects.filter(cluster=cluster)
    first = intervals.aggregate(first=Min("since"))["first"]
    through = cluster.complete_through
    looked = declared.END if first is None else first
    spoken = [row for row in declared.intervals(cluster) if row[3] < looked]
    begins = [row[3] for row in spoken] + ([first] if first is not None else [])
    if not begins or through is None:
        return None
    known = max(min(begins), since), min(int(through.timestamp()), until)
    if known[0] >= known[1]:
        return None
    rows = intervals.filter(Q(until__isnull=True) | Q(until__gt=known[0]), since__lt=known[1]).values_list(
        "gpu_model", "gpus", "state", "since", Coalesce("until", known[1])
    )
    spans = [
        Span(model, gpus, CapacityState(state), max(begin, known[0]), min(end, known[1]))
        for model, gpus, state, begin, end in (*rows, *((*row[:4], min(row[4], looked)) for row in spoken))
        if begin < known[1] and end > known[0]
    ]
    return Had(*known, spans)


def idle_while_waiting(cluster: Cluster, had: Had) -> dict[str, Fraction]:
    """GPU-seconds by model in which GPUs that were up stood idle while a job waited for that model. Two queries.

    A job waits from when it could have begun, or was submitted, until it begins; one that never did, until it was
    withdrawn. One whose model is not known waits for any. What was suspended counts as held here.
    """
    up = [span for span in had.spans if span.state is CapacityState.UP]
    values = {"cluster": cluster.pk, "since": had.since, "until": had.until}
    with connection.cursor() as cursor:
        cursor.execute(_SHARES, values)
        parts = lcm(*(int(den) for (den,) in cursor.fetchall()))
        cursor.execute(
            _IDLE_WHILE_WAITING,
            {
                **values,
                "parts": parts,
                "models": [span.gpu_model for span in up],
                "gpus": [span.gpus for span in up],
                "begins": [span.since for span in up],
                "ends": [span.until for span in up],
            },
        )
        return {model: Fraction(int(units), parts) for model, units in cursor.fetchall()}


_SHARES = f"""
SELECT DISTINCT u.share_den FROM {RUNS} u
WHERE u.cluster_id = %(cluster)s AND u.started < %(until)s AND u.finish > %(since)s AND u.gpus > 0
"""  # noqa: S608 - built from constants

# In parts of a GPU, of which each share is a whole number: at each moment what is up and not held, while a job waits.
_IDLE_WHILE_WAITING = f"""
WITH node AS (
    SELECT * FROM unnest(%(models)s::text[], %(gpus)s::bigint[], %(begins)s::bigint[], %(ends)s::bigint[])
        AS n (gpu_model, gpus, since, until)
), run AS (
    SELECT u.gpu_model, u.gpus::bigint * u.share_num * (%(parts)s::bigint / u.share_den) AS held,
           greatest(u.started, %(since)s) AS since, least(u.finish, %(until)s) AS until
    FROM {RUNS} u
    WHERE u.cluster_id = %(cluster)s AND u.started < %(until)s AND u.finish > %(since)s AND u.gpus > 0
), queue AS (
    SELECT gpu_model, greatest(coalesce(eligible, submitted), %(since)s) AS since,
           least(coalesce(started, ended, %(until)s), %(until)s) AS until
    FROM clusters_usagerecord
    WHERE cluster_id = %(cluster)s AND gpus > 0 AND coalesce(eligible, submitted) < %(until)s
      AND coalesce(started, ended, %(until)s) > greatest(coalesce(eligible, submitted), %(since)s)
), change AS (
    SELECT gpu_model, since AS at, gpus * %(parts)s AS free, 0 AS waits FROM node
    UNION ALL SELECT gpu_model, until, -gpus * %(parts)s, 0 FROM node
    UNION ALL SELECT gpu_model, since, -held, 0 FROM run WHERE since < until
    UNION ALL SELECT gpu_model, until, held, 0 FROM run WHERE since < until
    UNION ALL SELECT m.gpu_model, e.at, 0, e.waits
    FROM queue q CROSS JOIN LATERAL (VALUES (q.since, 1), (q.until, -1)) e (at, waits)
    JOIN (SELECT DISTINCT gpu_model FROM node) m ON m.gpu_model = q.gpu_model OR q.gpu_model = ''
), moment AS (
    SELECT gpu_model, at, sum(free) AS free, sum(waits) AS waits FROM change GROUP BY gpu_model, at
), stretch AS (
    SELECT gpu_model, lead(at) OVER since - at AS seconds, sum(free) OVER since AS free, sum(waits) OVER since AS waits
    FROM moment WINDOW since AS (PARTITION BY gpu_model ORDER BY at)
)
SELECT gpu_model, sum(seconds * free) FROM stretch WHERE waits > 0 AND free > 0 AND seconds > 0 GROUP BY gpu_model
"""  # noqa: S608 - built from constants
