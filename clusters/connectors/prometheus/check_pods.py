"""Test connection: for how many pods with devices this source has what names their jobs, and how they ended."""

from __future__ import annotations

from clusters.connectors.prometheus import queries as metrics
from clusters.connectors.prometheus.check_metrics import CHECK_WINDOW, CheckSession
from clusters.connectors.prometheus.facts import count_of
from clusters.connectors.prometheus.hami import MEMORY, NODE_GPUS, NODE_MEMORY, OF_VGPUS
from clusters.connectors.prometheus.options import Claims, Hami
from clusters.connectors.prometheus.pod_jobs import NOBODY


def attributes(session: CheckSession, subject: str) -> bool:
    """Bills need none of it, so nothing of it fails; without owners each pod is its own job."""
    queries, options = session.queries, session.queries.options
    initial = queries.requesting(metrics.INIT_REQUESTS)
    pods = _pods(session, queries.requests, initial)
    if not pods:
        session.ok(subject, "No pod had devices in the last hour.")
        return True
    owners = _pods(session, queries.pod(metrics.POD_OWNER, f'owner_kind!~"{"|".join(sorted(NOBODY))}"'))
    classed = queries.pod(metrics.POD_INFO, 'priority_class!=""')
    counts = [
        f"{_pods(session, initial):,} request them by init containers",
        f"{owners:,} tell their owner",
        f"{_pods(session, queries.pod(metrics.CREATED)):,} their creation",
        f"{_pods(session, classed):,} a priority class",
        f"{_labelled(session, options.queue_labels):,} a queue",
    ]
    if options.job_labels:
        counts.append(f"{_labelled(session, options.job_labels):,} a job by label")
    if options.user_label:
        counts.append(f"{_labelled(session, (options.user_label,)):,} a user")
    sentence = f"Of {count_of(pods, 'pod')} with devices in the last hour, {', '.join(counts)}."
    if owners or _pods(session, queries.pod(metrics.POD_OWNER)):
        session.ok(subject, sentence)
    else:
        session.warn(
            subject,
            f"{sentence} Each is listed as a job of its own.",
            f"Let Prometheus keep {metrics.POD_OWNER}.",
        )
    return True


def outcomes(session: CheckSession, subject: str) -> bool:
    """How pods ended, beyond their phases. Only prices by state need it, so nothing of it fails."""
    queries = session.queries
    counts = {
        metric: _pods(session, queries.pod(metric))
        for metric in (metrics.STATUS_REASON, metrics.TERMINATED_REASON, metrics.LAST_TERMINATED_REASON)
    }
    counts[metrics.WORKLOAD_CONDITION] = session.count(queries.selector(metrics.WORKLOAD_CONDITION))
    listed = ", ".join(f"{metric} {count:,}" for metric, count in counts.items())
    sentence = f"Of pods with devices in the last hour, and of conditions of Kueue, there were: {listed}."
    if not counts[metrics.STATUS_REASON]:
        sentence += (
            f" Without {metrics.STATUS_REASON}, evicted pods and those of lost nodes are Failed or Unknown."
        )
    session.ok(subject, sentence)
    return True


def cpu_memory(session: CheckSession, subject: str) -> bool:
    """Only prices of CPU and memory need it, so nothing of it fails."""
    queries = session.queries
    cpu, memory = (
        _pods(session, queries.pod(metrics.REQUESTS, f'resource="{name}"')) for name in metrics.CPU_MEMORY
    )
    initial = _pods(session, queries.pod(metrics.INIT_REQUESTS, 'resource=~"cpu|memory"'))
    sidecars = _pods(session, queries.pod(metrics.INIT_INFO, 'restart_policy="Always"'))
    session.ok(
        subject,
        f"Of pods that are read in the last hour, {cpu:,} request CPU, {memory:,} memory, and {initial:,} for init "
        f"containers; {sidecars:,} have sidecars that start as such.",
    )
    return True


def hami(session: CheckSession, subject: str) -> bool:
    """What is requested of each vGPU, and whether nodes tell what that is a part of."""
    queries, by = session.queries, session.queries.options.hami
    counts = {
        name: _pods(
            session,
            *(
                queries.pod(metric, f'resource="{resource}"')
                for metric in (metrics.REQUESTS, metrics.INIT_REQUESTS)
            ),
        )
        for resource, name in OF_VGPUS.items()
    }
    listed = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    sentence = f"Of pods with devices in the last hour, there request: {listed}."
    labels = (NODE_GPUS,) if by is Hami.CORES and not counts[OF_VGPUS[MEMORY]] else (NODE_GPUS, NODE_MEMORY)
    if by is Hami.OFF:
        if any(counts.values()):
            session.warn(
                subject,
                f"{sentence} Each vGPU is billed as a whole GPU.",
                "Set the option hami to cores, memory or larger.",
            )
        return True
    missing = [
        label for label in labels if not session.count(queries.selector(metrics.NODE_LABELS, f'{label}!=""'))
    ]
    if missing:
        session.warn(
            subject,
            f"{sentence} No node has {' or '.join(missing)}: without the first its GPUs are not counted, without the "
            "memory of a GPU nvidia.com/gpumem cannot be read.",
            "Run NVIDIA's GPU feature discovery, and kube-state-metrics with "
            "--metric-labels-allowlist=nodes=[nvidia.com/*].",
        )
    else:
        session.ok(subject, sentence)
    return True


def claims(session: CheckSession, subject: str) -> bool:
    """Pods that may hold devices which nothing tells of."""
    selector = session.queries.pod(metrics.CLAIM_INFO)
    series = session.client.instant(
        f"count(count by (uid) (count_over_time({selector}[{metrics.span(CHECK_WINDOW)}])))", session.now
    )
    pods = int(series[0].value[1]) if series and series[0].value else 0
    quarantined = session.queries.options.claims is Claims.QUARANTINE
    if pods and not quarantined:
        session.warn(
            subject,
            f"{count_of(pods, 'pod')} had resource claims in the last hour: GPUs that these hold are not billed.",
            "If they hold GPUs, set the option claims to quarantine, or let pods request the extended resource of "
            "their device class.",
        )
    elif pods:
        session.ok(
            subject, f"{count_of(pods, 'pod')} had resource claims in the last hour, which are quarantined."
        )
    return True


def _labelled(session: CheckSession, labels: tuple[str, ...]) -> int:
    selectors = (session.queries.pod(metrics.POD_LABELS, f'{label}!=""') for label in labels)
    return _pods(session, *selectors)


def _pods(session: CheckSession, *selectors: str) -> int:
    """Pods with devices that one of the selectors has a series of."""
    span = metrics.span(CHECK_WINDOW)

    def any_of(*some: str) -> str:
        return " or ".join(f"count by (uid) (count_over_time({one}[{span}]))" for one in some)

    holders = any_of(session.queries.requests, session.queries.requesting(metrics.INIT_REQUESTS))
    series = session.client.instant(f"count(({any_of(*selectors)}) and on (uid) ({holders}))", session.now)
    return int(series[0].value[1]) if series and series[0].value else 0
