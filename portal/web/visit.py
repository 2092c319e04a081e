"""Who opens which page: the way into every tenant and every operator page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import wraps
from typing import Any
from zoneinfo import ZoneInfo

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.cache import patch_cache_control, patch_vary_headers
from django.views.decorators.http import require_http_methods, require_safe

from clusters import usage
from clusters.usage import Mark
from portal.tenants.access import Action, DeniedError, entered, named_tenants_of
from portal.tenants.models import Tenant, User
from portal.tenants.ownership import accounts_of
from portal.tenants.scope import stream_in_scope, tenant_scope
from portal.web.shapes import Area, Shell, TenantLink

Page = Callable[..., HttpResponseBase]
SWITCHER = 20  # tenants that the switcher names; the list of tenants has them all


@dataclass(frozen=True, kw_only=True)
class Visit:
    """One request to a tenant's page."""

    tenant: Tenant
    shell: Shell
    may: frozenset[Action]
    moment: datetime  # the clock, read once
    marks: tuple[Mark, ...]  # of the clusters that the tenant owns an account on now, by name

    @property
    def zone(self) -> ZoneInfo:
        return self.tenant.zone

    @property
    def today(self) -> date:
        return self.moment.astimezone(self.zone).date()

    @property
    def complete_through(self) -> datetime | None:
        """The moment up to which all of these clusters have been read; None where one never was."""
        known = [mark.complete_through for mark in self.marks if mark.complete_through is not None]
        return min(known) if known and len(known) == len(self.marks) else None


TenantView = Callable[..., HttpResponseBase]
"""Takes the request, the visit and what the address holds behind the slug, by name."""


OperatorView = Callable[..., HttpResponse]
"""Takes the request, the shell and what the address holds, by name."""


class ScopedStream(StreamingHttpResponse):
    """An answer whose pieces are made inside the tenant's scope, after the view has returned."""

    def __init__(self, visit: Visit, pieces: Iterable[bytes], **rest: Any) -> None:
        super().__init__(stream_in_scope(visit.tenant, pieces), **rest)


def tenant_page(action: Action, *, area: Area) -> Callable[[TenantView], Page]:
    """The view of a tenant's page, called with the visit in place of the slug, inside the tenant's scope.

    Whoever is not signed in is asked to; whoever may not do `action` gets 404.
    """

    def decorate(view: TenantView) -> Page:
        @require_safe
        @wraps(view)
        def page(request: HttpRequest, *, slug: str, **kwargs: Any) -> HttpResponseBase:
            if not request.user.is_authenticated:
                return _to_sign_in(request)
            visit = _visit(request.user, slug, action, area)
            with tenant_scope(visit.tenant):
                response = view(request, visit, **kwargs)
            if response.streaming and not isinstance(response, ScopedStream):
                raise TypeError("A tenant's answer is streamed inside its scope: see ScopedStream.")
            patch_cache_control(response, private=True, no_store=True)
            return response

        return page

    return decorate


def operator_page(area: Area, *, acts: bool = False) -> Callable[[OperatorView], Page]:
    """The view of an operator's page. Whoever is not signed in is asked to; who is no operator gets 404.

    A page that `acts` is also posted to.
    """

    def decorate(view: OperatorView) -> Page:
        @require_http_methods(["GET", "HEAD", "POST"] if acts else ["GET", "HEAD"])
        @wraps(view)
        def page(request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
            if not request.user.is_authenticated:
                return _to_sign_in(request)
            if not request.user.is_staff:
                raise DeniedError("not an operator")
            response = view(request, shell_of(request.user, area=area), **kwargs)
            patch_cache_control(response, private=True, no_store=True)
            return response

        return page

    return decorate


def answer(request: HttpRequest, shell: Shell, page: object, *, whole: str, part: str = "") -> HttpResponse:
    """The whole page, or its part for a request of htmx."""
    chosen = part if part and request.headers.get("HX-Request") == "true" else whole
    response = render(request, chosen, {"shell": shell, "page": page})
    if part:
        patch_vary_headers(response, ["HX-Request"])
    return response


def shell_of(
    user: User, *, area: Area, tenant: Tenant | None = None, may: frozenset[Action] = frozenset()
) -> Shell:
    """One query."""
    links = [TenantLink(slug=slug, name=name) for slug, name in named_tenants_of(user, limit=SWITCHER + 1)]
    return Shell(
        user=user.get_full_name() or user.email,
        email=user.email,
        operator=user.is_staff,
        tenants=tuple(links[:SWITCHER]),
        more_tenants=len(links) > SWITCHER,
        tenant=TenantLink(slug=tenant.slug, name=tenant.name) if tenant else None,
        invoices=Action.READ_INVOICES in may,
        area=area,
    )


def _to_sign_in(request: HttpRequest) -> HttpResponse:
    """The sign-in page, which leads back. A request of htmx asks for a part: there the whole window goes."""
    if request.headers.get("HX-Request") != "true":
        return redirect_to_login(request.get_full_path())
    shown = re.match(r"https?://[^/?#]+(/[^#]*)", request.headers.get("HX-Current-URL", ""))
    back = shown[1] if shown else reverse("home")
    return HttpResponse(status=401, headers={"HX-Redirect": redirect_to_login(back).url})


def _visit(user: User, slug: str, action: Action, area: Area) -> Visit:
    """Everything that lies outside of the tenant's scope. Four queries."""
    tenant, may = entered(user=user, slug=slug, action=action)
    moment = datetime.now(UTC)
    return Visit(
        tenant=tenant,
        shell=shell_of(user, area=area, tenant=tenant, may=may),
        may=may,
        moment=moment,
        marks=tuple(usage.marks(accounts_of(tenant, at=moment))),
    )
