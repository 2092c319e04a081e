"""What people are told of a job that may run, or may not: the same on pages, in commands and in the API."""

from __future__ import annotations

from datetime import datetime
from fractions import Fraction
from zoneinfo import ZoneInfo

from django.utils.translation import gettext as _

from billing.admission.check import JobCheck, Need
from billing.admission.wallets import WalletNeed
from billing.models import Quota, QuotaAction
from billing.quotas.status import QuotaStatus, amount_text, period_text, scope_text
from billing.rules.money import Money

KINDS = ("user", "qos", "queue", "account", "project", "gpu_model", "cluster")
"""What a quota is of, the narrowest first."""


def kind_of(quota: Quota) -> str:
    """`user`, `gpu-model` …, the narrowest that its scope names; `tenant` where it counts everything."""
    scope = {name for name in KINDS if name != "project" and getattr(quota, name)}
    scope |= {"project"} if quota.project_id is not None else set()
    return next((name.replace("_", "-") for name in KINDS if name in scope), "tenant")


def ask_text(quota: Quota) -> str:
    """Who can raise it."""
    if quota.cap is not None and quota.amount >= quota.cap:
        return _("the operators of the cluster")
    return _("an owner of {tenant}").format(tenant=quota.tenant.name)


def limit_text(seconds: int) -> str:
    """As schedulers write a time limit: `1-02:30:00`, `5:33:00`."""
    hours, rest = divmod(seconds, 3600)
    days, hours = divmod(hours, 24)
    clock = f"{hours:02}:{rest // 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock.removeprefix("0")


def window_text(status: QuotaStatus, zone: ZoneInfo) -> str:
    """When its next period begins, or that it has none."""
    at = status.resets_at
    if at is not None:
        return _("It resets on {moment}.").format(moment=_moment(at, zone))
    if status.quota.hours:
        return _("It frees what was used {hours} hours ago.").format(hours=status.quota.hours)
    return _("It ends on {moment} and does not reset.").format(moment=_moment(status.figure.window.end, zone))


def answer_text(check: JobCheck) -> str:
    """In one line a quota: yes, or no and why, what would fit and whom to ask; and what others say of it."""
    lines = [_("This job may run.")] if check.may_run else []
    lines += [f"{refusal_text(need)} {way_out_text(need)}" for need in check.refusing]
    lines += [wallet_text(need) for need in check.empty_wallets]
    others = [need for need in check.needs if not need.fits and not need.refuses]
    lines += [other_text(need) for need in others]
    if check.unpriced:
        names = ", ".join(check.unpriced)
        lines.append(_("No price covers {resources}, so its full cost is not known.").format(resources=names))
    return "\n".join(lines)


def other_text(need: Need) -> str:
    """Of a budget that the job does not fit, and that lets it run."""
    quota = need.status.quota
    notifies = quota.action == QuotaAction.NOTIFY or quota.watch
    text = _("Notifies only: {refusal}") if notifies else _("Does not stop this job: {refusal}")
    return text.format(refusal=refusal_text(need))


def refusal_text(need: Need) -> str:
    """Which budget, how it stands, and what the job needs of it."""
    return _("{standing}; this job needs up to {needs}.").format(
        standing=standing_text(need.status), needs=need.status.text(need.reserves)
    )


def blocked_text(one: QuotaStatus) -> str:
    """Of a budget that blocks accounts: how it stands, when it resets, and whom to ask; for users of the scheduler."""
    if one.quota.wallet_id is not None:
        return _("Its wallet is {amount} below zero: top it up.").format(amount=one.text(one.figure.used))
    ask = _("Ask {whom} to raise it.").format(whom=ask_text(one.quota))
    return f"{standing_text(one)}. {window_text(one, one.quota.tenant.zone)} {ask}"


def standing_text(one: QuotaStatus) -> str:
    """Which budget, and how it stands."""
    return _(
        "Budget {name} ({scope}, {period}): {used} of {amount} used{reserved}{pool}, {left} left"
    ).format(
        reserved=_reserved(one),
        pool=_pool(one),
        name=one.quota.name,
        scope=scope_text(one.quota),
        period=period_text(one.quota),
        used=one.text(one.figure.used),
        amount=one.text(one.amount),
        left=one.text(max(one.left, Fraction(0))),
    )


def _reserved(one: QuotaStatus) -> str:
    """Of other jobs; nothing where none has any."""
    if not one.figure.reserved:
        return ""
    return _(", {reserved} reserved").format(reserved=one.text(one.figure.reserved))


def _pool(one: QuotaStatus) -> str:
    """What it may use of its pool, with what it has used of it; nothing without one."""
    if one.quota.borrows_from is None:
        return ""
    amount = one.text(one.figure.borrowable - one.figure.promised)
    return _(", up to {amount} more of pool {pool}").format(amount=amount, pool=one.quota.borrows_from.name)


def wallet_text(need: WalletNeed) -> str:
    """Of a wallet that the job does not fit: what it has, what the job needs, and what would fit."""
    unit = need.wallet.unit
    text = _("Wallet of {wallet}: {left} may still be spent; this job needs up to {needs}.").format(
        wallet=need.wallet,
        left=amount_text(Money.from_minor(max(need.free, 0), unit).amount, unit),
        needs=amount_text(Money.from_minor(need.amount, unit).amount, unit),
    )
    if need.longest:
        fits = _("A time limit of {limit} fits.").format(limit=limit_text(need.longest))
    else:
        fits = _("No time limit fits.")
    return " ".join([text, fits, _("To run it, top the wallet up.")])


def way_out_text(need: Need) -> str:
    """What would fit, when there is more, and whom to ask for it."""
    one = need.status
    if need.blocks:
        fits = _("It still blocks the account.")
    elif need.longest:
        fits = _("A time limit of {limit} fits.").format(limit=limit_text(need.longest))
    else:
        fits = _("No time limit fits.")
    ask = _("Ask {whom} to raise it.").format(whom=ask_text(one.quota))
    return f"{fits} {window_text(one, one.quota.tenant.zone)} {ask}"


def _moment(at: datetime, zone: ZoneInfo) -> str:
    return f"{at.astimezone(zone):%Y-%m-%d %H:%M %Z}"
