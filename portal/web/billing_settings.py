"""The billing settings of a tenant: what stands on its invoices, and who gets which e-mails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.emails import contacts
from billing.emails.contacts import ContactError
from billing.invoicing import billing_details
from billing.invoicing.billing_details import DetailsError
from billing.invoicing.details_messages import FIELDS
from billing.models import BillingContact
from billing.models.contacts import TOPICS
from portal.core.tenants.access import Action, Right, rights_of
from portal.core.tenants.models import Tenant, User
from portal.core.tenants.scope import acting_scope
from portal.languages import Language
from portal.sentences import sentence
from portal.web import form_input
from portal.web.access_decorators import TenantRequest, answer, operator_page, tenant_act, tenant_page
from portal.web.form_input import Option, options
from portal.web.page_frame import PageFrame
from portal.web.payment import refused_addresses
from portal.web.recent_proof import require_recent_proof

TOPIC_NAMES: Mapping[str, str] = {
    "invoices": gettext_noop("Invoices"),
    "reminders": gettext_noop("Reminders"),
    "receipts": gettext_noop("Receipts"),
    "budgets": gettext_noop("Budgets"),
}
HINTS: Mapping[str, str] = {
    "email": gettext_noop("E-mails that no contact below gets. Blank: the owners and billing members."),
    "address": gettext_noop("Line by line, without post code and city."),
    "vat_id": gettext_noop(
        "Its form is checked if your country is in the EU. One for reverse charge is entered by the operator."
    ),
    "purchase_order": gettext_noop("On every invoice from the next one on."),
    "buyer_reference": gettext_noop("What you route invoices by; in Germany the Leitweg-ID."),
    "language": gettext_noop("Documents that are issued keep theirs."),
    "electronic_address": gettext_noop("As scheme:identifier, such as 0204:991-01234-44."),
}


@dataclass(frozen=True, kw_only=True)
class DetailField:
    """A field of the form, as somebody typed it last or as it is."""

    name: str
    label: str
    hint: str
    value: str
    longest: int
    choices: Sequence[Option] = ()


@dataclass(frozen=True, kw_only=True)
class BillingSettingsPage:
    tenant: Tenant
    form: str  # where its forms go
    fields: Sequence[DetailField]
    changes: Sequence[tuple[str, str, str]]  # previewed: label, before, after
    changed: Sequence[tuple[str, str]]  # the same by name of the field, with what is saved
    taxes: bool  # these may change taxes
    contacts: Sequence[BillingContact]
    topics: Sequence[tuple[str, str]]
    contact: Mapping[str, str]  # typed into the form of a contact, where it was refused
    refused: Sequence[str]
    manages: bool
    as_operator: bool


@tenant_page(Action.READ_INVOICES, area="billing_settings")
def billing_settings(request: TenantRequest) -> HttpResponse:
    form = reverse("change_billing_settings", args=[request.tenant.slug])
    page = _page(request, request.tenant, form, manages=Action.PAY in request.may)
    return answer(request, request.frame, page, whole="billing_settings.html")


@tenant_act(Action.PAY, proof=True)
def change_billing_settings(request: HttpRequest, tenant: Tenant) -> HttpResponse:
    _change(request, tenant, by_operator=False)
    return redirect("billing_settings", tenant.slug)


@operator_page("tenants", acts=Right.TENANTS)
def operator_billing_settings(request: HttpRequest, frame: PageFrame, *, tenant: str) -> HttpResponse:
    """The same for any tenant, by operators whose role may."""
    owner = get_object_or_404(Tenant, slug=tenant)
    if request.method == "POST":
        require_recent_proof(request)
        _change(request, owner, by_operator=True)
        return redirect("operator_billing_settings", owner.slug)
    manages = isinstance(request.user, User) and Right.TENANTS in rights_of(request.user)
    page = _page(request, owner, request.path, manages=manages, as_operator=True)
    return answer(request, frame, page, whole="billing_settings.html")


def _page(
    request: HttpRequest, tenant: Tenant, form: str, *, manages: bool, as_operator: bool = False
) -> BillingSettingsPage:
    """With what was typed into the form last, and what that would change; four queries."""
    typed = form_input.last(request, form) if manages else {}
    contact, typed = (typed, {}) if typed.get("act") == "contact" else ({}, typed)
    changed = tenant
    if typed:
        try:
            with nullcontext() if as_operator else acting_scope(tenant):  # taxes are the seller's, too
                changed = billing_details.checked(tenant, typed, by_operator=as_operator)
            if not billing_details.describe_changes(tenant, changed):
                messages.info(request, _("Nothing would change."))
        except DetailsError as refusal:
            messages.error(request, sentence(refusal))
    values = {name: typed.get(name, getattr(changed, name)) for name in FIELDS}
    return BillingSettingsPage(
        tenant=tenant,
        form=form,
        fields=[_field(name, values[name]) for name in FIELDS],
        changes=[
            (_(label), _shown(was), _shown(now))
            for label, was, now in billing_details.describe_changes(tenant, changed)
        ],
        changed=[(name, values[name]) for name in FIELDS if getattr(tenant, name) != getattr(changed, name)],
        taxes=billing_details.changes_taxes(tenant, changed),
        contacts=list(BillingContact.objects.filter(tenant=tenant).order_by("email")),
        topics=[(topic, _(TOPIC_NAMES[topic])) for topic in TOPICS],
        contact=contact,
        refused=refused_addresses(tenant),
        manages=manages,
        as_operator=as_operator,
    )


def _field(name: str, value: str) -> DetailField:
    column = Tenant._meta.get_field(name)
    return DetailField(
        name=name,
        label=_(FIELDS[name]),
        hint=_(HINTS[name]) if name in HINTS else "",
        value=value,
        longest=getattr(column, "max_length", None) or 500,
        choices=options(Language.choices, value) if name == "language" else (),
    )


def _shown(value: str) -> str:
    return str(dict(Language.choices).get(value, value))


def _change(request: HttpRequest, tenant: Tenant, *, by_operator: bool) -> None:
    """What the pressed button says; a refusal is told on the page that follows."""
    act, moment = request.POST.get("act", ""), datetime.now(UTC)
    try:
        if act == "contact":
            _set_contact(request, tenant, moment)
        elif act == "save":
            values = {name: request.POST[name] for name in FIELDS if name in request.POST}
            billing_details.set_billing_details(
                tenant=tenant, values=values, moment=moment, by_operator=by_operator
            )
            messages.success(request, _("Billing details saved. Documents say so from the next one on."))
        else:  # the page shows what would change
            form_input.keep(request, *(name for name in FIELDS if name in request.POST))
    except (ContactError, DetailsError) as refusal:
        names = ("act", "email", *TOPICS) if act == "contact" else FIELDS
        form_input.keep(request, *(name for name in names if name in request.POST))
        messages.error(request, sentence(refusal))


def _set_contact(request: HttpRequest, tenant: Tenant, moment: datetime) -> None:
    email = request.POST.get("email", "").replace("\0", "")
    topics = [topic for topic in TOPICS if topic in request.POST]
    row = contacts.set_contact(tenant=tenant, email=email, topics=topics, moment=moment)
    if row is None:
        messages.success(request, _("%(email)s is no contact any more.") % {"email": email.strip()})
        return
    names = ", ".join(_(TOPIC_NAMES[topic]) for topic in row.topics)
    messages.success(request, _("%(email)s gets: %(names)s.") % {"email": row.email, "names": names})
