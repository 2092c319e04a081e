"""Where people arrive, and the list of tenants."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from portal.core import pagination
from portal.core.tenants.access import tenants_of
from portal.web.access_decorators import answer, frame_of
from portal.web.sign_up import leads_to_sign_up

if TYPE_CHECKING:
    from portal.core.tenants.models import User

PAGE = 100


@login_required
def home(request: HttpRequest) -> HttpResponse:
    """The only tenant; for an operator their home; else the list of tenants.

    People who wait for a sign-up, or belong to no tenant while one can sign up, come to that page.
    """
    user = cast("User", request.user)
    if user.operator_role:
        return redirect("operator_home")
    own_tenants = list(tenants_of(user)[:2])
    if len(own_tenants) < 2 and leads_to_sign_up(user, belongs=bool(own_tenants)):
        return redirect("sign_up")
    return redirect("overview", own_tenants[0].slug) if len(own_tenants) == 1 else redirect("tenants")


@login_required
def tenants(request: HttpRequest) -> HttpResponse:
    user = cast("User", request.user)
    page = pagination.page(tenants_of(user), "slug", after=request.GET.get("after", ""), size=PAGE)
    return answer(request, frame_of(user, area="tenants"), page, whole="tenants.html")
