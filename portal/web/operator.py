"""What the operator looks after: clusters, usage that nobody owns, rows that were set aside."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.http import HttpRequest, HttpResponse

from clusters import status, watermark
from clusters.models import Pull, Quarantined
from clusters.status import Stand
from portal.core.tenants import unassigned as reading
from portal.core.tenants.unassigned import Span, Unassigned
from portal.web import format as say
from portal.web.access_decorators import answer, operator_page
from portal.web.shapes import (
    Badge,
    ClusterRow,
    ClustersPage,
    Option,
    QuarantinePage,
    QuarantineRow,
    Shell,
    Tone,
    UnassignedPage,
    UnassignedRow,
)

UTC_ZONE = ZoneInfo("UTC")
FRESH, OLD = timedelta(hours=1), timedelta(days=2)
OUTCOMES = {
    Pull.Outcome.RUNNING: Badge(label="Running", tone="run"),
    Pull.Outcome.DONE: Badge(label="Done", tone="ok"),
    Pull.Outcome.FAILED: Badge(label="Failed", tone="late"),
}


@operator_page("clusters")
def clusters(request: HttpRequest, shell: Shell) -> HttpResponse:
    now = datetime.now(UTC)
    page = ClustersPage(rows=tuple(_cluster(stand, now) for stand in status.clusters(moment=now)))
    return answer(request, shell, page, whole="operator/clusters.html")


@operator_page("unassigned")
def unassigned(request: HttpRequest, shell: Shell) -> HttpResponse:
    page = UnassignedPage(rows=tuple(_unassigned(row) for row in reading.unassigned()))
    return answer(request, shell, page, whole="operator/unassigned.html")


@operator_page("quarantine")
def quarantine(request: HttpRequest, shell: Shell) -> HttpResponse:
    parameters = {
        name: request.GET.get(name, "").replace("\0", "") for name in ("cluster", "code", "state", "before")
    }
    return answer(request, shell, _quarantine(**parameters), whole="operator/quarantine.html")


def _cluster(stand: Stand, now: datetime) -> ClusterRow:
    row, pull = stand.cluster, stand.pull
    at = (pull.ended_at or pull.started_at) if pull else None
    return ClusterRow(
        name=row.name,
        kind=row.get_kind_display(),
        timezone=row.timezone,
        complete_through=say.moment(row.complete_through, UTC_ZONE) if row.complete_through else "",
        lag=_lag(row.complete_through, now),
        unseen=f"{say.counted(stand.poor_hours, 'hour')} not seen" if stand.poor_hours else "",
        accounts=say.whole(stand.accounts),
        jobs=say.whole(stand.jobs),
        pulled=say.moment(at, UTC_ZONE) if at else "",
        source=pull.source if pull else "",
        outcome=OUTCOMES[Pull.Outcome(pull.outcome)] if pull else None,
        error=pull.error if pull else "",
    )


def _lag(through: datetime | None, now: datetime) -> Badge:
    if through is None:
        return Badge(label="never read", tone="late")
    if watermark.is_ahead(through, moment=now):
        return Badge(label="in the future", tone="late")
    behind = now - through
    tone: Tone = "ok" if behind < FRESH else "wait" if behind < OLD else "late"
    return Badge(label=say.age(through, now=now), tone=tone)


def _unassigned(row: Unassigned) -> UnassignedRow:
    use = row.use
    return UnassignedRow(
        cluster=use.cluster,
        account=use.account or "(no account)",
        jobs=say.whole(use.jobs),
        gpu_hours=say.hours(use.gpu_seconds),
        cpu_hours=say.hours(use.cpu_seconds),
        since=say.moment(use.first, UTC_ZONE),
        until=say.moment(use.last, UTC_ZONE),
        commands=tuple(_command(use.cluster, use.account, gap) for gap in row.gaps),
    )


def _command(cluster: str, account: str, gap: Span) -> str:
    """What gives the account an owner during the gap, ready to be pasted but for the tenant."""
    words = ["./run", "manage", "assign_account", cluster, account]
    since, until = gap
    ends = [("--since", since), ("--until", until)]
    options = [word for name, at in ends if at is not None for word in (name, f"{at:%Y-%m-%dT%H:%M:%SZ}")]
    return f"{shlex.join(words)} TENANT {shlex.join(options)}".strip()


def _quarantine(*, cluster: str, code: str, state: str, before: str) -> QuarantinePage:
    resolved = state == "resolved"
    reasons = status.reasons(resolved=resolved)
    after = int(before) if before.isdecimal() and len(before) < 19 else None
    rows, more = status.set_aside(resolved=resolved, cluster=cluster, code=code, after=after)
    chosen = {"cluster": cluster, "code": code, "state": state}
    matching = [r for r in reasons if cluster in {"", r.cluster} and code in {"", r.code}]
    return QuarantinePage(
        cluster=_options((r.cluster for r in reasons), cluster),
        code=_options((r.code for r in reasons), code),
        state=(
            Option(value="", label="Open", selected=not resolved),
            Option(value="resolved", label="Settled", selected=resolved),
        ),
        total=say.counted(sum(r.rows for r in matching), "row"),
        rows=tuple(_set_aside(row) for row in rows),
        older="?" + urlencode({**{k: v for k, v in chosen.items() if v}, "before": more}) if more else "",
    )


def _options(values: Iterable[str], chosen: str) -> tuple[Option, ...]:
    offered = sorted({*values, *({chosen} - {""})})
    return tuple(Option(value=value, label=value, selected=value == chosen) for value in offered)


def _set_aside(row: Quarantined) -> QuarantineRow:
    place = row.source + (f", line {say.whole(row.line)}" if row.line is not None else "")
    return QuarantineRow(
        cluster=row.cluster.name,
        code=row.code,
        reason=row.reason,
        place=place,
        first=say.moment(row.first_seen, UTC_ZONE),
        last=say.moment(row.last_seen, UTC_ZONE),
        raw=row.raw,
        resolution=row.resolution or ("settled" if row.resolved_at else ""),
    )
