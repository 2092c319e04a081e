"""Plan and prices of a tenant as it pays them, with what is used of tiers and included units, and the calculator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction

from django.http import HttpResponse
from django.utils.dates import WEEKDAYS_ABBR
from django.utils.translation import gettext as _

from billing.catalog import line_descriptions
from billing.catalog.price_words import price_words, term_words
from billing.models import Allowance, Price, QuotaSetBy, Settles
from billing.models.plans import model_of, priced_meter
from billing.queries import overview as reading
from billing.queries.own_plan import OwnPlan, PlannedPlan, load_own_plan, load_planned_plan
from billing.quotas.quotas import list_quotas
from billing.rules import hours as clock
from billing.rules.fees import Included
from billing.rules.hours import DAY, Hours, HoursZone
from billing.rules.meters import plural
from billing.rules.tiers import Graduated, Package, Tier, Volume
from portal.core.tenants.access import Action
from portal.core.tenants.scope import acting_scope
from portal.web import format as say
from portal.web.access_decorators import TenantRequest, answer, tenant_page
from portal.web.plan_difference import SETTLES, charged, quota_words
from portal.web.quotes import quote_form

WEEK = 7 * DAY
MINUTE = 60


@dataclass(frozen=True, kw_only=True)
class TierRow:
    """One tier and how far the period has filled it."""

    text: str  # "up to 1,000 GPU-hours at $2.21"
    used: str  # "612.50 used"; "" of one that is not reached
    percent: int | None  # of it; None of one without an end
    is_current: bool  # that the next unit falls into


@dataclass(frozen=True, kw_only=True)
class PriceRow:
    what: str
    text: str
    own: bool  # agreed with this tenant alone
    until: date | None
    tiers: Sequence[TierRow]
    clock: str  # by whose the hours are; "" of a price that always holds
    spans: Sequence[
        tuple[int, int]
    ]  # minutes of the week from Monday: where each begins, and how many it has


@dataclass(frozen=True, kw_only=True)
class IncludedRow:
    """An allowance in the running period."""

    name: str
    left: str
    of: str
    carried: str  # of it, from the period before; "" for nothing
    percent: int  # that is used


@tenant_page(Action.READ_ALL, area="plan")
def own_plan(request: TenantRequest) -> HttpResponse:
    with acting_scope(request.tenant):
        around = reading.around(request.tenant, moment=request.moment)
        plan = load_own_plan(
            request.tenant,
            around=around if around and around.period.end > request.moment else None,
            moment=request.moment,
            day=request.today,
        )
        page = _page(plan) if plan else {}
        planned = load_planned_plan(request.tenant, moment=request.moment)
        quotas = list_quotas(request.tenant).filter(set_by=QuotaSetBy.PLAN)
        listed = [(quota.name, quota_words(quota)) for quota in quotas] if plan else []
    form = quote_form(request, plan.prices) if plan else {}
    return answer(
        request,
        request.frame,
        {
            **page,
            **form,
            "quotas": listed,
            "planned": _planned(planned) if planned else None,
            "manages": Action.MANAGE in request.may,
        },
        whole="tenant/plan.html",
    )


def _page(plan: OwnPlan) -> dict[str, object]:
    row = plan.version.plan
    return {
        "plan": row,
        "since": plan.since,
        "settles": _(SETTLES[Settles(row.settles)]),
        "charged": charged(plan.version.charges),
        "prices": [_price(price, plan.use.used.get(price.pk, Fraction(0))) for price in plan.prices],
        "days": [f"{name}" for name in WEEKDAYS_ABBR.values()],
        "included": [_included(*stand) for stand in plan.use.included],
        "terms": [
            (term.name, term_words(term, row.currency), term.tenant_id is not None, term.valid_until)
            for term in plan.terms
        ],
        "is_shared": plan.use.is_shared,
    }


def _planned(planned: PlannedPlan) -> dict[str, object]:
    return {
        "plan": planned.plan,
        "since": planned.since,
        "settles": _(SETTLES[Settles(planned.plan.settles)]),
        "prices": [
            (line_descriptions.describe(price), price_words(price), price.tenant_id is not None)
            for price in planned.prices
        ],
    }


def _price(price: Price, used: Fraction) -> PriceRow:
    hours = clock.of_terms(price.hours)
    return PriceRow(
        what=line_descriptions.describe(price),
        text=_text(price),
        own=price.tenant_id is not None,
        until=price.valid_until,
        tiers=_tiers(price, used),
        clock=_clock(hours) if hours else "",
        spans=spans_of(hours) if hours else (),
    )


def _text(price: Price) -> str:
    """What a unit costs; of tiers, which stand below it, only how they go together."""
    model = model_of(price)
    if not isinstance(model, Graduated | Volume):
        return price_words(price)
    graduated = isinstance(model, Graduated)
    words = _("Each tier at its own price") if graduated else _("All of it at the price of its tier")
    if price.allowance:
        return _("{price}, after “{allowance}”").format(price=words, allowance=price.allowance.name)
    return words


def _tiers(price: Price, used: Fraction) -> list[TierRow]:
    """`used` are resource-seconds of the running period, without what is included."""
    model = model_of(price)
    if isinstance(model, Package):
        return _packages(price, model, used) if used else []
    if isinstance(model, Volume):
        lies_in = model.tier(used)
        return [
            _tier_row(
                price,
                _tier_text(price, tier),
                used if tier is lies_in else Fraction(0),
                tier.end,
                is_current=tier is lies_in,
            )
            for tier in model.tiers
        ]
    return _graduated(price, model.tiers, used) if isinstance(model, Graduated) else []


def _packages(price: Price, model: Package, used: Fraction) -> list[TierRow]:
    size = Fraction(model.size) * 3600
    begun = model.packages(used)
    text = _("{count} packages this period; of the last one").format(count=say.whole(begun))
    return [_tier_row(price, text, used - (begun - 1) * size, size, is_current=True)]


def _graduated(price: Price, tiers: Sequence[Tier], used: Fraction) -> list[TierRow]:
    """Each with what of the use lies in it; the next unit falls into the current one."""
    rows, start = [], Fraction(0)
    for tier in tiers:
        end = tier.end
        within = max(Fraction(0), (used if end is None else min(used, end)) - start)
        is_current = used >= start and (end is None or used < end)
        size = None if end is None else end - start
        rows.append(_tier_row(price, _tier_text(price, tier), within, size, is_current=is_current))
        start = end or start
    return rows


def _tier_row(
    price: Price, text: str, within: Fraction, size: Fraction | None, *, is_current: bool
) -> TierRow:
    unit = _(plural(priced_meter(price).unit))
    used = _("{hours} {unit} used").format(hours=say.hours(within), unit=unit)
    if size is not None:
        used = _("{hours} of {size} {unit} used").format(
            hours=say.hours(within), size=say.hours(size), unit=unit
        )
    percent = None if size is None else int(100 * within / size)
    return TierRow(text=text, used=used if within else "", percent=percent, is_current=is_current)


def _tier_text(price: Price, tier: Tier) -> str:
    amount = say.price(tier.unit_price, price.version.plan.currency)
    if tier.end is None:
        return _("above, at {amount}").format(amount=amount)
    unit = _(plural(priced_meter(price).unit))
    return _("up to {hours} {unit} at {amount}").format(
        hours=say.hours(tier.end).removesuffix(".00"), unit=unit, amount=amount
    )


def _included(row: Allowance, stand: Included) -> IncludedRow:
    used = min(stand.used, stand.available)
    return IncludedRow(
        name=row.name,
        left=say.hours(stand.available - used),
        of=say.hours(stand.available),
        carried=say.hours(stand.carried) if stand.carried else "",
        percent=int(100 * used / stand.available) if stand.available else 100,
    )


def _clock(hours: Hours) -> str:
    return _("by the cluster’s clock") if hours.zone is HoursZone.CLUSTER else _("by your clock")


def spans_of(hours: Hours) -> list[tuple[int, int]]:
    """Where its windows lie in a week of clock time, in minutes from Monday; over Sunday's end in two parts."""
    spans = []
    for window in hours.windows:
        for day in window.days:
            start = day * DAY + window.start
            end = day * DAY + window.end + (DAY if window.end <= window.start else 0)
            spans.append((start, min(end, WEEK)))
            if end > WEEK:
                spans.append((0, end - WEEK))
    return sorted((start // MINUTE, (end - start) // MINUTE) for start, end in spans)
