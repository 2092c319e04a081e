"""Test connection, for tokens: which counters there are, what they tell, and whether a meter takes it."""

from __future__ import annotations

from clusters.connectors.prometheus.check_metrics import CHECK_WINDOW, CheckSession
from clusters.connectors.prometheus.facts import count_of, naming
from clusters.connectors.prometheus.queries import span
from clusters.connectors.prometheus.token_options import DIMENSIONS, TokenOptions
from clusters.connectors.prometheus.tokens import TokenSums


def tokens(session: CheckSession, subject: str) -> bool:
    """Every counter with what it fills, in the last hour; then the meter."""
    options = session.queries.options
    if (chosen := options.tokens) is None:
        return True
    reader = TokenSums(session.client, options, chosen, {})
    for direction, metric in chosen.metrics.items():
        labels = [name for name in (chosen.account, chosen.user, chosen.model) if name]
        query = f"count by ({','.join(labels)}) (count_over_time({reader.selector(metric)}[{span(CHECK_WINDOW)}]))"
        series = [one.metric for one in session.client.instant(query, session.now)]
        if not series:
            session.warn(
                subject,
                f"There was no {metric} in the last hour: no tokens of {direction} are billed.",
                "Right, if no model was used. Else let Prometheus scrape the server, and see the options tokens.",
            )
            continue
        models = sorted({one.get(chosen.model, "") for one in series})
        counted = f"{metric} tells of {count_of(len(models), 'model')} ({naming(models)})"
        accounts = {one.get(chosen.account, "") for one in series}
        users = {one.get(chosen.user, "") for one in series} - {""}
        session.ok(
            subject,
            f"{counted}, {count_of(len(accounts), 'account')} and {count_of(len(users), 'user')} in the last hour.",
        )
        if "" in accounts:
            session.warn(
                subject,
                f'Some series of {metric} have no {chosen.account}: their tokens go to the account "".',
                "Set the option tokens.account_label to a label that all of them have.",
            )
    _meter(session, subject, chosen)
    return True


def _meter(session: CheckSession, subject: str, chosen: TokenOptions) -> None:
    meter = session.meters.get(chosen.meter)
    if meter is None:
        session.fail(
            subject,
            f"No meter is called {chosen.meter}: all tokens would be kept aside.",
            "Declare it, or name another one with the option tokens.meter.",
        )
    elif missing := [name for name in DIMENSIONS if name not in meter.dimensions]:
        session.fail(
            subject,
            f"The meter {meter.name} has no dimension {naming(missing)}: all tokens would be kept aside.",
            f"Add {naming(list(DIMENSIONS))} to its dimensions.",
        )
    else:
        session.ok(subject, f"They are sums of the meter {meter.name}.")
