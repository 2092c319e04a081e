"""Keys of the REST API: made, rotated and revoked by owners for their tenant, and by operators for themselves."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import Any, cast

from django import forms
from django.contrib import messages
from django.db.models import F, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from clusters.models import Cluster
from portal.api import keys
from portal.api.keys import KeyRefusedError, NewKey
from portal.api.models import ApiKey
from portal.api.scopes import CLUSTER_SCOPES, OPERATOR_SCOPES, TENANT_SCOPES
from portal.core.tenants.access import Action, Right
from portal.core.tenants.models import Tenant, User
from portal.core.tenants.scope import acting_scope
from portal.core.vault.sealing import lacking
from portal.days import check_day
from portal.sentences import NO_CHOICE, sentence
from portal.web import form_input, secret_once
from portal.web.access_decorators import TenantRequest, operator_page, tenant_act, tenant_page
from portal.web.page_frame import PageFrame
from portal.web.recent_proof import require_recent_proof

SECRET = "new_api_key"  # noqa: S105 - where the session holds it, encrypted, until a page has shown it
SHOWN = 200
PROOF = frozenset({"create", "rotate"})  # what shows a secret
OVERLAP = timedelta(hours=24)
SCOPES = forms.CheckboxSelectMultiple(attrs={"class": "form-check-input"})


class KeyForm(forms.Form):
    """`expires_on` is the first day on which the key is not valid, in UTC."""

    name = forms.CharField(
        label=_("Name"), max_length=100, help_text=_("What uses the key, such as: finance export.")
    )
    scopes = forms.MultipleChoiceField(label=_("Scopes"), widget=SCOPES, error_messages=NO_CHOICE)
    project = forms.ChoiceField(label=_("Project"), required=False, error_messages=NO_CHOICE)
    cluster = forms.ChoiceField(
        label=_("Cluster"),
        required=False,
        error_messages=NO_CHOICE,
        help_text=_(
            "Of a key with jobs:check, which asks whether jobs of this cluster may run, or jobs:reserve, which "
            "reserves for them; such a key does nothing else."
        ),
    )
    expires_on = forms.DateField(
        label=_("Expires on"),
        required=False,
        widget=forms.DateInput(attrs={"type": "date"}),
        validators=[check_day],
        help_text=_("Blank: never."),
    )
    is_service = forms.BooleanField(
        label=_("Service key"), required=False, help_text=_("Stays valid when you leave the tenant.")
    )

    def __init__(self, *args: Any, tenant: Tenant | None, **options: Any) -> None:
        super().__init__(*args, **options)
        scopes = (*OPERATOR_SCOPES, *CLUSTER_SCOPES) if tenant is None else tuple(TENANT_SCOPES)
        cast("forms.MultipleChoiceField", self.fields["scopes"]).choices = [
            (scope, scope) for scope in scopes
        ]
        if tenant is None:
            del self.fields["project"], self.fields["is_service"]
            clusters = Cluster.objects.order_by("name").values_list("name", flat=True)
            cast("forms.ChoiceField", self.fields["cluster"]).choices = [
                ("", _("None")),
                *((name, name) for name in clusters),
            ]
        else:
            del self.fields["cluster"]
            names = tenant.projects.order_by("name").values_list("name", flat=True)
            choices = [("", _("All projects")), *((name, name) for name in names)]
            cast("forms.ChoiceField", self.fields["project"]).choices = choices


@tenant_page(Action.MANAGE, area="api_keys")
def api_keys(request: TenantRequest) -> HttpResponse:
    with acting_scope(request.tenant):  # the pages of a tenant may not read its keys
        form = reverse("change_api_keys", args=[request.tenant.slug])
        return _page(request, request.frame, request.tenant, form)


@tenant_act(Action.MANAGE, proof=PROOF)
def change_api_keys(request: HttpRequest, tenant: Tenant) -> HttpResponse:
    _change(request, tenant)
    return redirect("api_keys", tenant.slug)


@operator_page("api_keys", acts=Right.READ)
def operator_api_keys(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    if request.method == "POST":
        if request.POST.get("act") in PROOF:
            require_recent_proof(request)
        _change(request, None)
        return redirect("operator_api_keys")
    return _page(request, frame, None, request.path)


def _page(request: HttpRequest, frame: PageFrame, tenant: Tenant | None, form: str) -> HttpResponse:
    """`form` is where its form goes, which shows what was typed into it last."""
    typed = form_input.last(request, form)
    secret = secret_once.take(request, SECRET)
    page = {
        "keys": _keys(tenant)[:SHOWN],
        "form": KeyForm(initial={**typed, "scopes": typed.get("scopes", "").split()}, tenant=tenant),
        "secret": secret,
        "moment": datetime.now(UTC),
        "zone": tenant.zone if tenant else UTC,
        "tenant": tenant,
    }
    return render(request, "api_keys.html", {"frame": frame, "page": page})


def _keys(tenant: Tenant | None) -> QuerySet[ApiKey]:
    rows = (
        ApiKey.objects.filter(tenant=tenant)
        .annotate(creator=F("maker__email"))
        .select_related("project", "cluster")
    )
    return rows.order_by(F("revoked_at").desc(nulls_first=True), "-pk")


def _change(request: HttpRequest, tenant: Tenant | None) -> None:
    """What the pressed button says; a refusal is told on the page that follows."""
    moment = datetime.now(UTC)
    try:
        if (why := lacking()) and request.POST.get("act") in {"create", "rotate"}:
            raise KeyRefusedError(why)  # what nobody could show must not be made
        if request.POST.get("act") == "create":
            new = _create(request, tenant, moment)
            secret_once.keep(request, SECRET, new.secret)
            return
        key = _keys(tenant).filter(pk=_number(request.POST.get("key", ""))).first()
        if key is None:
            raise Http404("no such key")
        if request.POST.get("act") == "rotate":
            new = keys.rotate(key=key, by=cast("User", request.user), overlap=OVERLAP, moment=moment)
            secret_once.keep(request, SECRET, new.secret)
        else:
            keys.revoke(key=key, moment=moment)
            messages.success(request, _("%(name)s is revoked.") % {"name": key.name})
    except KeyRefusedError as refusal:
        if request.POST.get("act") == "create":
            form_input.keep(request, *KeyForm.base_fields)
        messages.error(request, sentence(refusal))


def _create(request: HttpRequest, tenant: Tenant | None, moment: datetime) -> NewKey:
    form = KeyForm(request.POST, tenant=tenant)
    if not form.is_valid():
        raise KeyRefusedError(
            " ".join(f"{form[name].label}: {errors[0]}" for name, errors in form.errors.items())
        )
    values = form.cleaned_data
    ends = values["expires_on"]
    return keys.make(
        maker=cast("User", request.user),
        tenant=tenant,
        name=values["name"],
        scopes=values["scopes"],
        moment=moment,
        expires_at=datetime.combine(ends, time.min, UTC) if ends else None,
        project=tenant.projects.get(name=values["project"]) if tenant and values["project"] else None,
        cluster=Cluster.objects.get(name=values["cluster"]) if values.get("cluster") else None,
        is_service=values.get("is_service", False),
    )


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 19 else 0
