"""What is stored of a person, for that person to take along."""

from __future__ import annotations

from tempfile import SpooledTemporaryFile

import structlog
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import OperationalError, connection, transaction
from django.http import FileResponse, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods
from psycopg.errors import QueryCanceled

from portal.core import locks
from portal.core.tenants.models import User
from portal.web.recent_proof import require_recent_proof

MOST_ROWS = 200_000
LONGEST_QUERY = "20s"
"""A page that takes longer than seconds is cut off; operators have a command."""
IN_MEMORY = 1 << 20  # bytes

log = structlog.get_logger("portal.web")


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def own_data(request: HttpRequest) -> HttpResponseBase:
    """A page that describes the file; by POST the file, for the person alone."""
    if request.method != "POST":
        return render(request, "own_data.html")
    if not isinstance(request.user, User):
        raise TypeError("only people of ours sign in")
    require_recent_proof(request)
    try:
        with transaction.atomic():
            answer = _file_of(request.user)
    except OperationalError as error:
        if not isinstance(error.__cause__, QueryCanceled):
            raise
        answer = _too_much()
    if isinstance(answer, FileResponse):
        return answer
    messages.error(request, answer)
    return redirect("own_data")


def _file_of(person: User) -> FileResponse | str:
    """Or why there is none."""
    from portal.ops import person_data  # which few ask for

    if not locks.try_hold(locks.Work.EXPORTING, person.pk):
        return _("Your data is being written already: wait for that download.")
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('statement_timeout', %s, true)", [LONGEST_QUERY])
    parts = person_data.sections(person=person)
    if sum(part.rows[: MOST_ROWS + 1].count() for part in parts) > MOST_ROWS:
        return _too_much()
    file = SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 - closed with the response
    counts = person_data.pack(parts, file)
    log.info("a person's data was exported", by=person.pk, person=person.pk, rows=counts)
    file.seek(0)
    return FileResponse(file, as_attachment=True, filename="your-data.zip", content_type="application/zip")


def _too_much() -> str:
    return _("There is too much under your name for this page: ask the operators for your data.")
