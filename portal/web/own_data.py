"""What is stored of a person, for that person to take along."""

from __future__ import annotations

from tempfile import SpooledTemporaryFile

import structlog
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import OperationalError, transaction
from django.http import FileResponse, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods
from psycopg.errors import QueryCanceled

from portal.core import locks
from portal.core.tenants.models import User
from portal.core.tenants.scope import limit_queries
from portal.web.recent_proof import require_recent_proof

MOST_ROWS = 200_000
LONGEST_QUERY = "20s"
"""A page that takes longer than seconds is cut off; operators have a command."""
AT_ONCE = 2  # people: the pages of all others are answered meanwhile
IN_MEMORY = 1 << 20  # bytes

log = structlog.get_logger("portal.web")


class NoFileError(Exception):
    """There is none to take along; the message says why, in the language of the page."""


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
            return _file_of(request.user)
    except NoFileError as error:
        messages.error(request, str(error))
        return redirect("own_data")


def _file_of(person: User) -> FileResponse:
    """Raises NoFileError."""
    from portal.ops import person_data  # which few ask for

    if not locks.try_hold(locks.Work.EXPORTING, person.pk):
        raise NoFileError(_("Your data is being written already: wait for that download."))
    if not any(locks.try_hold(locks.Work.EXPORT_PLACE, place) for place in range(AT_ONCE)):
        raise NoFileError(_("Other people's data is being written: try again in a minute."))
    limit_queries(LONGEST_QUERY)
    parts = person_data.of_person(person)
    file = SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 - closed with the response
    try:
        if sum(part.rows[: MOST_ROWS + 1].count() for part in parts) > MOST_ROWS:
            raise NoFileError(
                _("There is too much under your name for this page: ask the operators for your data.")
            )
        counts = person_data.pack(parts, file)
    except OperationalError as error:
        if not isinstance(error.__cause__, QueryCanceled):
            raise
        raise NoFileError(_("Reading your data took too long: ask the operators for it.")) from error
    log.info("a person's data was exported", by=person.pk, person=person.pk, rows=counts)
    file.seek(0)
    return FileResponse(file, as_attachment=True, filename="your-data.zip", content_type="application/zip")
