"""The language in which a person reads the pages."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from portal.core.tenants.models import User
from portal.languages import Language, in_language
from portal.web.form_input import options


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def own_language(request: HttpRequest) -> HttpResponse:
    """Shown, and chosen by the person alone; blank is the browser's."""
    if not isinstance(request.user, User):
        raise TypeError("only people of ours sign in")
    if request.method == "POST":
        language = request.POST.get("language", "")
        if language in {"", *Language.values}:
            request.user.language = language
            request.user.save(update_fields=["language"])
            with in_language(language or request.LANGUAGE_CODE):
                messages.success(request, _("Language saved."))
        return redirect("account_language")
    choices = [("", _("As the browser asks for")), *Language.choices]
    return render(request, "language.html", {"languages": options(choices, request.user.language)})
