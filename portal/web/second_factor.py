"""Whether a person has a second factor, where operators or a tenant require one."""

from __future__ import annotations

from allauth.mfa.models import Authenticator
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _

from portal.core.tenants.models import Tenant, User


def has_second_factor(user: User) -> bool:
    """An authenticator app, a passkey or a security key. One query."""
    kinds = [Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN]
    return bool(Authenticator.objects.filter(user_id=user.pk, type__in=kinds).exists())


def lacks_second_factor(user: User, tenant: Tenant) -> bool:
    """Whether the tenant wants its members to have one, and the person does not. One query where it wants that.

    Operators who look in are asked for one by the setting of operators.
    """
    return tenant.second_factor and not user.operator_role and not has_second_factor(user)


def to_second_factor(request: HttpRequest, why: str) -> HttpResponse:
    """The page that sets one up, which says why."""
    messages.warning(
        request, _("%(why)s Set up an authenticator app or a passkey, then go on.") % {"why": why}
    )
    address = reverse("mfa_index")
    if request.headers.get("HX-Request") == "true":
        return HttpResponse(status=401, headers={"HX-Redirect": address})
    return redirect(address)
