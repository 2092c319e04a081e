"""Who opens which page: the way into every tenant and every operator page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial, wraps
from typing import Any
from zoneinfo import ZoneInfo

from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    HttpResponseNotAllowed,
    StreamingHttpResponse,
)
from django.shortcuts import render
from django.urls import reverse
from django.utils.cache import patch_cache_control, patch_vary_headers
from django.views.decorators.http import require_http_methods, require_safe

from clusters import usage
from clusters.usage import Mark
from portal.core.tenants.access import Action, DeniedError, entered, entered_among, named_tenants_of
from portal.core.tenants.asking import Ask, together
from portal.core.tenants.models import Tenant, User
from portal.core.tenants.ownership import ask_accounts
from portal.core.tenants.scope import acting_scope, asking_scope, stream_in_scope, tenant_scope
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
        moments = [mark.complete_through for mark in self.marks if mark.complete_through is not None]
        return min(moments) if moments and len(moments) == len(self.marks) else None


TenantView = Callable[..., HttpResponseBase]
"""Takes the request, the visit and what the address holds behind the slug, by name."""


OperatorView = Callable[..., HttpResponse]
"""Takes the request, the shell and what the address holds, by name."""


class ScopedStream(StreamingHttpResponse):
    """An answer whose pieces are made inside the tenant's scope, after the view has returned."""

    def __init__(self, visit: Visit, pieces: Iterable[bytes], **rest: Any) -> None:
        super().__init__(stream_in_scope(visit.tenant, pieces), **rest)


AskedBeside = Callable[[HttpRequest, Tenant, datetime], Sequence[Ask[Any]]]
"""What a page asks of a tenant at a moment."""


def tenant_page(
    action: Action,
    *,
    area: Area,
    extra_queries: AskedBeside | None = None,
    outside: Callable[..., Any] | None = None,
    at_once: bool = False,
) -> Callable[[TenantView], Page]:
    """The view of a tenant's page, called with the visit in place of the slug, inside the tenant's scope.

    Whoever is not signed in is asked to; whoever may not do `action` gets 404. `outside` is called before that
    scope is entered, in the one of acting, and the view with what it gives as `told`: what is computed by plans that
    tenants may not read is computed there. It takes the request, the visit and the answers to `beside`, asked along
    with what the visit needs. A page that asks all it needs `at_once`, or nearly, takes the scope for each question
    instead of for a transaction.
    """
    scope = asking_scope if at_once else tenant_scope

    def decorate(view: TenantView) -> Page:
        @require_safe
        @wraps(view)
        def page(request: HttpRequest, *, slug: str, **kwargs: Any) -> HttpResponseBase:
            if not request.user.is_authenticated:
                return _to_sign_in(request)
            asks = partial(extra_queries, request) if extra_queries is not None else None
            visit, answers = _visit(request.user, slug, action, area, asks)
            if outside is not None:
                with acting_scope(visit.tenant):
                    kwargs["told"] = outside(request, visit, *answers)
            with scope(visit.tenant):
                response = view(request, visit, **kwargs)
            if response.streaming and not isinstance(response, ScopedStream):
                raise TypeError("A tenant's answer is streamed inside its scope: see ScopedStream.")
            patch_cache_control(response, private=True, no_store=True)
            return response

        return page

    return decorate


def tenant_act(action: Action) -> Callable[[Callable[..., HttpResponse]], Page]:
    """The view of something done in a tenant: posted to, called with the tenant in place of the slug.

    In the scope of acting, which sees and writes this tenant's rows; no transaction is open, so it may call a gateway.
    """
    return _outside(action, ("POST",))


def tenant_return(action: Action) -> Callable[[Callable[..., HttpResponse]], Page]:
    """As `tenant_act`, for an address that somebody else's page leads back to."""
    return _outside(action, ("GET", "HEAD"))


def _outside(action: Action, methods: tuple[str, ...]) -> Callable[[Callable[..., HttpResponse]], Page]:
    def decorate(view: Callable[..., HttpResponse]) -> Page:
        @wraps(view)
        def act(request: HttpRequest, *, slug: str, **kwargs: Any) -> HttpResponseBase:
            if not request.user.is_authenticated:
                return _to_sign_in(request)
            tenant, _ = entered(user=request.user, slug=slug, action=action)
            if request.method not in methods:
                return HttpResponseNotAllowed(methods)
            with acting_scope(tenant):
                response = view(request, tenant, **kwargs)
            patch_cache_control(response, private=True, no_store=True)
            return response

        return act

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


def shell_of(user: User, *, area: Area) -> Shell:
    """Of a page outside of any tenant. One query."""
    return _shell(user, area, named_tenants_of(user, limit=SWITCHER + 1))


def _shell(
    user: User,
    area: Area,
    named: Iterable[tuple[str, str]],
    tenant: Tenant | None = None,
    may: frozenset[Action] = frozenset(),
    *,
    wallets: bool = False,
) -> Shell:
    links = [TenantLink(slug=slug, name=name) for slug, name in named]
    return Shell(
        user=user.get_full_name() or user.email,
        email=user.email,
        operator=user.is_staff,
        tenants=tuple(links[:SWITCHER]),
        more_tenants=len(links) > SWITCHER,
        tenant=TenantLink(slug=tenant.slug, name=tenant.name) if tenant else None,
        invoices=Action.READ_INVOICES in may,
        wallets=wallets,
        area=area,
    )


def _to_sign_in(request: HttpRequest) -> HttpResponse:
    """The sign-in page, which leads back. A request of htmx asks for a part: there the whole window goes.

    From a form it leads back to the form: what was sent is not done, and its address may open no page.
    """
    if request.headers.get("HX-Request") != "true":
        if request.method in {"GET", "HEAD"}:
            return redirect_to_login(request.get_full_path())
        messages.warning(
            request, "You had been signed out, and nothing was done: sign in, then send it again."
        )
        return redirect_to_login(_shown(request, "Referer"))
    back = _shown(request, "HX-Current-URL")
    return HttpResponse(status=401, headers={"HX-Redirect": redirect_to_login(back).url})


def _shown(request: HttpRequest, header: str) -> str:
    """The page of ours that the header says is in the window; the start where it says none."""
    match = re.match(r"https?://[^/?#]+(/[^#]*)", request.headers.get(header, ""))
    return match[1] if match else reverse("home")


_WALLETS = "SELECT EXISTS (SELECT FROM billing_walletscheme WHERE tenant_id = %s)"


def _visit(
    user: User,
    slug: str,
    action: Action,
    area: Area,
    extra_queries: Callable[[Tenant, datetime], Sequence[Ask[Any]]] | None,
) -> tuple[Visit, Sequence[object]]:
    """Everything that the tenant's pages may not read, and the answers to `beside`. Two round trips."""
    moment = datetime.now(UTC)
    owned = ask_accounts(slug, at=moment)
    (tenant, may), named, accounts = entered_among(
        user=user, slug=slug, action=action, limit=SWITCHER + 1, beside=owned
    )
    marks = Ask(usage.MARKS, [accounts], lambda rows: tuple(Mark(*row) for row in rows), kept=True)
    wallets = Ask(_WALLETS, [tenant.pk], lambda rows: bool(rows[0][0]), kept=True)
    asks = extra_queries(tenant, moment) if extra_queries else ()
    with acting_scope(tenant):
        together(marks, wallets, *asks)
    visit = Visit(
        tenant=tenant,
        shell=_shell(user, area, named, tenant, may, wallets=wallets.answer),
        may=may,
        moment=moment,
        marks=marks.answer,
    )
    return visit, [ask.answer for ask in asks]
