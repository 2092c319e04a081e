"""One cluster closely: its connection in words, its passes, and the buttons that pull and look now."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from django.contrib import messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from clusters import declared_nodes, pull_schedule, status, watermark
from clusters.capacity import ModelCapacity
from clusters.connection_form import ConnectionForm
from clusters.models import ClusterKind, Connection, IncompleteHour, Pull, Telemetry, VanishedRun
from clusters.models.connection import SECRETS, WHERE
from clusters.status import ClusterDetail
from portal.core.outbox import outbox
from portal.web import format as say
from portal.web.access_decorators import answer, operator_page
from portal.web.shapes import (
    Badge,
    CapacityRow,
    ClusterPage,
    ConnectionPage,
    Fact,
    FieldGroup,
    PassRow,
    Shell,
    UnseenRow,
    VanishedRow,
)

if TYPE_CHECKING:
    from clusters.connectors.findings import Finding

UTC_ZONE = ZoneInfo("UTC")
FRESH = timedelta(hours=1)
KEPT = {"jwt_key": "signing key", "client_key": "private key", "aws": "AWS keys"}
OUTCOMES = {
    Pull.Outcome.RUNNING: Badge(label="Running", tone="run"),
    Pull.Outcome.DONE: Badge(label="Done", tone="ok"),
    Pull.Outcome.FAILED: Badge(label="Failed", tone="late"),
}
GROUPS = (
    ("Address", "", ("base_url", "unix_socket", "slurm_cluster", "enabled")),
    (
        "As whom",
        "One way of those below. Secrets rest encrypted and are never shown again.",
        ("user", "new_password", "new_token", "new_jwt_key", "new_aws", "new_headers"),
    ),
    ("TLS", "Only where the address begins with https.", ("ca", "client_certificate", "new_client_key")),
    ("How series are read", "", ("options",)),
    ("What and how often", "", ("first_usage_from", "every", "look_back", "coverage_needed")),
    ("Secrets to take away", "", ("forget",)),
)


@operator_page("clusters", acts=True)
def cluster(request: HttpRequest, shell: Shell, *, name: str) -> HttpResponse:
    detail = _found(name)
    findings = None
    if request.method == "POST":
        if request.POST.get("act") == "check" and detail.connection is not None:
            from clusters import connection_test  # the connectors load 5 MiB that other pages do without

            findings = connection_test.examine(cluster=detail.cluster, clock=lambda: int(time.time()))
        else:
            _ask(request, detail)
            return redirect("operator_cluster", name)
    page = _page(detail, datetime.now(UTC), findings)
    return answer(request, shell, page, whole="operator/cluster.html", part="operator/_cluster.html")


@operator_page("clusters", acts=True)
def connection(request: HttpRequest, shell: Shell, *, name: str) -> HttpResponse:
    """The form; saved, the cluster is due at once. A cluster of files becomes one that is pulled."""
    detail = _found(name)
    before = detail.cluster.kind
    if before not in WHERE:
        kind = request.GET.get("kind", "")
        detail.cluster.kind = ClusterKind(kind) if kind in WHERE else ClusterKind.SLURM
    row = detail.connection or Connection()
    row.cluster = detail.cluster
    form = ConnectionForm(request.POST or None, instance=row)
    del form.fields["cluster"]
    if request.method == "POST" and form.is_valid():
        with transaction.atomic():
            if detail.cluster.kind != before:
                detail.cluster.save(update_fields=["kind"])
            form.save()
            outbox.add("billing.tasks.pull_due")
        messages.success(request, f"The connection of {name} is kept; its first pass begins in a moment.")
        return redirect("operator_cluster", name)
    page = ConnectionPage(
        name=name,
        new=detail.connection is None,
        listener=WHERE[ClusterKind(detail.cluster.kind)],
        warning="Enter secrets anew: what was typed is not shown again." if form.errors else "",
        form=form,
        groups=_groups(form),
    )
    return render(request, "operator/connection.html", {"shell": shell, "page": page})


def _found(name: str) -> ClusterDetail:
    detail = status.cluster_detail(name)
    if detail is None:
        raise Http404
    return detail


def _ask(request: HttpRequest, detail: ClusterDetail) -> None:
    """Through the outbox: a worker takes it up although this process may die now."""
    with transaction.atomic():
        if pull_schedule.ask(detail.cluster):
            outbox.add("billing.tasks.pull_due")
            messages.info(request, "Asked for: a worker begins in a moment.")


def _groups(form: ConnectionForm) -> tuple[FieldGroup, ...]:
    return tuple(
        FieldGroup(title=title, hint=hint, fields=tuple(form[name] for name in names if name in form.fields))
        for title, hint, names in GROUPS
        if any(name in form.fields for name in names)
    )


def _page(detail: ClusterDetail, now: datetime, findings: Sequence[Finding] | None) -> ClusterPage:
    row, at = detail.connection, detail.cluster.complete_through
    ahead = watermark.ahead(detail.cluster.name, at, moment=now)
    failing = row is not None and row.failures > 0 and detail.running is None
    today = now.astimezone(ZoneInfo(detail.cluster.timezone)).date()
    capacity = detail.capacity or declared_nodes.capacity_on(detail.declared, today)
    busy = detail.running is not None or (row is not None and row.enabled and _is_due(row, now))
    return ClusterPage(
        name=detail.cluster.name,
        badge=_badge(detail, now),
        subtitle=_subtitle(detail),
        complete_through=say.moment(at, UTC_ZONE) if at else "nothing yet",
        lag="in the future" if ahead else f"{say.age(at, now=now)} ago" if at else "no pass has ended yet",
        last=_last(detail, now),
        next=_next(row, now),
        gpus=say.whole(sum(model.total for model in capacity)) if capacity else "",
        idle=_withheld(capacity, observed=bool(detail.capacity)),
        ahead=ahead.fact if ahead else "",
        trouble=row.last_error if row is not None and failing and not ahead else "",
        remedy=_remedy(row, now) if row is not None and failing else "",
        progress=_progress(detail.running, now),
        facts=_facts(row) if row is not None else (),
        telemetry=_telemetry(detail.telemetry, now) if detail.telemetry is not None else (),
        telemetry_trouble=detail.telemetry.last_error if detail.telemetry is not None else "",
        passes=tuple(_pass(pull, now) for pull in detail.pulls),
        capacity=_capacity(capacity),
        vanished=tuple(_vanished(run) for run in detail.vanished),
        vanished_runs=say.counted(detail.vanished_runs, "run"),
        unseen=tuple(_unseen(hour, row) for hour in detail.unseen),
        coverage_needed=f"{row.coverage_needed} %" if row is not None else "",
        declared=tuple(node.sentence for node in detail.declared),
        connected=row is not None,
        kinds=tuple(
            (kind.value, WHERE[kind]) for kind in WHERE if detail.cluster.kind in {kind, ClusterKind.IMPORT}
        ),
        may_pull=row is not None and row.enabled and detail.running is None,
        may_check=row is not None and detail.cluster.kind in WHERE,
        may_block=row is not None and detail.cluster.kind == ClusterKind.SLURM,
        blocked=say.whole(detail.blocked) if detail.blocked else "",
        findings=findings,
        refresh="" if row is None else "every 2s" if busy else "every 15s",
    )


def _is_due(row: Connection, now: datetime) -> bool:
    return row.next_pull_at is None or row.next_pull_at <= now


def _badge(detail: ClusterDetail, now: datetime) -> Badge:
    row, at = detail.connection, detail.cluster.complete_through
    if watermark.is_ahead(at, moment=now):
        return Badge(label="Watermark in the future", tone="late")
    if row is None:
        files = detail.cluster.kind == ClusterKind.IMPORT
        return Badge(label="Fed by files" if files else "Not connected", tone="muted" if files else "wait")
    if detail.running is not None:
        return Badge(label="Pulling now", tone="run")
    if not row.enabled:
        return Badge(label="Paused", tone="muted")
    if row.failures:
        return Badge(label="Not readable", tone="late")
    if at is None:
        return Badge(label="Waiting for its first pass", tone="wait")
    return Badge(label="Up to date", tone="ok") if now - at < FRESH else Badge(label="Behind", tone="wait")


def _subtitle(detail: ClusterDetail) -> str:
    row = detail.connection
    if row is None:
        return f"{detail.cluster.get_kind_display()}, zone {detail.cluster.timezone}"
    spoken = detail.cluster.get_kind_display()
    if detail.cluster.kind == ClusterKind.SLURM and row.api_version:
        spoken = f"Slurm {row.release} over {row.api_version}"
    return f"{spoken} at {row.address}"


def _last(detail: ClusterDetail, now: datetime) -> str:
    row = detail.connection
    if row is None:
        ended = next((pull.ended_at for pull in detail.pulls if pull.outcome == Pull.Outcome.DONE), None)
        return f"{say.age(ended, now=now)} ago" if ended else "never"
    if row.last_success_at is None:
        return "never"
    passed = now - row.last_success_at
    return f"{_brief(passed) if passed < FRESH else say.age(row.last_success_at, now=now)} ago"


def _next(row: Connection | None, now: datetime) -> str:
    if row is None:
        return "with the next file"
    if not row.enabled:
        return "paused"
    if row.next_pull_at is None or row.next_pull_at <= now:
        return "due now"
    return f"in {_brief(row.next_pull_at - now)}"


def _remedy(row: Connection, now: datetime) -> str:
    times = "The last pass" if row.failures == 1 else f"The last {say.whole(row.failures)} passes"
    again = "is tried again by itself" if row.enabled else "is paused"
    when = f" {_next(row, now)}" if row.enabled else ""
    return f"{times} failed; it {again}{when}. Nothing is lost meanwhile: the next pass reads on from the watermark."


def _progress(pull: Pull | None, now: datetime) -> str:
    if pull is None:
        return ""
    rows = f"{say.counted(pull.read, 'row')} taken in" if pull.read else "asking the scheduler"
    return f"A pass over {_window(pull)} is under way for {_brief(now - pull.started_at)}: {rows} so far."


def _withheld(capacity: Sequence[ModelCapacity], *, observed: bool) -> str:
    drained, down = (sum(getattr(model, state) for model in capacity) for state in ("drained", "down"))
    if not capacity:
        return "no nodes are known yet"
    parts = [f"{say.whole(count)} {word}" for count, word in ((drained, "drained"), (down, "down")) if count]
    return (", ".join(parts) or "all of them up") + ("" if observed else ", as declared")


def _facts(row: Connection) -> tuple[Fact, ...]:
    secret_names = [name for name in SECRETS if getattr(row, name)]
    changed = say.moment(row.credentials_changed_at, UTC_ZONE) if row.credentials_changed_at else ""
    secrets = (
        f"{', '.join(KEPT.get(name, name) for name in secret_names)}; entered {changed}"
        if secret_names
        else "none"
    )
    first = say.moment(row.first_usage_from, UTC_ZONE) if row.first_usage_from else ""
    slurm = (
        Fact(label="Slurm’s cluster name", value=row.slurm_cluster or "as slurmrestd answers"),
        Fact(label="Slurm", value=row.release),
    )
    coverage = (Fact(label="To be seen of each hour", value=f"{row.coverage_needed} %"),)
    return (
        Fact(label="Address", value=row.address),
        Fact(label="User", value=row.user),
        *(slurm if row.cluster.kind == ClusterKind.SLURM else ()),
        Fact(label="Secrets kept", value=secrets),
        Fact(label="API version", value=row.api_version),
        Fact(label="A pass every", value=_brief(timedelta(seconds=row.every))),
        Fact(label="Looks back", value=f"{row.look_back} h, once an hour"),
        Fact(label="First usage from", value=first),
        *(coverage if row.cluster.kind == ClusterKind.PROMETHEUS else ()),
    )


def _telemetry(row: Telemetry, now: datetime) -> tuple[Fact, ...]:
    through = row.complete_through
    last = say.age(row.last_success_at, now=now) + " ago" if row.last_success_at else "never"
    return (
        Fact(label="Address", value=row.address),
        Fact(label="Data through", value=say.moment(through, UTC_ZONE) if through else "nothing yet"),
        Fact(label="Last read successfully", value=last if row.enabled else f"{last}; paused"),
        *(Fact(label="Noticed", value=note) for note in row.notes.splitlines()),
    )


def _brief(span: timedelta) -> str:
    """`< 1 s`, `40 s`, `5 min`, `2 h 5 min`: its two largest units."""
    seconds = int(span.total_seconds())
    if seconds < 1:
        return "< 1 s"
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    parts = [(hours, "h"), (minute, "min"), (second, "s")]
    return " ".join(f"{count} {unit}" for count, unit in [part for part in parts if part[0]][:2])


def _window(pull: Pull) -> str:
    if pull.since is None or pull.until is None:
        return ""
    return f"{say.moment(pull.since, UTC_ZONE)} – {say.moment(pull.until, UTC_ZONE)}"


def _pass(pull: Pull, now: datetime) -> PassRow:
    end = pull.ended_at or now
    return PassRow(
        began=say.moment(pull.started_at, UTC_ZONE),
        source=pull.source,
        window=_window(pull),
        outcome=OUTCOMES[Pull.Outcome(pull.outcome)],
        took=_brief(end - pull.started_at) if pull.until else "",
        read=say.whole(pull.read),
        new=say.whole(pull.new),
        revised=say.whole(pull.revised),
        quarantined=say.whole(pull.quarantined),
        sentences=tuple(line for line in (pull.error, *pull.notes.splitlines()) if line),
    )


def _capacity(capacity: Sequence[ModelCapacity]) -> tuple[CapacityRow, ...]:
    return tuple(
        CapacityRow(
            model=model.gpu_model or "model not told",
            up=say.whole(model.up),
            drained=say.whole(model.drained),
            down=say.whole(model.down),
            total=say.whole(model.total),
        )
        for model in capacity
    )


def _unseen(hour: IncompleteHour, row: Connection | None) -> UnseenRow:
    return UnseenRow(
        begins=say.moment(datetime.fromtimestamp(hour.begins, UTC), UTC_ZONE),
        seen=f"{hour.seen} %",
        poor=row is not None and hour.seen < row.coverage_needed,
    )


def _vanished(run: VanishedRun) -> VanishedRow:
    record = run.record

    def instant(second: int | None) -> str:
        return say.moment(datetime.fromtimestamp(second, UTC), UTC_ZONE) if second is not None else ""

    return VanishedRow(
        job=record.job_id or record.source_key,
        account=record.account.name or "(no account)",
        user=record.user,
        holds=f"{record.gpus} × {record.gpu_model or 'GPU'}" if record.gpus else "no GPU",
        started=instant(record.started),
        billed_until=instant(record.seen_until) if record.started is not None else "",
        since=say.moment(run.since, UTC_ZONE),
    )
