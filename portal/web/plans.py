"""Plans and their versions: what holds when, and ending or deleting what may be."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from django.contrib import messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect

from billing.catalog import line_descriptions, plans
from billing.catalog.plan_versions import Term
from billing.catalog.plans import PlanError
from billing.models import Allowance, Commitment, Fee, Price, Settles
from billing.queries import plans as reading
from billing.queries.plans import Version, VersionedPlan
from billing.rules.formatting import grouped
from portal.core.outbox import outbox
from portal.web import format as say
from portal.web.access_decorators import answer, operator_page
from portal.web.curves import curve_of, says
from portal.web.shapes import Badge, Fact, PlanPage, PlanRow, PlansPage, PriceLine, Shell, VersionCard

TENANTS = 50  # that a plan's page names
SETTLES = {
    Settles.INVOICE: "the period’s invoice",
    Settles.WALLET: "wallets",
    Settles.WALLET_FIRST: "the period’s invoice, the wallet first",
}


@operator_page("plans")
def plan_list(request: HttpRequest, shell: Shell) -> HttpResponse:
    now = datetime.now(UTC)
    rows = tuple(_row(versioned_plan, now.date()) for versioned_plan in reading.plans(moment=now))
    return answer(request, shell, PlansPage(rows=rows), whole="operator/plans.html")


@operator_page("plans", acts=True)
def plan(request: HttpRequest, shell: Shell, *, name: str) -> HttpResponse:
    now = datetime.now(UTC)
    versioned_plan = next(iter(reading.plans(moment=now, name=name)), None)
    if versioned_plan is None:
        raise Http404("no such plan")
    if request.method == "POST":
        return _act(request, versioned_plan)
    return answer(request, shell, _page(versioned_plan, now), whole="operator/plan.html")


def _act(request: HttpRequest, versioned_plan: VersionedPlan) -> HttpResponse:
    name = versioned_plan.row.name
    try:
        if request.POST.get("act") == "delete":
            plans.delete_plan(plan=versioned_plan.row)
            messages.success(request, f"Plan {name} is deleted.")
            return redirect("operator_plans")
        _end(request, versioned_plan)
    except PlanError as error:
        messages.error(request, str(error))
    return redirect("operator_plan", name)


def _end(request: HttpRequest, versioned_plan: VersionedPlan) -> None:
    prices = {str(price.pk): price for version in versioned_plan.versions for price in version.prices}
    price = prices.get(request.POST.get("price", ""))
    if price is None:
        raise PlanError("There is no such price in this plan.")
    try:
        on = date.fromisoformat(request.POST.get("on", ""))
    except ValueError:
        raise PlanError("Say on which day the price ends, like 2027-01-01.") from None
    if on <= datetime.now(UTC).date():
        raise PlanError(
            f"{say.day(on)} is not ahead: a price ends here on a day from tomorrow on, because one that is past "
            "would rate again what was used since. Where it has to, write `until` in a file and `apply` it."
        )
    with transaction.atomic():
        plans.end_price(price=price, on=on)
        tenants = list(plans.subscribers(versioned_plan.row).values_list("pk", flat=True))
        if tenants:
            outbox.add("billing.tasks.rate_tenants", tenant_ids=tenants)
    messages.success(
        request, f"{line_descriptions.describe(price)} ends on {say.day(on)}; usage is rated again."
    )


def _row(versioned_plan: VersionedPlan, today: date) -> PlanRow:
    holding = _holding(versioned_plan, today)
    return PlanRow(
        name=versioned_plan.row.name,
        currency=versioned_plan.row.currency,
        settles=SETTLES[Settles(versioned_plan.row.settles)],
        versions=say.counted(len(versioned_plan.versions), "version"),
        since=say.day(holding.row.effective_from) if holding else "",
        tenants=say.whole(versioned_plan.now),
        badge=_badge(versioned_plan, today),
    )


def _holding(versioned_plan: VersionedPlan, today: date) -> Version | None:
    begun = [version for version in versioned_plan.versions if version.row.effective_from <= today]
    return begun[-1] if begun else None


def _badge(versioned_plan: VersionedPlan, today: date) -> Badge:
    if versioned_plan.now:
        return Badge(label="In force", tone="ok")
    if versioned_plan.ever:
        return Badge(label="Archived", tone="muted")
    return Badge(label="Nobody on it", tone="wait" if _holding(versioned_plan, today) else "muted")


def _page(versioned_plan: VersionedPlan, now: datetime) -> PlanPage:
    on = reading.subscribers(versioned_plan.row, moment=now, limit=TENANTS)
    row = _row(versioned_plan, now.date())
    return PlanPage(
        name=versioned_plan.row.name,
        badge=row.badge,
        subtitle=f"In {row.currency}, paid by {row.settles}.",
        versions=tuple(
            _card(version, versioned_plan.used_prices, now.date())
            for version in reversed(versioned_plan.versions)
        ),
        tenants=tuple(Fact(label=slug, value=f"since {say.day(since.date())}") for slug, since in on),
        more_tenants=versioned_plan.now - len(on),
        deletable=not versioned_plan.ever,
    )


def _card(version: Version, used: set[int], today: date) -> VersionCard:
    row, until = version.row, version.until
    return VersionCard(
        since=say.day(row.effective_from),
        until=say.day(until) if until else "",
        key=row.effective_from.isoformat(),
        charges=", ".join(row.charges) or "nothing",
        badge=_version_badge(version, today),
        used=version.used,
        prices=tuple(_price(price, price.pk in used, today) for price in version.prices),
        terms=tuple(
            Fact(label=line_descriptions.whose(term), value=_said(term, row.plan.currency))
            for term in version.terms
        ),
        curves=tuple(curve_of(price) for price in version.prices if price.scale),
    )


def _version_badge(version: Version, today: date) -> Badge:
    if version.row.effective_from > today:
        return Badge(label="Begins later", tone="wait")
    if version.until is not None and version.until <= today:
        return Badge(label="Has been", tone="muted")
    return Badge(label="Holds now", tone="ok")


def _price(price: Price, used: bool, today: date) -> PriceLine:
    ended = price.valid_until is not None and price.valid_until <= today
    holds = f"from {say.day(price.valid_from)}"
    if price.valid_until:
        holds = f"{say.day(price.valid_from)} until {say.day(price.valid_until)}"
    first = max(price.valid_from, today) + timedelta(days=1)
    return PriceLine(
        key=price.pk,
        description=line_descriptions.describe(price),
        says=says(price),
        holds=holds,
        tenant=price.tenant.slug if price.tenant else "",
        used=used,
        ends="" if ended else first.isoformat(),
    )


def _said(term: Term, currency: str) -> str:
    """What it comes to per period, and when a tenant's own, or a discount, holds."""
    if isinstance(term, Allowance):
        text = f"{_plain(term.hours)} hours included" + (", what is left rolls over" if term.rollover else "")
    elif isinstance(term, Fee):
        text = say.price(term.amount, currency) + (", in advance" if term.in_advance else "")
    elif isinstance(term, Commitment):
        text = f"at least {say.price(term.amount, currency)}"
        if term.overage_factor != 1:
            text += f", what lies above counts {_plain(term.overage_factor)} times"
    elif term.amount is not None:
        text = f"{say.price(term.amount, currency)} off"
    else:
        text = f"{_plain(term.percent or Decimal(0))} % off"
    begins = f", from {say.day(term.valid_from)}" if term.valid_from else ""
    return text + begins + (f" until {say.day(term.valid_until)}" if term.valid_until else "")


def _plain(number: Decimal) -> str:
    return grouped(f"{number.normalize():f}")
