"""A secret that was just made, for the one page that shows it: the session holds it encrypted until then."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest
from django.utils.translation import gettext as _

from portal.core.vault.sealing import Sealed, VaultError, seal


def keep(request: HttpRequest, name: str, secret: str) -> None:
    """Under this name of the session. Raises VaultError without keys, which callers ask for before they make one."""
    request.session[name] = seal(secret).token


def take(request: HttpRequest, name: str) -> str:
    """What was kept, once; "" for nothing. A HEAD takes nothing."""
    if request.method != "GET":
        return ""
    try:
        return Sealed(request.session.pop(name, "")).reveal()
    except VaultError:  # the instance's keys were replaced meanwhile
        messages.error(request, _("The new secret cannot be shown any more: rotate it again."))
        return ""
