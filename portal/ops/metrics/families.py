"""All metrics, read from the tables and the broker: a fixed number of queries, whichever process is asked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from fractions import Fraction

import structlog
from django.db import DatabaseError
from django.db.models import Min
from prometheus_client.core import Metric

from billing.models import BillingPeriod, SealedMonth
from billing.payments import gateway_access
from billing.queries import gateway_reconciliation, spending
from billing.rules.money import Money
from clusters import block_review, status
from clusters.status import ClusterHealth
from portal.core import replica
from portal.core.outbox.backlog import backlog
from portal.core.tenants.unassigned import unassigned
from portal.core.webhooks import backlog as webhook_backlog
from portal.ops import request_counts
from portal.ops.metrics import broker
from portal.ops.metrics.exposition import OTHER, Labels, counter, folded, gauge, seconds_since

log = structlog.get_logger("portal.metrics")

DOLLARS = "USD"
UNASSIGNED_DAYS = 31
KIND = ("job_name", "team", "gpu_type", "namespace")
REST: Labels = (OTHER,) * len(KIND)


def families(*, moment: datetime, most: int) -> Iterator[Metric]:
    """What the tables hold, as it is at `moment`. Of jobs, tenants and reasons the `most` largest are told apart.

    A part that cannot be told is left out, and said to be: alarms that hang on the others have to go on.
    """
    cluster_health = status.cluster_health()
    parts: dict[str, Callable[[], Iterable[Metric]]] = {
        "spend": lambda: _spend(moment, most),
        "jobs": lambda: _jobs(moment, most),
        "unpriced": lambda: [_unpriced(most)],
        "clusters": lambda: _clusters(cluster_health, moment),
        "quarantine": lambda: [_quarantine(most)],
        "unassigned": lambda: [_unassigned(cluster_health, moment)],
        "outbox": lambda: _outbox(moment),
        "webhooks": lambda: _webhooks(moment),
        "reconciliation": lambda: _books(moment),
        "closes": lambda: [_closes(moment)],
        "sealed months": lambda: [_sealed_months()],
    }
    failed: dict[Labels, int] = {}
    for name, part in parts.items():
        try:
            metrics = list(part())
        except DatabaseError:
            raise  # nothing else can be asked in its transaction
        except Exception:
            log.exception("a part of the metrics could not be told", part=name)
            metrics = []
            failed[name,] = 1
        yield from metrics
    yield gauge(
        "clustertab_metrics_part_failed",
        "1 where a part of the metrics could not be told, and is left out; the log says why.",
        ("part",),
        [((name,), failed.get((name,), 0)) for name in parts],
    )


def queues() -> Iterator[Metric]:
    """What the broker holds. It is asked over the network, so not in a transaction."""
    depths = broker.depths()
    yield gauge(
        "clustertab_broker_up", "1 where the broker answers, else 0.", (), [((), int(depths is not None))]
    )
    yield gauge(
        "clustertab_queue_messages",
        "Messages in the broker's queue that no worker has taken; none are told while the broker is down.",
        ("queue",),
        [((name,), depth) for name, depth in (depths or {}).items()],
    )


def requests() -> Iterator[Metric]:
    """What all processes have counted in Redis. It is asked over the network, so not in a transaction."""
    yield counter(
        "clustertab_requests",
        "Requests that all processes answered since Redis is up; health checks, files and this page are left out.",
        ("kind", "status"),
        request_counts.totals().items(),
    )


def replication() -> Iterator[Metric]:
    """Of the replica that pages are read from, as it answers now; nothing where none is set."""
    if not replica.is_configured():
        return
    state = replica.watch.look()
    yield gauge(
        "clustertab_replica_up",
        "1 where the replica answers and is a standby of this database, else 0.",
        (),
        [((), int(not state.trouble))],
    )
    yield gauge(
        "clustertab_replica_lag_seconds",
        "How old what the replica shows is at most; 0 where it has all, +Inf where it does not answer.",
        (),
        [((), state.lag)],
    )


def _spend(moment: datetime, most: int) -> Iterator[Metric]:
    spent: dict[str, dict[Labels, Fraction]] = defaultdict(dict)
    for row in spending.spending(moment=moment):
        spent[row.amount.currency][row.tenant, row.amount.currency] = row.amount.amount
    yield gauge(
        "clustertab_tenant_spend",
        "What the tenant's present billing period has come to so far, before tax, in units of the currency.",
        ("tenant", "currency"),
        [
            row
            for currency, rows in sorted(spent.items())
            for row in folded(rows, most, other=(OTHER, currency)).items()
        ],
    )


def _jobs(moment: datetime, most: int) -> Iterator[Metric]:
    """Dollars under the name that dashboards of training costs ask for; everything else beside it."""
    costs = spending.job_costs(moment=moment, most=most)
    dollars: dict[Labels, Fraction] = defaultdict(Fraction)
    others: dict[Labels, Fraction] = defaultdict(Fraction)

    def add(labels: Labels, amounts: Iterable[Money]) -> None:
        for money in amounts:
            if money.currency == DOLLARS:
                dollars[labels] += money.amount
            else:
                others[*labels, money.currency] += money.amount

    for kind, amounts in costs.kinds.items():
        add((kind.name, kind.tenant, kind.gpu_type, kind.account), amounts)
    add(REST, costs.rest)
    yield gauge(
        "training_job_cost_usd",
        "What jobs that run, or ended within 24 hours, have cost so far, in US dollars.",
        KIND,
        dollars.items(),
    )
    yield gauge(
        "clustertab_job_cost",
        "As training_job_cost_usd, of jobs that are charged in other currencies, in units of the currency.",
        (*KIND, "currency"),
        others.items(),
    )


def _unpriced(most: int) -> Metric:
    rows: dict[Labels, Fraction] = {(tenant,): seconds for tenant, seconds in spending.unpriced()}
    return gauge(
        "clustertab_unpriced_gpu_seconds",
        "GPU-seconds that no price covers: the tenant's next close is refused.",
        ("tenant",),
        folded(rows, most, other=(OTHER,)).items(),
    )


def _clusters(cluster_health: list[ClusterHealth], moment: datetime) -> Iterator[Metric]:
    def since(then: datetime | None) -> int | None:
        return None if then is None else int((moment - then).total_seconds())

    pulled = [vital for vital in cluster_health if vital.failures is not None]
    yield seconds_since(
        "clustertab_cluster_watermark_lag_seconds",
        "Seconds from the moment up to which all usage of the cluster has been read; +Inf where none was.",
        "cluster",
        [(vital.cluster, since(vital.complete_through)) for vital in cluster_health],
    )
    yield seconds_since(
        "clustertab_cluster_last_success_seconds",
        "Seconds since a sync of the cluster last ended well; +Inf where none has.",
        "cluster",
        [(vital.cluster, since(vital.last_success_at)) for vital in pulled],
    )
    yield gauge(
        "clustertab_cluster_failed_passes",
        "Passes over the cluster that failed in a row.",
        ("cluster",),
        [((vital.cluster,), vital.failures or 0) for vital in pulled],
    )
    changed = block_review.count_changed()
    yield gauge(
        "clustertab_changed_blocks",
        "Blocked accounts of the cluster whose limits somebody has changed in the scheduler since.",
        ("cluster",),
        [((vital.cluster,), changed.get(vital.cluster, 0)) for vital in cluster_health],
    )


def _quarantine(most: int) -> Metric:
    reasons = status.reasons(resolved=False)
    rows: dict[Labels, Fraction] = {(r.cluster, r.code): Fraction(r.rows) for r in reasons}
    return gauge(
        "clustertab_quarantined_rows",
        "Rows of the cluster that were set aside and that nobody has settled.",
        ("cluster", "code"),
        folded(rows, most, other=(OTHER, OTHER)).items(),
    )


def _unassigned(cluster_health: list[ClusterHealth], moment: datetime) -> Metric:
    seconds: dict[Labels, Fraction] = {(vital.cluster,): Fraction(0) for vital in cluster_health}
    for row in unassigned(begun=moment - timedelta(days=UNASSIGNED_DAYS)):
        seconds[(row.use.cluster,)] += row.use.gpu_seconds
    return gauge(
        "clustertab_unassigned_gpu_seconds",
        f"GPU-seconds of jobs begun within {UNASSIGNED_DAYS} days that no tenant owned.",
        ("cluster",),
        seconds.items(),
    )


def _books(moment: datetime) -> Iterator[Metric]:
    """Told where books were ever compared, or should have been."""
    last = gateway_reconciliation.last_good()
    if last is None and not gateway_access.is_configured():
        return
    yield gauge(
        "clustertab_reconciliation_differences",
        "Differences between the payment service's books and ours that are open.",
        ("kind",),
        [((kind,), count) for kind, count in sorted(gateway_reconciliation.open_by_kind().items())],
    )
    passed = None if last is None else int((moment - last.began_at).total_seconds())
    yield seconds_since(
        "clustertab_reconciliation_age_seconds",
        "Seconds since the payment service's books were last compared with ours; +Inf where they never were.",
        "service",
        [("stripe", passed)],
    )


def _sealed_months() -> Metric:
    """The files were looked at by a worker, at night: a web server need not see their directory."""
    damaged = SealedMonth.objects.exclude(damages=[]).order_by("month")
    return gauge(
        "clustertab_sealed_files_damaged",
        "Files of the sealed month that are missing or changed, up to ten.",
        ("month",),
        [((str(row),), len(row.damages)) for row in damaged],
    )


def _outbox(moment: datetime) -> Iterator[Metric]:
    rows = backlog()
    yield gauge(
        "clustertab_outbox_waiting",
        "Effects of committed changes that have not happened yet, failed ones included.",
        ("task",),
        [((row.task,), row.waiting) for row in rows],
    )
    yield gauge(
        "clustertab_outbox_failed",
        "Effects that were tried, failed, and are tried again.",
        ("task",),
        [((row.task,), row.failed) for row in rows],
    )
    yield gauge(
        "clustertab_outbox_oldest_seconds",
        "Age of the oldest effect that has not happened yet.",
        ("task",),
        [((row.task,), int((moment - row.oldest).total_seconds())) for row in rows],
    )


def _webhooks(moment: datetime) -> Iterator[Metric]:
    row = webhook_backlog.backlog(moment=moment)
    lag = 0 if row.oldest_due is None else int((moment - row.oldest_due).total_seconds())
    yield gauge(
        "clustertab_webhooks_waiting",
        "Deliveries to webhooks that wait, such as are tried again included.",
        (),
        [((), row.waiting)],
    )
    yield gauge(
        "clustertab_webhooks_lag_seconds",
        "Seconds since the oldest delivery was due, of webhooks that do not fail; 0 where none is due.",
        (),
        [((), lag)],
    )
    yield gauge(
        "clustertab_webhooks_failing",
        "Webhooks that are active and whose last attempt failed.",
        (),
        [((), row.failing)],
    )
    yield gauge(
        "clustertab_webhooks_given_up",
        "Webhooks that were turned off because their endpoints failed.",
        (),
        [((), row.given_up)],
    )


def _closes(moment: datetime) -> Metric:
    ended = BillingPeriod.objects.filter(end__lte=moment, closed_at=None).aggregate(end=Min("end"))["end"]
    return gauge(
        "clustertab_unclosed_period_seconds",
        "Seconds since the end of the oldest billing period that is not closed; 0 where none waits.",
        (),
        [((), int((moment - ended).total_seconds()) if ended else 0)],
    )
