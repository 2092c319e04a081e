"""Test connection: does this GPUStack list usage that can be billed? Counts what it really fills."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from clusters.connectors.base import BadRow, ConnectorError, UsageFact
from clusters.connectors.findings import Finding, Findings
from clusters.connectors.gpustack.connector import GpuStackConnector
from clusters.connectors.sums import MeterUnits

DAY = 86_400
SPAN = 2 * DAY  # seconds that are looked at: at least one whole day of tokens is in them


class _Session(Findings):
    def __init__(self) -> None:
        self.findings = []


def examine(
    connector: GpuStackConnector, *, now: int, used: dict[str, str], meters: MeterUnits
) -> list[Finding]:
    """What a sync of the last two days would bring. `used` are the meters by kind of usage. Never raises."""
    session = _Session()
    for kind, meter in used.items():
        if meter not in meters:
            session.fail(
                "Meters", f"The meter {meter} for {kind} is not declared.", "docs/how-to/connect-gpustack.md"
            )
    try:
        with connector:
            rows = list(connector.usage(since=now - SPAN, until=now, open_keys=()))
    except ConnectorError as error:
        session.fail("GPUStack", str(error))
        return session.findings
    facts = [row for row in rows if isinstance(row, UsageFact)]
    bad = [row for row in rows if isinstance(row, BadRow)]
    session.ok("Key", "The key sees the usage of all organizations.")
    for kind, meter in used.items():
        of_meter = [fact for fact in facts if fact.meter == meter]
        summary = (
            f"{len(of_meter)} sums of {len({fact.account for fact in of_meter})} organizations, "
            f"{sum(bool(fact.user) for fact in of_meter)} of them with a user, in the last two days."
        )
        (session.ok if of_meter else session.warn)(kind, summary)
    if bad:
        session.warn("Rows", f"{len(bad)} rows cannot be used. The first: {bad[0].reason}")
    clocks = connector.reading.clocks
    if clocks is None:
        session.warn(
            "Clock", "GPUStack does not tell its time, so the watermark would stay: pass its Date header."
        )
    elif not clocks.agree:
        session.fail("Clock", clocks.sentence("GPUStack"), "timedatectl set-ntp true  # on both machines")
    through = connector.reading.complete_through
    if through is not None:
        until = datetime.fromtimestamp(through, UTC)
        lag = datetime.fromtimestamp(now, UTC) - until
        if lag > timedelta(hours=2):
            session.ok(
                "Watermark", f"Complete through {until:%Y-%m-%d %H:%M} UTC: tokens come by whole days."
            )
    return session.findings
