"""Test connection, for what pods use: of how many of those that are read cAdvisor tells, and whether meters take it."""

from __future__ import annotations

from clusters.connectors.prometheus.check_metrics import CHECK_WINDOW, CheckSession
from clusters.connectors.prometheus.check_volumes import meter
from clusters.connectors.prometheus.coverage import MINUTE
from clusters.connectors.prometheus.facts import count_of
from clusters.connectors.prometheus.options import LabelNames
from clusters.connectors.prometheus.pod_use import CPU, LABELS, MEMORY, PodUse, pod_name
from clusters.connectors.prometheus.queries import span

FEWEST = CHECK_WINDOW // MINUTE * 9 // 10  # samples in the time that is looked at
MEND = "Let Prometheus scrape /metrics/cadvisor of each kubelet, and name that job with use.matcher."


def use(session: CheckSession, subject: str) -> bool:
    """Each of the two, then its meter. Bills of requests need none of it, so only a missing meter fails."""
    options = session.queries.options.use
    if options is None:
        return True
    reader = PodUse(session.client, session.queries, options, session.meters)
    pods = _names(session, session.queries.requests, session.queries.options.labels)
    for what, metric, name in (("CPU", CPU, options.cpu), ("memory", MEMORY, options.memory)):
        if not name:
            continue
        selector = reader.selector(metric)
        measured = len(pods & _names(session, selector, LABELS))
        read = count_of(len(pods), "pod")
        sentence = f"Of {read} that are read in the last hour, {measured:,} tell the {what} that they use."
        if pods and not measured:
            session.warn(subject, sentence, MEND)
        elif measured and (samples := _samples(session, selector)) < FEWEST:
            session.warn(
                subject,
                f"{sentence} Containers have {samples} samples an hour: minutes without one count as no use.",
                "Scrape cAdvisor once a minute, or more often.",
            )
        else:
            session.ok(subject, sentence)
        meter(session, subject, name, what=f"the use of {what}", option=f"use.{what.lower()}")
    return True


def _names(session: CheckSession, selector: str, labels: LabelNames) -> set[str]:
    by = labels.listed("namespace", "pod")
    query = f"count by ({by}) (count_over_time({selector}[{span(CHECK_WINDOW)}]))"
    return {pod_name(one, labels) for one in session.client.instant(query, session.now)}


def _samples(session: CheckSession, selector: str) -> int:
    """Of the container that has most."""
    series = session.client.instant(f"max(count_over_time({selector}[{span(CHECK_WINDOW)}]))", session.now)
    return int(series[0].value[1]) if series and series[0].value else 0
