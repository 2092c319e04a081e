"""One cluster: its connection, its syncs, its GPUs, and the buttons that sync it and test its connection."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

from django.contrib import messages
from django.db import transaction
from django.forms import BaseForm
from django.forms.boundfield import BoundField
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from clusters import declared_nodes, pull_schedule, status, watermark
from clusters.capacity import ModelCapacity
from clusters.connection_form import METERS, ConnectionForm, GpuStackForm
from clusters.models import ApiServer, ClusterKind, Connection, Pull, Telemetry
from clusters.models.connection import SECRETS, WHERE
from clusters.prometheus_form import HELD, PODS, TOKENS, PrometheusForm, names_of
from clusters.status import ClusterDetail
from portal.core.outbox import outbox
from portal.core.tenants.access import Right
from portal.web import format as say
from portal.web.access_decorators import answer, operator_page
from portal.web.badges import Badge
from portal.web.page_frame import PageFrame
from portal.web.templatetags.clustertab import ago, moment

if TYPE_CHECKING:
    from clusters.connectors.findings import Finding

FRESH = timedelta(hours=1)
SECRET_NAMES = {"jwt_key": "signing key", "client_key": "private key", "aws": "AWS keys"}
OUTCOMES = {
    Pull.Outcome.RUNNING: Badge(label=gettext_noop("Running"), tone="run"),
    Pull.Outcome.DONE: Badge(label=gettext_noop("Done"), tone="ok"),
    Pull.Outcome.FAILED: Badge(label=gettext_noop("Failed"), tone="late"),
}


class Group(NamedTuple):
    """Fields under one title; of a `is_rare` one they are folded while nothing in them is set."""

    title: str
    hint: str
    names: tuple[str, ...]
    is_rare: bool = False

    def shown(self, form: BaseForm) -> list[BoundField]:
        """Those that the form has."""
        return [form[name] for name in self.names if name in form.fields and not form[name].is_hidden]


GROUPS = (
    Group(gettext_noop("Address"), "", ("base_url", "unix_socket", "slurm_cluster", "enabled")),
    Group(
        gettext_noop("Authentication"),
        gettext_noop("Choose one method. Secrets are stored encrypted and never shown again."),
        ("user", "new_password", "new_token", "new_jwt_key", "new_aws", "new_headers"),
    ),
    Group(
        "TLS",
        gettext_noop("Only where the address begins with https."),
        ("ca", "client_certificate", "new_client_key"),
    ),
    Group(gettext_noop("Pods"), "", names_of(PODS)),
    Group(
        gettext_noop("What is read beside GPUs"),
        gettext_noop("Meters are declared under Plans → Meters."),
        names_of(HELD),
        is_rare=True,
    ),
    Group(gettext_noop("Tokens of models"), "", names_of(TOKENS), is_rare=True),
    Group(gettext_noop("Options"), "", ("options",), is_rare=True),
    Group(
        gettext_noop("Meters"),
        gettext_noop("What usage is counted as. Meters are declared under Plans → Meters."),
        tuple(METERS),
    ),
    Group(gettext_noop("Schedule"), "", ("first_usage_from", "every", "look_back", "coverage_needed")),
    Group(gettext_noop("Remove secrets"), "", ("forget",)),
)
FORMS: Mapping[str, type[ConnectionForm]] = {
    ClusterKind.GPUSTACK: GpuStackForm,
    ClusterKind.PROMETHEUS: PrometheusForm,
}


@operator_page("clusters", acts=Right.CLUSTERS)
def cluster(request: HttpRequest, frame: PageFrame, *, name: str) -> HttpResponse:
    detail = _detail_of(name)
    findings = None
    if request.method == "POST":
        if request.POST.get("act") == "check" and detail.connection is not None:
            from clusters import connection_test  # the connectors load 5 MiB that other pages do without

            findings = connection_test.examine(cluster=detail.cluster, clock=lambda: int(time.time()))
        else:
            _request_sync(request, detail)
            return redirect("operator_cluster", name)
    page = _page(detail, datetime.now(UTC), findings)
    return answer(request, frame, page, whole="operator/cluster.html", part="operator/_cluster.html")


@operator_page("clusters", acts=Right.CLUSTERS)
def connection(request: HttpRequest, frame: PageFrame, *, name: str) -> HttpResponse:
    """The form; saved, the cluster is due at once. A cluster of files becomes one that is pulled."""
    detail = _detail_of(name)
    before = detail.cluster.kind
    if before not in WHERE:
        kind = request.GET.get("kind", "")
        detail.cluster.kind = ClusterKind(kind) if kind in WHERE else ClusterKind.SLURM
    row = detail.connection or Connection()
    row.cluster = detail.cluster
    kind_of_form = FORMS.get(detail.cluster.kind, ConnectionForm)
    form = kind_of_form(request.POST or None, instance=row, moment=datetime.now(UTC))
    if request.method == "POST" and form.is_valid():
        with transaction.atomic():
            if detail.cluster.kind != before:
                detail.cluster.save(update_fields=["kind"])
            form.save()
            outbox.add("billing.tasks.pull_due")
        messages.success(request, _("Connection saved. First sync is starting."))
        return redirect("operator_cluster", name)
    page = {
        "name": name,
        "new": detail.connection is None,
        "listener": WHERE[ClusterKind(detail.cluster.kind)],
        "form": form,
        "groups": [
            (group.title, group.hint, shown, group.is_rare and not any(map(_is_set, shown)))
            for group in GROUPS
            if (shown := group.shown(form))
        ],
    }
    return render(request, "operator/connection.html", {"frame": frame, "page": page})


def _is_set(field: BoundField) -> bool:
    return bool(field.errors) or field.value() not in (None, "", "{}", {})


def _detail_of(name: str) -> ClusterDetail:
    detail = status.cluster_detail(name)
    if detail is None:
        raise Http404
    return detail


def _request_sync(request: HttpRequest, detail: ClusterDetail) -> None:
    """Through the outbox: a worker takes it up although this process may die now."""
    with transaction.atomic():
        if pull_schedule.ask(detail.cluster):
            outbox.add("billing.tasks.pull_due")
            messages.info(request, _("Sync requested. It starts shortly."))


def _page(detail: ClusterDetail, now: datetime, findings: Sequence[Finding] | None) -> dict[str, object]:
    """`refresh` is how often the page asks for itself, as htmx writes it; blank for one that only files feed."""
    row, at = detail.connection, detail.cluster.complete_through
    ahead = watermark.ahead(detail.cluster.name, at, moment=now)
    failing = row is not None and row.failures > 0 and detail.running is None
    today = now.astimezone(ZoneInfo(detail.cluster.timezone)).date()
    capacity = detail.capacity or declared_nodes.capacity_on(detail.declared, today)
    busy = detail.running is not None or (row is not None and row.enabled and _is_due(row, now))
    return {
        "name": detail.cluster.name,
        "detail": detail,
        "badge": _badge(detail, now),
        "subtitle": _subtitle(detail),
        "now": now,
        "last": _last(detail, now),
        "next": _next(row, now),
        "capacity": capacity,
        "gpus": sum(model.total for model in capacity),
        "unavailable": _unavailable(capacity, observed=bool(detail.capacity)),
        "ahead": ahead.fact if ahead else "",
        "trouble": row.last_error if row is not None and failing and not ahead else "",
        "remedy": _remedy(row, now) if row is not None and failing else "",
        "progress": _progress(detail.running, now),
        "facts": _facts(row) if row is not None else [],
        "telemetry": _telemetry(detail.telemetry, now) if detail.telemetry is not None else [],
        "pulls": [
            (pull, OUTCOMES[Pull.Outcome(pull.outcome)], _duration((pull.ended_at or now) - pull.started_at))
            for pull in detail.pulls
        ],
        "kinds": [
            (kind.value, WHERE[kind]) for kind in WHERE if detail.cluster.kind in {kind, ClusterKind.IMPORT}
        ],
        "may_pull": row is not None and row.enabled and detail.running is None,
        "may_check": row is not None and detail.cluster.kind in WHERE,
        "api_server": _api_server(detail.api_server) if detail.api_server is not None else [],
        "may_block": row is not None
        and (detail.cluster.kind == ClusterKind.SLURM or detail.api_server is not None),
        "findings": findings,
        "refresh": "" if row is None else "every 2s" if busy else "every 15s",
    }


def _is_due(row: Connection, now: datetime) -> bool:
    return row.next_pull_at is None or row.next_pull_at <= now


def _badge(detail: ClusterDetail, now: datetime) -> Badge:
    row, at = detail.connection, detail.cluster.complete_through
    if watermark.is_ahead(at, moment=now):
        return Badge(label=_("Watermark in the future"), tone="late")
    if row is None:
        if detail.cluster.kind == ClusterKind.IMPORT:
            return Badge(label=_("File import"), tone="muted")
        return Badge(label=_("Not connected"), tone="wait")
    if detail.running is not None:
        return Badge(label=_("Syncing now"), tone="run")
    if not row.enabled:
        return Badge(label=_("Paused"), tone="muted")
    if row.failures:
        return Badge(label=_("Not readable"), tone="late")
    if at is None:
        return Badge(label=_("Waiting for the first sync"), tone="wait")
    return (
        Badge(label=_("Up to date"), tone="ok")
        if now - at < FRESH
        else Badge(label=_("Lagging"), tone="wait")
    )


def _subtitle(detail: ClusterDetail) -> str:
    row, kind = detail.connection, detail.cluster.get_kind_display()
    if row is None:
        return _("{kind}, zone {zone}").format(kind=kind, zone=detail.cluster.timezone)
    if detail.cluster.kind == ClusterKind.SLURM and row.api_version:
        kind = f"Slurm {row.release} over {row.api_version}"
    return _("{kind} at {address}").format(kind=kind, address=row.address)


def _last(detail: ClusterDetail, now: datetime) -> str:
    row = detail.connection
    if row is None:
        ended = next((pull.ended_at for pull in detail.pulls if pull.outcome == Pull.Outcome.DONE), None)
        return ago(ended, now) or _("never")
    if row.last_success_at is None:
        return _("never")
    passed = now - row.last_success_at
    return _("{span} ago").format(span=_duration(passed)) if passed < FRESH else ago(row.last_success_at, now)


def _next(row: Connection | None, now: datetime) -> str:
    if row is None:
        return _("on next import")
    if not row.enabled:
        return _("paused")
    if row.next_pull_at is None or row.next_pull_at <= now:
        return _("due now")
    return _("in {span}").format(span=_duration(row.next_pull_at - now))


def _remedy(row: Connection, now: datetime) -> str:
    failed = (
        _("The last sync failed.")
        if row.failures == 1
        else _("The last {count} syncs failed.").format(count=say.whole(row.failures))
    )
    retry = (
        _("Retrying automatically {when}.").format(when=_next(row, now))
        if row.enabled
        else _("Retries are paused.")
    )
    return f"{failed} {retry} " + _("No data is lost: the next sync continues from the watermark.")


def _progress(pull: Pull | None, now: datetime) -> str:
    if pull is None:
        return ""
    rows = (
        _("{rows} imported so far").format(rows=say.counted(pull.read, "row"))
        if pull.read
        else _("waiting for the scheduler")
    )
    return _("Sync of {since} – {until}, running for {span}: {rows}.").format(
        since=moment(pull.since), until=moment(pull.until), span=_duration(now - pull.started_at), rows=rows
    )


def _unavailable(capacity: Sequence[ModelCapacity], *, observed: bool) -> str:
    """How many GPUs no job can get: `8 drained, 4 down`."""
    if not capacity:
        return _("no nodes yet")
    drained, down = (sum(getattr(model, state) for model in capacity) for state in ("drained", "down"))
    parts = [f"{say.whole(count)} {word}" for count, word in ((drained, "drained"), (down, "down")) if count]
    return (", ".join(parts) or _("all up")) + ("" if observed else _(", as declared"))


def _facts(row: Connection) -> list[tuple[str, str]]:
    secrets = ", ".join(SECRET_NAMES.get(name, name) for name in SECRETS if getattr(row, name))
    if secrets:
        secrets = _("{names}; entered {at}").format(names=secrets, at=moment(row.credentials_changed_at))
    slurm = [
        (_("Slurm’s cluster name"), row.slurm_cluster or _("from slurmrestd")),
        (_("Slurm"), row.release),
    ]
    coverage = [(_("Coverage required of each hour"), f"{row.coverage_needed} %")]
    return [
        (_("Address"), row.address),
        (_("User"), row.user),
        *(slurm if row.cluster.kind == ClusterKind.SLURM else []),
        (_("Stored secrets"), secrets or _("none")),
        (_("API version"), row.api_version),
        (_("Sync interval"), _duration(timedelta(seconds=row.every))),
        (_("Look-back"), _("{hours} h, once an hour").format(hours=row.look_back)),
        (_("First usage from"), moment(row.first_usage_from)),
        *(coverage if row.cluster.kind == ClusterKind.PROMETHEUS else []),
    ]


def _telemetry(row: Telemetry, now: datetime) -> list[tuple[str, str]]:
    last = ago(row.last_success_at, now) or _("never")
    return [
        (_("Address"), row.address),
        (_("Data through"), moment(row.complete_through) or _("no data yet")),
        (_("Last successful sync"), last if row.enabled else _("{last}; paused").format(last=last)),
        *((_("Note"), note) for note in row.notes.splitlines()),
    ]


def _api_server(row: ApiServer) -> list[tuple[str, str]]:
    everywhere = _("a ResourceQuota in each namespace")
    by_queue = _("queues of Kueue; a ResourceQuota in namespaces without one")
    return [
        (_("Address"), row.address if row.enabled else _("{address}; off").format(address=row.address)),
        (
            _("Token"),
            _("entered {at}").format(at=moment(row.credentials_changed_at)) if row.token else _("none"),
        ),
        (_("Accounts are blocked by"), everywhere if row.always_resource_quota else by_queue),
        (_("ClusterQueues of one account alone"), ", ".join(row.dedicated_cluster_queues) or _("none")),
    ]


def _duration(span: timedelta) -> str:
    """`< 1 s`, `40 s`, `5 min`, `2 h 5 min`: its two largest units."""
    seconds = int(span.total_seconds())
    if seconds < 1:
        return "< 1 s"
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    parts = [(hours, "h"), (minute, "min"), (second, "s")]
    return " ".join(f"{count} {unit}" for count, unit in [part for part in parts if part[0]][:2])
