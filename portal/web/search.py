"""One search field: for operators over all tenants, in a tenant over what is its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _

from billing.models import Invoice, Payment, Transfer
from billing.queries import search
from billing.queries.search import LONGEST, MOST, Hits, JobHit, UserHit
from portal.core.tenants.access import Action
from portal.core.tenants.models import Tenant, User
from portal.web import format as say
from portal.web.access_decorators import TenantRequest, answer, operator_page, tenant_page
from portal.web.page_frame import PageFrame


@dataclass(frozen=True, slots=True)
class Hit:
    label: str
    href: str
    note: str


@dataclass(frozen=True, slots=True)
class Group:
    """Hits of one kind; `more`: not all of them are shown."""

    title: str
    hits: Sequence[Hit]
    more: bool


@dataclass(frozen=True, slots=True)
class SearchPage:
    text: str
    groups: Sequence[Group]
    hint: str  # what can be searched for
    not_searched: str  # months of which jobs were not


@tenant_page(Action.READ, area="search")
def tenant_search(request: TenantRequest) -> HttpResponse:
    text = _text(request)
    hits = search.of_tenant(request.tenant, text, invoices=Action.READ_INVOICES in request.may)
    hint = _("Job id, or user of the scheduler.")
    if Action.READ_INVOICES in request.may:
        hint = _("Job id, user of the scheduler, invoice number, or reference of a payment.")
    return _answered(request, request.frame, text, hits, hint, named=False)


@operator_page("search")
def operator_search(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    text = _text(request)
    hint = _(
        "Job id, invoice number, tenant, user of the scheduler, e-mail address, or what is written on a bank transfer."
    )
    return _answered(request, frame, text, search.of_everybody(text), hint, named=True)


def _text(request: HttpRequest) -> str:
    return request.GET.get("q", "").replace("\0", "").strip()[:LONGEST]


def _answered(
    request: HttpRequest, frame: PageFrame, text: str, hits: Hits, hint: str, *, named: bool
) -> HttpResponse:
    """The page, or the one thing that has this very number. `named`: each hit says whose it is."""
    may_have_older = hits.jobs and hits.not_searched
    if hits.count == 1 and not may_have_older and (href := _exact(hits, text)):
        return redirect(href)
    groups = (
        _group(_("Jobs"), (_job(hit, named) for hit in hits.jobs)),
        _group(_("Invoices"), (_invoice(row, named) for row in hits.invoices)),
        _group(_("Users"), (_user(hit, named) for hit in hits.users)),
        _group(_("Payments"), map(_payment, hits.payments)),
        _group(_("Tenants"), map(_tenant, hits.tenants)),
        _group(_("People"), (hit for person in hits.people for hit in _person(person))),
        _group(_("Bank transfers"), map(_transfer, hits.transfers)),
    )
    page = SearchPage(text, [group for group in groups if group.hits], hint, hits.not_searched)
    return answer(request, frame, page, whole="search.html")


def _exact(hits: Hits, text: str) -> str:
    """Where the only job or invoice of that number is; "" for anything else."""
    if hits.jobs and hits.jobs[0].row.job_id == text:
        return reverse("job", args=[hits.jobs[0].slug, hits.jobs[0].row.record_id])
    if hits.invoices and (hits.invoices[0].number or "").lower() == text.lower():
        return reverse("invoice", args=[hits.invoices[0].tenant.slug, hits.invoices[0].number])
    return ""


def _group(title: str, hits: Iterable[Hit]) -> Group:
    rows = list(hits)
    return Group(title, rows[:MOST], more=len(rows) > MOST)


def _note(*parts: str) -> str:
    return " · ".join(part for part in parts if part)


def _job(hit: JobHit, named: bool) -> Hit:
    row = hit.row
    moment = say.at_second(row.started or row.submitted, say.UTC_ZONE)
    href = reverse("job", args=[hit.slug, row.record_id])
    owner = hit.tenant if named else ""
    return Hit(row.job_id, href, _note(owner, row.name, row.user, row.cluster, row.state.lower(), moment))


def _invoice(row: Invoice, named: bool) -> Hit:
    owner = row.tenant.name if named else ""
    issued = say.day(row.issued_on) if row.issued_on else ""
    href = reverse("invoice", args=[row.tenant.slug, row.number])
    return Hit(row.number or "", href, _note(owner, say.minor(row.total, row.currency), issued))


def _user(hit: UserHit, named: bool) -> Hit:
    href = f"{reverse('jobs', args=[hit.slug])}?{urlencode({'user': hit.name})}"
    return Hit(hit.name, href, _note(hit.tenant if named else "", _("jobs of this user")))


def _payment(row: Payment) -> Hit:
    invoice = row.invoice
    amount = say.minor(row.amount, invoice.currency)
    href = reverse("invoice", args=[invoice.tenant.slug, invoice.number])
    return Hit(row.reference, href, _note(amount, say.day(row.received_on), invoice.number or ""))


def _tenant(row: Tenant) -> Hit:
    return Hit(row.name, reverse("overview", args=[row.slug]), row.slug)


def _person(person: User) -> list[Hit]:
    """In each of their tenants; who has none is an operator, or waits for one."""
    hits = [
        Hit(person.email, reverse("operator_team", args=[row.tenant.slug]), _note(row.tenant.name, row.role))
        for row in person.memberships.all()
    ]
    if person.operator_role:
        hits.append(Hit(person.email, reverse("operator_people"), _note(_("Operator"), person.operator_role)))
    return hits or [Hit(person.email, reverse("tenants"), _("in no tenant"))]


def _transfer(row: Transfer) -> Hit:
    amount = say.minor(row.amount, row.currency)
    label = row.reference or row.text or row.bank_reference or row.key
    href = reverse("operator_transfer", args=[row.pk])
    return Hit(label[:120], href, _note(amount, row.payer, say.day(row.booked_on), row.get_state_display()))
