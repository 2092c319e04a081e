"""Test connection: does this Prometheus know what is needed to bill a cluster? In sentences, with what mends each."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from clusters.connectors.base import ConnectorError
from clusters.connectors.clocks import MEND, Clocks
from clusters.connectors.findings import Finding
from clusters.connectors.mig import UnknownShareError
from clusters.connectors.prometheus import (
    check_metrics,
    check_pods,
    check_tokens,
    check_use,
    check_volumes,
    nodes,
)
from clusters.connectors.prometheus import queries as metrics
from clusters.connectors.prometheus.allocations import spelled
from clusters.connectors.prometheus.check_metrics import CHECK_WINDOW, CheckSession, telemetry
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.coverage import watch
from clusters.connectors.prometheus.nodes import PRODUCT, shape
from clusters.connectors.prometheus.options import AccountFrom, PrometheusOptions
from clusters.connectors.prometheus.queries import Queries, most
from clusters.connectors.sums import MeterUnits
from portal.excerpt import excerpt

SPARSE = 60  # seconds between two scrapes beyond which ends are known less closely
NODE_FLAG = "--metric-labels-allowlist=nodes=[nvidia.com/*]"


def examine(
    client: PrometheusClient,
    options: PrometheusOptions,
    *,
    now: int,
    meters: MeterUnits = MappingProxyType({}),
) -> list[Finding]:
    """All checks, in the order in which one mends. `now` is our clock in epoch seconds. `meters` are those declared.

    Never raises a ConnectorError: what cannot be checked is a finding too.
    """
    session = CheckSession(client, Queries(options), now, meters)
    for subject, check in _checks(options):
        try:
            go_on = check(session, subject)
        except ConnectorError as error:
            session.fail(subject, str(error))
            go_on = subject not in _NEEDED
        if not go_on and subject in _NEEDED:
            session.warn(
                "Everything else", f"Not checked, since {_NEEDED[subject]} did not answer as it should."
            )
            break
    return session.findings


def _reach(session: CheckSession, subject: str) -> bool:
    session.now = session.client.now()
    clocks = Clocks(session.ours, session.now)
    if not clocks.agree:
        session.fail(
            subject,
            f"{session.client.http.address} answers, and nothing is read from it: {clocks.sentence('Prometheus')}",
            MEND,
        )
    else:
        session.ok(subject, f"{session.client.http.address} answers, and takes our login.")
    return True


def _exporter(session: CheckSession, subject: str) -> bool:
    pods = session.count(session.queries.selector(metrics.POD_INFO))
    if not pods:
        session.fail(
            subject,
            "There was no kube_pod_info in the last hour.",
            "Let Prometheus scrape kube-state-metrics, and see whether the connection's matcher fits its series.",
        )
        return False
    coverage = watch(session.client, session.queries, since=session.now - CHECK_WINDOW, until=session.now)
    gaps = coverage.gaps(session.now - CHECK_WINDOW, session.now)
    every = coverage.interval // 1000
    if gaps:
        unseen = sum(end - begin for begin, end in gaps)
        session.warn(
            subject,
            f"kube-state-metrics was not seen for {unseen} s of the last hour: such hours are kept as incomplete.",
        )
    elif every > SPARSE:
        session.warn(
            subject,
            f"kube-state-metrics is read every {every} s: deleted pods are billed up to that much too little.",
            "Set scrape_interval to 30s for it.",
        )
    else:
        session.ok(subject, f"It tells of {pods:,} pods in the last hour, every {every} s.")
    return True


def _lifecycle(session: CheckSession, subject: str) -> bool:
    needed = {
        metrics.SCHEDULED: "pods are billed from their first sample on",
        metrics.NODE_ALLOCATABLE: "GPUs up, drained and down are not known",
    }
    phase = session.count(session.queries.selector(metrics.PHASE))
    if not phase:
        session.fail(
            subject,
            f"There is no {metrics.PHASE}, by which pods that have ended are told from running ones: no pass succeeds.",
            f"Let kube-state-metrics export {metrics.PHASE}, and Prometheus keep it.",
        )
    missing = {name: why for name, why in needed.items() if not session.count(session.queries.selector(name))}
    for name, why in missing.items():
        session.warn(subject, f"There is no {name}: {why}.", f"Let kube-state-metrics export {name}.")
    if phase and not missing:
        session.ok(subject, "Begin, phase and nodes are told.")
    return True


def _devices(session: CheckSession, subject: str) -> bool:
    """Every kind of device on every kind of node, and what it is of a whole GPU."""
    options = session.queries.options
    labels = nodes.labels_in(session.client, session.queries, session.window)
    selector = session.queries.selector(metrics.NODE_ALLOCATABLE, f'resource=~"{options.resources}"')
    query = f"{most('resource,' + session.queries.spellings('node'), selector, CHECK_WINDOW)} > 0"
    devices: set[str] = set()
    bare: set[str] = set()
    for one in session.client.instant(query, session.now):
        node = spelled(one, "node", options.labels)
        at = labels.at(node, session.now)
        if PRODUCT not in at:
            bare.add(node)
        try:
            of = shape(one.metric.get("resource", ""), at, options)
        except UnknownShareError as error:
            session.fail(subject, f"{excerpt(node)}: {error}")
            continue
        part = "" if of.share == (1, 1) else f" ({of.share[0]}/{of.share[1]} of a GPU)"
        devices.add(f"{excerpt(of.resource)} of {excerpt(of.model) or 'a model that is not told'}{part}")
    if devices:
        session.ok(subject, f"{', '.join(sorted(devices))}.")
    else:
        session.fail(
            subject,
            f"No node offers a device whose name fits {options.resources}.",
            "Install NVIDIA's device plugin, or set the option resources.",
        )
    if bare:
        session.warn(
            "Node labels",
            f"{len(bare)} nodes with GPUs have no {PRODUCT}: their model is not known, and MIG slices of the single "
            "strategy cannot be told from whole GPUs.",
            NODE_FLAG,
        )
    elif devices:
        session.ok("Node labels", "Each node with GPUs tells its model.")
    return True


def _account(session: CheckSession, subject: str) -> bool:
    account = session.queries.options.account
    if account.source is AccountFrom.NAMESPACE:
        session.ok(subject, "A pod's account is its namespace.")
        return True
    label = session.queries.options.account_label
    of_pod = account.source is not AccountFrom.NAMESPACE_LABEL
    metric = metrics.POD_LABELS if of_pod else metrics.NAMESPACE_LABELS
    count = session.count(session.queries.selector(metric, f'{label}!=""'))
    what = "pods" if of_pod else "namespaces"
    if count:
        session.ok(subject, f"{count:,} {what} have {label}.")
    else:
        session.fail(
            subject,
            f'No {metric} has {label}: all usage would go to the account "".',
            f"Start kube-state-metrics with --metric-labels-allowlist={what}=[…] for that label.",
        )
    return True


_CHECKS: tuple[tuple[str, Callable[[CheckSession, str], bool]], ...] = (
    ("Address", _reach),
    ("kube-state-metrics", _exporter),
    ("Lifecycle", _lifecycle),
    ("Devices", _devices),
    ("Account", _account),
    ("Pods", check_pods.attributes),
    ("Outcomes", check_pods.outcomes),
    ("CPU and memory", check_pods.cpu_memory),
    ("HAMi", check_pods.hami),
    ("Claims", check_pods.claims),
    ("Queues", check_metrics.queues),
    ("DCGM", telemetry),
    ("GPU errors", check_metrics.gpu_errors),
    ("Energy", check_metrics.energy),
)
_CHECKS_OF_SAMPLED: tuple[tuple[str, Callable[[CheckSession, str], bool]], ...] = (
    ("Address", _reach),
    ("Users", check_metrics.sampled),
)
_CHECKS_OF_VOLUMES: tuple[tuple[str, Callable[[CheckSession, str], bool]], ...] = (
    ("Volumes", check_volumes.volumes),
)
_CHECKS_OF_USE: tuple[tuple[str, Callable[[CheckSession, str], bool]], ...] = (("Use", check_use.use),)
_CHECKS_OF_TOKENS: tuple[tuple[str, Callable[[CheckSession, str], bool]], ...] = (
    ("Tokens", check_tokens.tokens),
)


def _checks(options: PrometheusOptions) -> tuple[tuple[str, Callable[[CheckSession, str], bool]], ...]:
    """Of what the connection is read for."""
    checks = _CHECKS_OF_SAMPLED if options.sampled else _CHECKS if options.pods else _CHECKS[:1]
    checks = checks if options.use is None else (*checks, *_CHECKS_OF_USE)
    checks = (*checks, *_CHECKS_OF_VOLUMES) if options.volumes else checks
    return checks if options.tokens is None else (*checks, *_CHECKS_OF_TOKENS)


_NEEDED = {"Address": "Prometheus", "kube-state-metrics": "kube-state-metrics"}
