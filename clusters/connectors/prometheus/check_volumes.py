"""Test connection, for volumes: which claims there are, and whether a meter takes their GiB-hours."""

from __future__ import annotations

from clusters.connectors.prometheus.check_metrics import CheckSession
from clusters.connectors.prometheus.volumes import INFO, LABELS, PHASE, REQUESTED, VolumeSums

FEWEST_DECIMALS = 3


def volumes(session: CheckSession, subject: str) -> bool:
    """Each of the series in the last hour, what their product comes to now, then the meter."""
    options = session.queries.options
    if not options.volumes:
        return True
    reader = VolumeSums(session.client, session.queries, session.meters)
    for metric in (REQUESTED, PHASE):
        if not session.count(session.queries.selector(metric)):
            session.warn(
                subject,
                f"There was no {metric} in the last hour: no volumes are billed.",
                "Right, if there are no claims. Else let kube-state-metrics read persistentvolumeclaims.",
            )
            break
    else:
        _held(session, subject, reader)
    meter(session, subject, options.volumes, what="all volumes", option="volumes")
    return True


def _held(session: CheckSession, subject: str, reader: VolumeSums) -> None:
    if reader.by_class and not session.count(session.queries.selector(INFO)):
        session.warn(subject, f"There was no {INFO} in the last hour: no class of a volume is known.", "")
    held = session.client.instant(f"sum({reader.expression()})", session.now)
    gib = sum(int(one.value[1]) for one in held if one.value is not None) >> 30
    claims = session.count(session.queries.selector(REQUESTED))
    session.ok(subject, f"{claims:,} claims; those that are bound request {gib:,} GiB now.")
    label = session.queries.options.volume_label
    if not label:
        return
    labelled = session.count(session.queries.selector(LABELS, f'{label}!=""'))
    sentence = f"Of {claims:,} claims, {labelled:,} have the label {label}; the others go by their namespace."
    if labelled:
        session.ok(subject, sentence)
    else:
        session.warn(
            subject,
            sentence,
            "Let kube-state-metrics export it: --metric-labels-allowlist=persistentvolumeclaims=[…].",
        )


def meter(session: CheckSession, subject: str, name: str, *, what: str, option: str) -> None:
    """Whether the meter of that name is declared, and fine enough for sums of an hour."""
    unit = session.meters.get(name)
    if unit is None:
        session.fail(
            subject,
            f"No meter is called {name}: {what} would be kept aside.",
            f"Declare it, or name another one with the option {option}.",
        )
    elif unit.decimals < FEWEST_DECIMALS:
        session.warn(
            subject,
            f"The meter {name} has {unit.decimals} decimals: what a small amount comes to in an hour is rounded down.",
            "Declare a meter with six decimals.",
        )
    else:
        session.ok(subject, f"They are sums of the meter {name}.")
