"""Where people arrive, and the list of tenants."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from portal.core.tenants.access import tenants_of
from portal.web.access_decorators import answer, shell_of
from portal.web.shapes import TenantRow, TenantsPage

if TYPE_CHECKING:
    from portal.core.tenants.models import User

PAGE = 100


@login_required
def home(request: HttpRequest) -> HttpResponse:
    """The only tenant; for an operator the clusters; else the list of tenants."""
    user = cast("User", request.user)
    if user.is_staff:
        return redirect("operator_clusters")
    own_tenants = list(tenants_of(user)[:2])
    return redirect("overview", own_tenants[0].slug) if len(own_tenants) == 1 else redirect("tenants")


@login_required
def tenants(request: HttpRequest) -> HttpResponse:
    user = cast("User", request.user)
    page = _page(user, request.GET.get("after", "").replace("\0", ""))
    return answer(request, shell_of(user, area="tenants"), page, whole="tenants.html")


def _page(user: User, after: str) -> TenantsPage:
    own_tenants = tenants_of(user).order_by("slug")
    rows = list((own_tenants.filter(slug__gt=after) if after else own_tenants)[: PAGE + 1])
    return TenantsPage(
        rows=tuple(TenantRow(slug=row.slug, name=row.name, timezone=row.timezone) for row in rows[:PAGE]),
        more=f"?after={rows[PAGE - 1].slug}" if len(rows) > PAGE else "",
    )
