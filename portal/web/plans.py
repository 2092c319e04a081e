"""Price plans and their versions; a price can be ended here, and a plan without subscribers deleted."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from django.contrib import messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from billing.catalog import line_descriptions, plans
from billing.catalog.plans import PlanError
from billing.catalog.price_words import price_words, term_words
from billing.catalog.public_plans import set_offer
from billing.models import Plan, Price, Settles
from billing.queries import plans as reading
from billing.queries.plans import Version, VersionedPlan
from billing.rules.meters import PerUnit
from billing.rules.money import Money
from portal.core.audit import acting_as
from portal.core.outbox import outbox
from portal.core.tenants.access import Right
from portal.sentences import sentence
from portal.web import format as say
from portal.web.access_decorators import answer, operator_page
from portal.web.badges import Badge
from portal.web.curves import curve_of
from portal.web.page_frame import PageFrame
from portal.web.plan_difference import SETTLES, quota_words

TENANTS = 50  # that a plan's page names
AMOUNT = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?")  # below LARGEST_PRICE


@operator_page("plans")
def plan_list(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    now = datetime.now(UTC)
    rows = [
        (plan, SETTLES[Settles(plan.row.settles)], _current(plan, now.date()), _badge(plan, now.date()))
        for plan in reading.plans(moment=now)
    ]
    return answer(request, frame, {"rows": rows}, whole="operator/plans.html")


@operator_page("plans", acts=Right.PLANS)
def plan(request: HttpRequest, frame: PageFrame, *, name: str) -> HttpResponse:
    now = datetime.now(UTC)
    versioned_plan = next(iter(reading.plans(moment=now, name=name)), None)
    if versioned_plan is None:
        raise Http404("no such plan")
    if request.method == "POST":
        return _act(request, versioned_plan)
    return answer(request, frame, _page(versioned_plan, now), whole="operator/plan.html")


def _act(request: HttpRequest, versioned_plan: VersionedPlan) -> HttpResponse:
    name = versioned_plan.row.name
    try:
        if request.POST.get("act") == "delete":
            plans.delete_plan(plan=versioned_plan.row)
            messages.success(request, _("Plan {name} deleted.").format(name=name))
            return redirect("operator_plans")
        if request.POST.get("act") == "offer":
            _offer(request, versioned_plan.row)
            return redirect("operator_plan", name)
        (_correct if request.POST.get("act") == "correct" else _end)(request, versioned_plan)
    except PlanError as error:
        messages.error(request, sentence(error))
    return redirect("operator_plan", name)


def _offer(request: HttpRequest, plan: Plan) -> None:
    """Whether people sign up for it, and what they get to begin with."""
    credit = request.POST.get("starting_credit", "").strip() or "0"
    if not AMOUNT.fullmatch(credit):
        raise PlanError(_("Enter the starting credit as a number, like 25.00, or 0 for none."))
    set_offer(plan=plan, public="public" in request.POST, starting_credit=Decimal(credit))
    messages.success(request, _("Saved."))


def _chosen(request: HttpRequest, versioned_plan: VersionedPlan) -> Price:
    prices = {str(price.pk): price for version in versioned_plan.versions for price in version.prices}
    price = prices.get(request.POST.get("price", ""))
    if price is None:
        raise PlanError(_("There is no such price in this plan."))
    return price


def _correct(request: HttpRequest, versioned_plan: VersionedPlan) -> None:
    """Tiers are written in a file: a form has one amount."""
    price = _chosen(request, versioned_plan)
    amount = request.POST.get("amount", "").strip()
    if price.scale:
        raise PlanError(_("This price has tiers or packages: write them in a file with `correction`."))
    if not AMOUNT.fullmatch(amount):
        raise PlanError(_("Enter the price per unit as a number, like 2.50."))
    reason = request.POST.get("reason", "").strip()
    with acting_as(why=reason):
        plans.correct_price(price=price, model=PerUnit(Decimal(amount)), reason=reason)
    messages.success(
        request,
        _(
            "{price} corrected. The next month-end close bills or credits the difference on issued invoices."
        ).format(price=line_descriptions.describe(price)),
    )


def _end(request: HttpRequest, versioned_plan: VersionedPlan) -> None:
    price = _chosen(request, versioned_plan)
    try:
        on = date.fromisoformat(request.POST.get("on", ""))
    except ValueError:
        raise PlanError(_("Enter the day on which the price ends, like 2027-01-01.")) from None
    if on <= datetime.now(UTC).date():
        raise PlanError(
            _(
                "{day} is not in the future: a price can end from tomorrow on. To end it earlier and have past usage "
                "rated again, write `until` in a file and `apply` it."
            ).format(day=say.day(on))
        )
    with transaction.atomic():
        plans.end_price(price=price, on=on)
        tenants = list(plans.subscribers(versioned_plan.row).values_list("pk", flat=True))
        if tenants:
            outbox.add("billing.tasks.rate_tenants", tenant_ids=tenants)
    messages.success(
        request,
        _("{price} ends on {day}; usage is rated again.").format(
            price=line_descriptions.describe(price), day=say.day(on)
        ),
    )


def _current(versioned_plan: VersionedPlan, today: date) -> Version | None:
    begun = [version for version in versioned_plan.versions if version.row.effective_from <= today]
    return begun[-1] if begun else None


def _badge(versioned_plan: VersionedPlan, today: date) -> Badge:
    if versioned_plan.now:
        return Badge(label=_("Active"), tone="ok")
    if versioned_plan.ever:
        return Badge(label=_("Archived"), tone="muted")
    return Badge(label=_("No subscribers"), tone="wait" if _current(versioned_plan, today) else "muted")


def _page(versioned_plan: VersionedPlan, now: datetime) -> dict[str, object]:
    subscribers = reading.subscribers(versioned_plan.row, moment=now, limit=TENANTS)
    return {
        "plan": versioned_plan.row,
        "settles": SETTLES[Settles(versioned_plan.row.settles)],
        "badge": _badge(versioned_plan, now.date()),
        "versions": [
            _version(version, versioned_plan.used_prices, now.date())
            for version in reversed(versioned_plan.versions)
        ],
        "subscribers": subscribers,
        "starting_credit": Money.from_minor(
            versioned_plan.row.starting_credit, versioned_plan.row.currency
        ).text,
        "more_subscribers": versioned_plan.now - len(subscribers),
        "deletable": not versioned_plan.ever,
    }


def _version(version: Version, used: set[int], today: date) -> dict[str, object]:
    currency = version.row.plan.currency
    return {
        "version": version,
        "badge": _version_badge(version, today),
        "prices": [_price(price, price.pk in used, today) for price in version.prices],
        "terms": [
            (line_descriptions.whose(term), term_words(term, currency), term) for term in version.terms
        ],
        "quotas": [(row.name, quota_words(row)) for row in version.quotas],
        "curves": [curve_of(price) for price in version.prices if price.scale],
    }


def _version_badge(version: Version, today: date) -> Badge:
    if version.row.effective_from > today:
        return Badge(label=_("Scheduled"), tone="wait")
    if version.until is not None and version.until <= today:
        return Badge(label=_("Ended"), tone="muted")
    return Badge(label=_("Current"), tone="ok")


def _price(price: Price, used: bool, today: date) -> dict[str, object]:
    """`ends`: the first day on which it may end, as a form writes it; blank where it has ended. `amount` can change."""
    ended = price.valid_until is not None and price.valid_until <= today
    return {
        "price": price,
        "description": line_descriptions.describe(price),
        "text": price_words(price),
        "used": used,
        "amount": f"{price.unit_price.normalize():f}" if used and not price.scale else "",
        "ends": "" if ended else f"{max(price.valid_from, today) + timedelta(days=1)}",
    }
