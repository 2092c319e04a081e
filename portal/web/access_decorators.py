"""Who opens which page: the way into every tenant and every operator page."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import wraps
from typing import Any, cast
from zoneinfo import ZoneInfo

from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.db import InternalError
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    HttpResponseNotAllowed,
    StreamingHttpResponse,
)
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.cache import patch_cache_control, patch_vary_headers
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_safe
from psycopg.errors import ReadOnlySqlTransaction

from clusters.month_file_fetches import with_files
from clusters.usage import Mark
from portal.core import replica
from portal.core.tenants.access import (
    ALLOWED,
    Action,
    DeniedError,
    Right,
    entered,
    entered_among,
    rights_of,
    tenants_of,
)
from portal.core.tenants.models import Role, Tenant, User
from portal.core.tenants.scope import acting_scope, stream_in_scope, tenant_scope
from portal.prepared import prepared_cursor
from portal.sql_files import Statements
from portal.web.page_frame import Area, PageFrame, TenantLink
from portal.web.read_only import read_only
from portal.web.recent_proof import require_recent_proof
from portal.web.second_factor import lacks_second_factor, to_second_factor
from portal.web.settings_area import tabs

sql = Statements(__file__, "access_decorators.sql")

Page = Callable[..., HttpResponseBase]
Proof = bool | Collection[str] | Callable[[HttpRequest, Tenant], bool]
"""What needs a recent proof: all of it or nothing, these buttons (`act`), or what a function says of what was sent."""
SWITCHER = 20  # tenants that the switcher names; the list of tenants has them all


class TenantRequest(HttpRequest):
    """A request for a tenant's page, by somebody who may open it: what `tenant_page` adds to Django's."""

    tenant: Tenant
    frame: PageFrame
    may: frozenset[Action]
    moment: datetime  # the clock, read once
    zone: ZoneInfo  # the tenant's
    today: date  # in it
    marks: Sequence[Mark]  # of the clusters that the tenant owns an account on now, by name
    complete_through: datetime | None  # up to which all of these have been read; None where one never was


TenantView = Callable[..., HttpResponseBase]
"""Takes the tenant's request and what the address holds behind the slug, by name."""


OperatorView = Callable[..., HttpResponseBase]
"""Takes the request, the frame and what the address holds, by name."""


class ScopedStream(StreamingHttpResponse):
    """An answer whose pieces are made inside the tenant's scope, after the view has returned."""

    def __init__(self, tenant: Tenant, pieces: Iterable[bytes], **rest: Any) -> None:
        super().__init__(replica.streamed(stream_in_scope(tenant, pieces)), **rest)


def tenant_page(action: Action, *, area: Area) -> Callable[[TenantView], Page]:
    """The view of a tenant's page, called with a TenantRequest and without the slug, inside the tenant's scope.

    Whoever is not signed in is asked to; whoever may not do `action` gets 404. What is computed by plans that tenants
    may not read, the view computes in an `acting_scope`.
    """

    def decorate(view: TenantView) -> Page:
        @require_safe
        @wraps(view)
        def page(request: HttpRequest, *, slug: str, **kwargs: Any) -> HttpResponseBase:
            if not request.user.is_authenticated:
                return to_sign_in(request)
            try:
                with _as_operators_look(request):
                    tenant_request = _admit(request, slug, action, area)
                    if lacks_second_factor(request.user, tenant_request.tenant):
                        return to_second_factor(request, _needs(tenant_request.tenant))

                    def shown() -> HttpResponseBase:
                        with tenant_scope(tenant_request.tenant):
                            return view(tenant_request, **kwargs)

                    person = request.user.pk
                    response = with_files(lambda: replica.read(shown, person=person))
            except InternalError as error:
                if not isinstance(error.__cause__, ReadOnlySqlTransaction):
                    raise
                messages.error(
                    request, _("This cannot be computed while you look: it writes, and takes it back.")
                )
                return redirect("overview", slug)
            if response.streaming and not isinstance(response, ScopedStream):
                raise TypeError("A tenant's answer is streamed inside its scope: see ScopedStream.")
            patch_cache_control(response, private=True, no_store=True)
            return response

        return page

    return decorate


def _as_operators_look(request: HttpRequest) -> AbstractContextManager[None]:
    """Nothing is written while an operator looks at a tenant as it sees itself."""
    return read_only() if getattr(request, "support_view", None) is not None else nullcontext()


def _entered(
    request: HttpRequest, slug: str, action: Action
) -> tuple[Tenant, frozenset[Action], Sequence[tuple[str, str]], bool]:
    """The tenant, what is shown of it, those beside it, and whether an operator looks at it as its owner sees it."""
    user, looking = cast("User", request.user), getattr(request, "support_view", None)
    if looking is None or looking.tenant.slug != slug:
        return *entered_among(user=user, slug=slug, action=action, most=SWITCHER + 1), False
    tenant, _staff = entered(user=user, slug=slug, action=Action.READ)
    return tenant, ALLOWED[Role.OWNER], [(tenant.slug, tenant.name)], True


def _admit(request: HttpRequest, slug: str, action: Action, area: Area) -> TenantRequest:
    """The request with all that the tenant's pages may not read themselves. Two queries."""
    user = cast("User", request.user)
    tenant, may, named, as_owner = _entered(request, slug, action)
    moment = datetime.now(UTC)
    with acting_scope(tenant):
        marks, wallets = _clusters(tenant, moment)
    admitted = cast("TenantRequest", request)
    admitted.tenant, admitted.may, admitted.marks = tenant, may, marks
    admitted.moment, admitted.zone = moment, tenant.zone
    admitted.today = moment.astimezone(tenant.zone).date()
    moments = [mark.complete_through for mark in marks if mark.complete_through]
    admitted.complete_through = min(moments) if moments and len(moments) == len(marks) else None
    admitted.frame = replace(
        _frame(user, named, area),
        tenant=TenantLink(slug=tenant.slug, name=tenant.name),
        invoices=Action.READ_INVOICES in may,
        everybody=Action.READ_ALL in may,
        tabs=tabs(slug=tenant.slug, area=area, may=may),
        wallets=wallets,
    )
    if as_owner:
        admitted.frame = replace(admitted.frame, operator=False, audits=False, rights=frozenset())
    return admitted


def _clusters(tenant: Tenant, moment: datetime) -> tuple[list[Mark], bool]:
    """How far the tenant's clusters are read, and whether it has, or had, wallets."""
    with prepared_cursor() as cursor:
        cursor.execute(sql.CLUSTERS, {"tenant": tenant.pk, "moment": moment})
        rows = cursor.fetchall()
    return [Mark(name, through) for _, name, through in rows if name is not None], rows[0][0]


def tenant_act(action: Action, *, proof: Proof = False) -> Callable[[Callable[..., HttpResponse]], Page]:
    """The view of something done in a tenant: posted to, called with the tenant in place of the slug.

    In the scope of acting, which sees and writes this tenant's rows; no transaction is open, so it may call a gateway.
    For what `proof` says, who signed in some time ago first proves again who they are.
    """
    return _outside(action, ("POST",), proof=proof)


def tenant_return(action: Action) -> Callable[[Callable[..., HttpResponse]], Page]:
    """As `tenant_act`, for an address that somebody else's page leads back to."""
    return _outside(action, ("GET", "HEAD"))


def _needs(tenant: Tenant) -> str:
    return _("%(tenant)s asks its members for a second factor.") % {"tenant": tenant.name}


def _outside(
    action: Action, methods: tuple[str, ...], *, proof: Proof = False
) -> Callable[[Callable[..., HttpResponse]], Page]:
    def decorate(view: Callable[..., HttpResponse]) -> Page:
        @wraps(view)
        def act(request: HttpRequest, *, slug: str, **kwargs: Any) -> HttpResponseBase:
            if not request.user.is_authenticated:
                return to_sign_in(request)
            tenant, _may = entered(user=request.user, slug=slug, action=action)
            if request.method not in methods:
                return HttpResponseNotAllowed(methods)
            if getattr(request, "support_view", None) is not None:  # what leads back from a gateway writes
                raise DeniedError("an operator looks, and changes nothing")
            if lacks_second_factor(request.user, tenant):
                return to_second_factor(request, _needs(tenant))
            if _needs_proof(proof, request, tenant):
                require_recent_proof(request)
            with acting_scope(tenant):
                response = view(request, tenant, **kwargs)
            if request.method in replica.READS:
                replica.remember_change(request.user.pk)  # of what a gateway said meanwhile
            patch_cache_control(response, private=True, no_store=True)
            return response

        return act

    return decorate


def _needs_proof(proof: Proof, request: HttpRequest, tenant: Tenant) -> bool:
    if isinstance(proof, bool):
        return proof
    return proof(request, tenant) if callable(proof) else request.POST.get("act") in proof


def operator_page(area: Area, *, acts: Right | None = None) -> Callable[[OperatorView], Page]:
    """The view of an operator's page. Whoever is not signed in is asked to; who is no operator gets 404.

    A page that `acts` is also posted to, by those whose role has that right: the others are told and see the page.
    """

    def decorate(view: OperatorView) -> Page:
        @require_http_methods(["GET", "HEAD", "POST"] if acts is not None else ["GET", "HEAD"])
        @wraps(view)
        def page(request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
            if not request.user.is_authenticated:
                return to_sign_in(request)
            rights = rights_of(request.user)
            if Right.READ not in rights:
                raise DeniedError("not an operator")
            if request.method == "POST" and acts not in rights:
                messages.error(request, _("Your role does not allow this. Nothing was changed."))
                return redirect(request.get_full_path())
            frame = frame_of(request.user, area=area)
            if request.method == "POST":
                response = view(request, frame, **kwargs)
            else:

                def shown() -> HttpResponseBase:
                    return view(request, frame, **kwargs)

                person = request.user.pk
                response = with_files(lambda: replica.read(shown, person=person))
            patch_cache_control(response, private=True, no_store=True)
            return response

        return page

    return decorate


def answer(
    request: HttpRequest, frame: PageFrame, page: object, *, whole: str, part: str = ""
) -> HttpResponse:
    """The whole page, or its part for a request of htmx."""
    chosen = part if part and request.headers.get("HX-Request") == "true" else whole
    response = render(request, chosen, {"frame": frame, "page": page})
    if part:
        patch_vary_headers(response, ["HX-Request"])
    return response


def frame_of(user: User, *, area: Area) -> PageFrame:
    """Of a page outside of any tenant. One query."""
    return _frame(user, tenants_of(user).values_list("slug", "name")[: SWITCHER + 1], area)


def _frame(user: User, named: Iterable[tuple[str, str]], area: Area) -> PageFrame:
    """`named`: slug and name of the tenants that the person may open, one more than the switcher names."""
    rights = rights_of(user)
    links = [TenantLink(slug=slug, name=name) for slug, name in named]
    return PageFrame(
        user=user.get_full_name() or user.email,
        email=user.email,
        operator=bool(user.operator_role),
        audits=Right.AUDIT in rights,
        rights=frozenset(right.name.lower() for right in rights),
        tenants=tuple(links[:SWITCHER]),
        more_tenants=len(links) > SWITCHER,
        tenant=None,
        area=area,
    )


def to_sign_in(request: HttpRequest) -> HttpResponse:
    """The sign-in page, which leads back. A request of htmx asks for a part: there the whole window goes.

    From a form it leads back to the form: what was sent is not done, and its address may open no page.
    """
    if request.headers.get("HX-Request") != "true":
        if request.method in {"GET", "HEAD"}:
            return redirect_to_login(request.get_full_path())
        messages.warning(
            request, _("You had been signed out, and nothing was done: sign in, then send it again.")
        )
        return redirect_to_login(shown_address(request, "Referer"))
    back = shown_address(request, "HX-Current-URL")
    return HttpResponse(status=401, headers={"HX-Redirect": redirect_to_login(back).url})


def shown_address(request: HttpRequest, header: str) -> str:
    """The page of ours that the header says is in the window; the start where it says none."""
    match = re.match(r"https?://[^/?#]+(/[^#]*)", request.headers.get(header, ""))
    return match[1] if match else reverse("home")
