"""While an operator looks at a tenant as it sees itself, every write is refused: here, and by the database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import cast

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.translation import gettext as _

from portal.core.tenants import support_views
from portal.core.tenants.access import DeniedError, Right, rights_of
from portal.core.tenants.models import SupportView, Tenant, User
from portal.core.tenants.team import TeamError
from portal.sentences import sentence
from portal.web.access_decorators import answer, operator_page, shown_address
from portal.web.page_frame import PageFrame

KEY = "support_view"  # of the session
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class SupportViews:
    """Finds the view that the session is in, and lets nothing be sent meanwhile but its end and a sign-out."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        number = request.session.get(KEY)
        if number is None or not isinstance(request.user, User):
            return self.get_response(request)
        view = support_views.current_view(number=number, user=request.user, moment=datetime.now(UTC))
        if view is None:
            del request.session[KEY]
            messages.info(request, _("You no longer look at the tenant as it sees itself."))
            return redirect("tenants")
        request.support_view = view  # type: ignore[attr-defined]  # read by pages and the banner
        if request.method not in SAFE and request.path_info not in {
            reverse("end_support_view"),
            reverse("account_logout"),
        }:
            messages.error(
                request,
                _("Nothing was changed: you look at %(tenant)s, and only reading is possible. End it first.")
                % {"tenant": view.tenant.name},
            )
            return redirect(shown_address(request, "Referer"))
        return self.get_response(request)


@operator_page("tenants", acts=Right.READ)
def support_view(request: HttpRequest, frame: PageFrame, *, tenant: str) -> HttpResponse:
    """Asks for the reason, then opens the tenant's overview. For roles that read the history: owners do."""
    if Right.AUDIT not in rights_of(cast("User", request.user)):
        raise DeniedError("the role does not read the history")
    row = get_object_or_404(Tenant, slug=tenant)
    if request.method == "POST":
        reason = request.POST.get("reason", "").replace("\0", "")
        try:
            view = support_views.begin_view(
                tenant=row, user=cast("User", request.user), reason=reason, moment=datetime.now(UTC)
            )
        except TeamError as refusal:
            messages.error(request, sentence(refusal))
            return redirect("support_view", row.slug)
        request.session[KEY] = view.pk
        return redirect("overview", row.slug)
    page = {"tenant": row, "longest": support_views.LONGEST_REASON}
    return answer(request, frame, page, whole="operator/support_view.html")


@operator_page("tenants", acts=Right.READ)
def end_support_view(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    del frame
    view: SupportView | None = getattr(request, "support_view", None)
    if request.method == "POST" and view is not None:
        support_views.end_view(view=view, moment=datetime.now(UTC))
        request.session.pop(KEY, None)
        messages.success(
            request, _("You no longer look at %(tenant)s as it sees itself.") % {"tenant": view.tenant.name}
        )
    return redirect("tenants")
