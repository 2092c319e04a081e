"""What is stored of a person, for that person to take along."""

from __future__ import annotations

from tempfile import SpooledTemporaryFile

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import FileResponse, HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from portal.core.tenants.models import User
from portal.web.recent_proof import require_recent_proof

MOST_JOBS = 200_000
"""A page that takes longer than seconds is cut off; operators have a command."""
IN_MEMORY = 1 << 20  # bytes


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def own_data(request: HttpRequest) -> HttpResponseBase:
    """Said what it is, and written as one file for the person alone."""
    if request.method != "POST":
        return render(request, "own_data.html")
    if not isinstance(request.user, User):
        raise TypeError("only people of ours sign in")
    require_recent_proof(request)
    from portal.ops import person_data  # which few ask for

    parts = person_data.sections(person=request.user)
    if parts[-1].rows[: MOST_JOBS + 1].count() > MOST_JOBS:
        messages.error(request, _("You have too many jobs for this page: ask the operators for your data."))
        return redirect("own_data")
    file = SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 - closed with the response
    person_data.pack(parts, file)
    file.seek(0)
    return FileResponse(file, as_attachment=True, filename="your-data.zip", content_type="application/zip")
