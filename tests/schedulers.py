"""A live scheduler that answers as it is told, behind the protocol that every connector keeps; what is asked of one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from billing.rating import pulls
from billing.rating.pulls import Pulled
from clusters import enforcement_plan
from clusters.connectors.base import Connector, ConnectorError, NodeSeen, Reading, Row, UsageFact
from clusters.connectors.clocks import Clocks
from clusters.connectors.prometheus.coverage import incomplete_hours
from clusters.enforcement_plan import Plan, Request, SchedulerPort
from clusters.models import ActKind, Cluster, ClusterKind, Connection
from portal.core.vault import seal
from tests.builders import a_cluster, at

PASSWORDS = (
    "eyJhbGciOiJIUzI1NiJ9.pull.token",
    "dGhlIGtleSB0aGF0IHNpZ25zIGF0IHRoaXMgdGVzdCE=",
    "proxy-pass-word",
)
"""The token, the signing key and the proxy's password: what nobody may ever read."""


@dataclass
class Scheduler:
    """Gives the rows that overlap a window, as slurmrestd does, and remembers what it was asked."""

    rows: list[Row] = field(default_factory=list)
    nodes: list[NodeSeen] | None = None
    gaps: list[tuple[int, int]] = field(default_factory=list)  # times in which it did not look, epoch seconds
    forgotten: set[str] = field(default_factory=set)  # keys of runs that it has lost
    asks: int = 500  # how many of them it asks for one by one
    fails: ConnectorError | Exception | None = None  # after its rows
    during: Callable[[], object] | None = None  # called in the middle of a pass
    windows: list[tuple[int, int]] = field(default_factory=list)
    requests: list[list[str]] = field(default_factory=list)
    release: str = "24.11.3"
    ahead: int | None = 0  # seconds that its clock is ahead of ours; None: it does not tell its time

    def connect(self, connection: Connection, *, clock: Callable[[], int]) -> Connector:
        return _Answers(self, clock)

    def pulled(
        self, cluster: Cluster, moment: str, *, since: str | None = None, until: str | None = None
    ) -> Pulled:
        """What a pull at that moment does."""
        return pulls.pull(
            cluster,
            moment=at(moment),
            since=at(since) if since else None,
            until=at(until) if until else None,
            connect=self.connect,
        )


class _Answers:
    """One connection to it."""

    def __init__(self, scheduler: Scheduler, clock: Callable[[], int]) -> None:
        self.scheduler = scheduler
        now, ahead = clock(), scheduler.ahead
        self.reading = Reading(clocks=None if ahead is None else Clocks(now, now + ahead))
        self.api = "v0.0.42"
        self.release = scheduler.release

    def usage(self, *, since: int, until: int, open_keys: Collection[str]) -> Iterator[Row]:
        scheduler = self.scheduler
        scheduler.windows.append((since, until))
        scheduler.requests.append(sorted(open_keys))
        keys = set()
        for row in scheduler.rows:
            if not isinstance(row, UsageFact):
                yield row
                continue
            is_remembered = row.source_key not in scheduler.forgotten
            overlaps = (row.eligible or row.submitted or 0) < until and (
                row.ended is None or row.ended >= since
            )
            if is_remembered and (overlaps or row.source_key in open_keys):
                keys.add(row.source_key)
                yield row
        if scheduler.during is not None:
            scheduler.during()
        if scheduler.fails is not None:
            raise scheduler.fails
        self.reading.complete_through = until
        self.reading.nodes = scheduler.nodes
        cut = [
            (max(begin, since), min(end, until))
            for begin, end in scheduler.gaps
            if begin < until and end > since
        ]
        self.reading.incomplete = incomplete_hours(cut, since, until)
        missing_keys = sorted(set(open_keys) - keys)
        self.reading.missing, self.reading.unasked = (
            missing_keys[: scheduler.asks],
            missing_keys[scheduler.asks :],
        )


def a_connection(cluster: Cluster | None = None, **fields: Any) -> Connection:
    """A connection with every kind of secret, begun on 1 March."""
    cluster = cluster or a_cluster(kind=ClusterKind.SLURM)
    token, key, password = PASSWORDS
    values = {
        "base_url": "http://127.0.0.1:6820",
        "user": "clustertab",
        "first_usage_from": at("2026-03-01"),
        "token": seal(token),
        "jwt_key": seal(key),
        "headers": seal(f'{{"Proxy-Authorization": "{password}"}}'),
        **fields,
    }
    return Connection.objects.create(cluster=cluster, **values)


def plan_hold(*, port: SchedulerPort, account: str, user: str = "") -> Plan:
    """Hold every waiting job of the account, of that user alone where one is given."""
    return enforcement_plan.plan(port=port, request=Request(kind=ActKind.HOLD, account=account, user=user))


def plan_release(*, port: SchedulerPort, account: str, user: str = "") -> Plan:
    """Release the account's jobs that were held here. Those that users or operators hold stay held."""
    return enforcement_plan.plan(port=port, request=Request(kind=ActKind.RELEASE, account=account, user=user))


def plan_cancel(*, port: SchedulerPort, job: int) -> Plan:
    """End one job, or all tasks of the array of that number."""
    return enforcement_plan.plan(port=port, request=Request(kind=ActKind.CANCEL, job=job))
