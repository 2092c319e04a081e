"""The people with an operator's role: every operator sees them, admins give and take roles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from portal.core.tenants.access import Right, rights_of
from portal.core.tenants.models import OperatorRole, User
from portal.core.tenants.operators import operators, set_operator_role
from portal.core.tenants.team import TeamError
from portal.sentences import sentence
from portal.web.access_decorators import answer, operator_page
from portal.web.page_frame import PageFrame
from portal.web.recent_proof import require_recent_proof


@dataclass(frozen=True, kw_only=True)
class OperatorsPage:
    people: Sequence[User]
    roles: Sequence[tuple[str, str]]
    gives: bool  # the person may change roles


@operator_page("operators", acts=Right.SETTINGS)
def operator_people(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    if request.method == "POST":
        require_recent_proof(request)
        _change(request)
        return redirect("operator_people")
    gives = Right.SETTINGS in rights_of(cast("User", request.user))
    page = OperatorsPage(
        people=list(operators()),
        roles=[(role.value, _(str(role.label))) for role in OperatorRole],
        gives=gives,
    )
    return answer(request, frame, page, whole="operator/people.html")


def _change(request: HttpRequest) -> None:
    email = request.POST.get("email", "").replace("\0", "")[:300]
    text = request.POST.get("role", "")
    try:
        if request.POST.get("act") != "take" and text not in OperatorRole.values:
            raise TeamError("no-role", role=text[:20], roles=", ".join(OperatorRole.values))
        role = None if request.POST.get("act") == "take" else OperatorRole(text)
        person = set_operator_role(email=email, role=role)
    except TeamError as refusal:
        messages.error(request, sentence(refusal))
        return
    if role is None:
        messages.success(request, _("%(email)s is no operator any more.") % {"email": person.email})
    else:
        values = {"email": person.email, "role": role.value}
        messages.success(request, _("%(email)s has the operator role %(role)s now.") % values)
