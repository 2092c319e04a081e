"""Accounting files dropped onto a cluster's page: sent in pieces, imported by a worker, watched until they are in."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from django.contrib import messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.queries.onboarding import progress
from billing.rating import file_imports
from billing.rating.file_imports import LARGEST, FileRefusedError
from clusters.connectors.sacct.layout import COMMAND
from clusters.models import Cluster, ClusterKind, FileFormat, UsageFile
from portal.core.outbox import outbox
from portal.core.tenants.access import Right
from portal.days import is_in_range
from portal.sentences import sentence
from portal.web.access_decorators import answer, operator_page
from portal.web.badges import Badge
from portal.web.form_input import options
from portal.web.page_frame import PageFrame

PIECE = 1 << 20  # bytes
SHOWN = 20
LONGEST_NAME = 200  # bytes, as of the REST API: a worker has a file of this name
WAITING = Badge(label=gettext_noop("Waiting"), tone="wait")
RUNNING = Badge(label=gettext_noop("Importing"), tone="run")
DONE = Badge(label=gettext_noop("Imported"), tone="ok")
FAILED = Badge(label=gettext_noop("Failed"), tone="late")


@operator_page("clusters", acts=Right.IMPORTS)
def usage_files(request: HttpRequest, frame: PageFrame, *, name: str) -> HttpResponse:
    """The same use case as `PUT /clusters/{name}/files/{file}` of the REST API."""
    cluster = Cluster.objects.filter(name=name).first()
    if cluster is None or cluster.kind == ClusterKind.PUSH:
        raise Http404("no cluster that reads files")
    if request.method == "POST":
        try:
            _store(request, cluster)
            messages.info(request, _("The file is here. Its import starts shortly."))
        except FileRefusedError as refusal:
            messages.error(request, sentence(refusal))
        # The script opens the page itself, which then has the sentence.
        if request.headers.get("X-Requested-With") == "XMLHttpRequest":
            return HttpResponse(status=204)
        return redirect("operator_usage_files", name)
    rows = UsageFile.objects.filter(cluster=cluster).select_related("pull").order_by("-pk")[:SHOWN]
    files = [(row, _badge(row)) for row in rows]
    page = {
        "cluster": cluster,
        "formats": options(FileFormat.choices, FileFormat.SACCT.value),
        "files": files,
        "largest": LARGEST,
        "command": COMMAND.replace("TZ=UTC", f"TZ={cluster.timezone}"),  # in which its local times are read
        "sets_up": any(badge is DONE for _row, badge in files) and not progress().is_complete,
        "refresh": "every 2s" if any(row.ended_at is None for row, _badge_of in files) else "",
    }
    return answer(request, frame, page, whole="operator/usage_files.html", part="operator/_usage_files.html")


def _store(request: HttpRequest, cluster: Cluster) -> None:
    """Raises FileRefusedError."""
    file = request.FILES.get("file")
    if file is None or not file.size:
        raise FileRefusedError(_("Choose a file that is not empty."))
    kind = request.POST.get("format", FileFormat.SACCT.value)
    if kind not in FileFormat.values:
        raise FileRefusedError(_("Choose by what the file was printed."))
    with transaction.atomic():
        file_imports.store_file(
            cluster=cluster,
            name=(file.name or "usage").replace("\0", "").encode()[:LONGEST_NAME].decode(errors="ignore"),
            kind=FileFormat(kind),
            pieces=file.chunks(PIECE),
            as_of=_as_of(request.POST.get("as_of", ""), cluster),
            by=str(request.user),
            moment=datetime.now(UTC).replace(microsecond=0),
        )
        outbox.add("billing.tasks.files_due")


def _as_of(text: str, cluster: Cluster) -> datetime | None:
    """A local time of the cluster's zone, as a browser sends it; None for nothing. Raises FileRefusedError."""
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise FileRefusedError(_("Enter the time like 2026-04-01T00:00.")) from error
    if not is_in_range(at):
        raise FileRefusedError(_("Enter a time in the years 1971 to 8999."))
    zone = ZoneInfo(cluster.timezone)
    return (at if at.tzinfo else at.replace(tzinfo=zone)).astimezone(UTC).replace(microsecond=0)


def _badge(row: UsageFile) -> Badge:
    if row.error:
        return FAILED
    if row.ended_at is not None:
        return DONE
    return RUNNING if row.started_at is not None else WAITING
