"""What a draft of a plan changes: its prices, terms and budgets beside those of the version in force the day before."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.catalog import line_descriptions
from billing.catalog.meters import titles_of
from billing.catalog.price_words import number_text, price_words, term_words
from billing.models import (
    PlanQuota,
    PlanVersion,
    Price,
    Quota,
    QuotaCredits,
    Settles,
)
from billing.queries.plans import Version, filled
from billing.quotas.status import amount_text, period_text, scope_text
from portal.web import format as say
from portal.web.badges import Badge
from portal.web.budget_form import list_actions, list_credits

SETTLES = {
    Settles.INVOICE: gettext_noop("the period’s invoice"),
    Settles.WALLET: gettext_noop("wallets"),
    Settles.WALLET_FIRST: gettext_noop("the wallet first, then the period’s invoice"),
}


@dataclass(frozen=True, slots=True)
class Difference:
    """One price or term; a text is empty where the version has none such."""

    what: str
    before: str
    after: str

    @property
    def badge(self) -> Badge:
        if not self.before:
            return Badge(label=_("New"), tone="ok")
        return (
            Badge(label=_("Changed"), tone="wait") if self.after else Badge(label=_("Removed"), tone="late")
        )


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The draft beside the version in force; `since` is None where there is none."""

    since: date | None
    differences: Sequence[Difference]
    same: int  # prices and terms that stay as they are


def in_force(*, plan: str, begins: date) -> PlanVersion | None:
    """The version that a draft beginning on that day takes the place of."""
    versions = PlanVersion.objects.filter(plan__name=plan, effective_from__lt=begins)
    return versions.select_related("plan").order_by("-effective_from").first()


def of_same_day(*, plan: str, begins: date) -> PlanVersion | None:
    """The version that publishing a draft that begins on that day replaces, where it is not in use."""
    versions = PlanVersion.objects.filter(plan__name=plan, effective_from=begins)
    return versions.select_related("plan").first()


def compared(before: PlanVersion | None, draft: PlanVersion) -> Compared:
    """Both as the database has them. Twelve queries."""
    rows = [filled(version) for version in (before, draft) if version is not None]
    after = _parts(rows[-1], draft.effective_from)
    earlier = _parts(rows[0], draft.effective_from) if before is not None else {}
    named = {key: what for parts in (earlier, after) for key, (what, _text) in parts.items()}
    both = [
        Difference(what, earlier.get(key, ("", ""))[1], after.get(key, ("", ""))[1])
        for key, what in named.items()
    ]
    changed = [row for row in both if row.before != row.after]
    return Compared(
        since=before.effective_from if before else None, differences=changed, same=len(both) - len(changed)
    )


def _parts(version: Version, on: date) -> Mapping[Hashable, tuple[str, str]]:
    """What each part is called and what it comes to, by what makes it the same in two versions."""
    row = version.row
    parts: dict[Hashable, tuple[str, str]] = {
        "charges": (_("Charged"), charged(row.charges)),
        "currency": (_("Currency"), row.plan.currency),
        "settles": (_("Paid by"), _(SETTLES[Settles(row.plan.settles)])),
    }
    for price in version.prices:
        if price.valid_until is None or price.valid_until > on:
            parts |= _numbered(parts, (price.meter, price.selector), _price(price, on))
    for term in version.terms:
        if term.valid_until is None or term.valid_until > on:
            own = term.tenant.slug if term.tenant else ""
            key = (type(term).__name__, term.name, own)
            text = f"{term_words(term, row.plan.currency)}{_days(term.valid_from, term.valid_until, on)}"
            parts |= _numbered(parts, key, (line_descriptions.whose(term), text))
    for quota in version.quotas:
        parts["quota", quota.name] = (_("Budget {name}").format(name=quota.name), quota_words(quota))
    return parts


def _numbered(
    parts: Mapping[Hashable, object], key: tuple[str, ...], part: tuple[str, str]
) -> Mapping[Hashable, tuple[str, str]]:
    """Prices of the same usage may follow each other."""
    number = 0
    while (*key, number) in parts:
        number += 1
    return {(*key, number): part}


def _price(price: Price, on: date) -> tuple[str, str]:
    what = line_descriptions.describe(price)
    if price.tenant:
        what = _("{price} for {tenant}").format(price=what, tenant=price.tenant.slug)
    return what, f"{price_words(price)}{_days(price.valid_from, price.valid_until, on)}"


def _days(since: date | None, until: date | None, on: date) -> str:
    words = _(", from {day}").format(day=say.day(since)) if since and since > on else ""
    return words + (_(", until {day}").format(day=say.day(until)) if until else "")


def charged(resources: Collection[str]) -> str:
    """`GPU time, CPU time`, as invoices call it; "nothing" where all usage is free."""
    return ", ".join(titles_of(resources).values()) or _("nothing")


def quota_words(row: PlanQuota | Quota) -> str:
    """`$1,000.00, each month, cluster rhea: no new GPU job starts; notices at 80%, 100%`: all that it says."""
    does = dict(list_actions())[row.action]
    if row.watch:
        does = _("{action} (watched, nothing is stopped)").format(action=does)
    of = [amount_text(row.amount, row.unit), period_text(row), scope_text(row)]
    more = _counts_words(row) + _notices_words(row)
    return "; ".join([f"{', '.join(of)}: {does[0].lower()}{does[1:]}", *more])


def _counts_words(row: PlanQuota | Quota) -> list[str]:
    """What is counted and carried otherwise than most do, and how jobs are ended."""
    credit = dict(list_credits())[row.credits]
    words = {
        _("grace of {minutes} minutes").format(minutes=row.grace_minutes): row.grace_minutes,
        _("older jobs end, too"): row.ends_older,
        _("credits: {words}").format(words=f"{credit[0].lower()}{credit[1:]}"): row.credits
        != QuotaCredits.GROSS,
        _("what the tenant pays for others counts"): row.with_paid,
        _("up to {percent} % carries over").format(percent=row.carry_over): row.carry_over,
        _("overdrafts carry over"): row.carry_overdraft,
    }
    sentences = [text for text, holds in words.items() if holds]
    if row.reservation_cap is not None:
        sentences.append(
            _("one job reserves at most {amount}").format(amount=number_text(row.reservation_cap))
        )
    return sentences


def _notices_words(row: PlanQuota | Quota) -> list[str]:
    sentences = [
        _("notices at {thresholds}").format(thresholds=", ".join(row.thresholds))
        if row.thresholds
        else _("no notices of use")
    ]
    if row.forecasts:
        sentences.append(
            _("notices at a forecast of {thresholds}").format(thresholds=", ".join(row.forecasts))
        )
    if row.repeat_every is not None:
        sentences.append(_("and every {amount} beyond").format(amount=number_text(row.repeat_every)))
    return sentences
