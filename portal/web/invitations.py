"""The page behind the link of an invitation: join by the account that has the address, or by a new one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from allauth.account.utils import perform_login
from django import forms
from django.contrib import messages
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from portal.core.audit import acting_as
from portal.core.tenants import invitations
from portal.core.tenants.models import Invitation, Role, User
from portal.core.tenants.team import TeamError
from portal.sentences import sentence
from portal.web.team import role_name


class PasswordForm(forms.Form):
    """Chosen twice, and checked as everywhere."""

    password1 = forms.CharField(
        label=gettext_lazy("Password"),
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text=gettext_lazy("At least ten characters."),
    )
    password2 = forms.CharField(
        label=gettext_lazy("Password again"),
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )

    def __init__(self, *args: Any, email: str, **options: Any) -> None:
        super().__init__(*args, **options)
        self.email = email

    def clean(self) -> dict[str, Any]:
        values = super().clean() or self.cleaned_data
        first, second = values.get("password1", ""), values.get("password2", "")
        if first and second and first != second:
            self.add_error("password2", _("These are two different passwords: type the same one twice."))
        elif first:
            try:
                validate_password(first, User(email=self.email))
            except ValidationError as error:
                self.add_error("password1", error)
        return values


@dataclass(frozen=True, kw_only=True)
class InvitationPage:
    """`user` is who is signed in; `form` where a password is chosen."""

    invitation: Invitation
    role: str
    user: str
    is_theirs: bool
    form: PasswordForm | None


@never_cache
@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
def invitation(request: HttpRequest, *, token: str) -> HttpResponse:
    """Anybody's who has the link. One that accepts nothing is answered with 404, and why."""
    moment = datetime.now(UTC)
    row = invitations.of_token(token, moment=moment)
    if row is None:
        return render(request, "invitation_ended.html", status=404)
    user = request.user if isinstance(request.user, User) else None
    form = None
    if user is None and invitations.needs_password(invitations.account_of(row)):
        form = PasswordForm(request.POST or None, email=row.email)
    if request.method == "POST" and (form is None or form.is_valid()):
        return _accept(request, token, row, user, form, moment)
    page = InvitationPage(
        invitation=row,
        role=role_name(Role(row.role)),
        user=user.email if user else "",
        is_theirs=user is not None and user.email == row.email,
        form=form,
    )
    return render(request, "invitation.html", {"page": page})


def _accept(
    request: HttpRequest,
    token: str,
    row: Invitation,
    user: User | None,
    form: PasswordForm | None,
    moment: datetime,
) -> HttpResponse:
    password = form.cleaned_data["password1"] if form is not None else ""
    try:
        with acting_as(row.email, why="accepted an invitation"):
            joined = invitations.accept(token=token, user=user, password=password, moment=moment)
    except TeamError as refusal:
        messages.error(request, sentence(refusal))
        return redirect(request.path)
    messages.success(
        request, _("Welcome! You are a member of %(tenant)s now.") % {"tenant": joined.tenant.name}
    )
    if user is None:
        response: HttpResponse = perform_login(request, joined.user, redirect_url=f"/t/{joined.tenant.slug}/")
        return response
    return redirect("overview", joined.tenant.slug)
