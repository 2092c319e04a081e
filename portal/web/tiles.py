"""Figures in tiles, and those that an overview shows first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from billing.queries import invoices
from billing.queries.accrued_charges import Accrued
from billing.queries.costs import per_currency
from billing.queries.overview import Elapsed, Overview
from billing.queries.running_now import RunningNow
from billing.rules.money import Money
from portal.web import format as say
from portal.web.access_decorators import TenantRequest
from portal.web.pay_offers import open_offer

MANIFOLD = 10  # a change by more than this many times is no longer shown in per cent


@dataclass(frozen=True, kw_only=True)
class Tile:
    label: str  # "Spend this period"
    value: str  # "$84,366.49"
    note: str  # "vs. $90,021.11 in the same days of October"
    change: str = ""  # "−6.3 %"
    direction: Literal["up", "down", ""] = ""
    href: str = ""  # where the note leads
    help: str = ""  # a key of `HELP`
    offer: Mapping[str, object] | None = None  # how what it shows can be paid now


def _accrued(summary: Overview, accrued: Accrued | None, *, running: bool) -> Tile:
    """Days are kept at first units' prices: what a statement comes to is not compared with them."""
    tile = Tile(label=_("Spend to date") if running else _("Spend"), value=say.sums(summary.spend), note="")
    if accrued is not None:
        note = _("invoice preview") if running else _("fees and discounts included")
        if for_others := per_currency(row.amount for row in accrued.paid):
            whole = say.sums(per_currency([*summary.spend, *for_others]))
            return replace(
                tile,
                value=whole,
                note=_("{note}, {amount} of it for others").format(note=note, amount=say.sums(for_others)),
            )
        return replace(tile, note=note)
    return _compared(
        tile,
        summary,
        summary.spend[0].amount if summary.currency else Fraction(0),
        lambda before: before.amount,
        lambda before: say.money(Money(before.amount, summary.currency)) if summary.currency else "",
        running=running,
    )


def overview_tiles(
    request: TenantRequest, summary: Overview, accrued: Accrued | None, *, running: bool
) -> list[Tile]:
    tiles = [
        _accrued(summary, accrued, running=running),
        _compared(
            Tile(label=_("GPU-hours"), value=say.hours(summary.gpu_seconds), note=""),
            summary,
            summary.gpu_seconds,
            lambda before: before.gpu_seconds,
            lambda before: say.hours(before.gpu_seconds),
            running=running,
        ),
        Tile(label=_("Jobs"), value=say.whole(summary.started), note=_("started in this period")),
    ]
    if running:
        tiles.append(running_tile(request, summary.running))
    if summary.balances:
        tiles.append(_wallets(request, summary.balances))
    if request.frame.invoices and (summary.open.count or not summary.balances):
        tiles.append(_open_invoices(request, summary.open))
    if request.frame.invoices and summary.owed_back.count:
        tiles.append(_owed_back(request, summary.owed_back))
    return tiles


def running_tile(request: TenantRequest, now: RunningNow) -> Tile:
    """What runs of the jobs that the person may see."""
    text = ngettext("{count} GPU", "{count} GPUs", 1 if now.gpus == 1 else 2)
    if request.complete_through:
        text = ngettext(
            "{count} GPU, as of {moment}", "{count} GPUs, as of {moment}", 1 if now.gpus == 1 else 2
        )
    read = say.moment(request.complete_through, request.zone) if request.complete_through else ""
    return Tile(
        label=_("Running now"),
        value=say.counted(now.jobs, "job"),
        note=text.format(count=say.gpu_count(now.gpus), moment=read),
        href=reverse("live", args=[request.tenant.slug]),
    )


def _wallets(request: TenantRequest, balances: Sequence[tuple[str, int, int]]) -> Tile:
    """What is left of what was prepaid."""
    return Tile(
        label=_("Prepaid balance"),
        value=" + ".join(say.minor(balance, unit) for unit, balance, _count in balances),
        note=_("in {wallets}").format(
            wallets=say.counted(sum(count for _unit, _balance, count in balances), "wallet")
        ),
        href=reverse("wallets", args=[request.tenant.slug]),
    )


def _compared(
    tile: Tile,
    summary: Overview,
    now: Fraction,
    value: Callable[[Elapsed], Fraction],
    text: Callable[[Elapsed], str],
    *,
    running: bool,
) -> Tile:
    """The tile with how it compares to the same days of the period before."""
    if summary.before is None or summary.before_period is None or not (shown := text(summary.before)):
        return Tile(label=tile.label, value=tile.value, note=_("nothing earlier to compare with"))
    then, name = value(summary.before), say.period(summary.before_period)
    text_of = _("vs. {shown} in the same days of {period}") if running else _("vs. {shown} in {period}")
    note = text_of.format(shown=shown, period=name)
    return change_of(Tile(label=tile.label, value=tile.value, note=note), now, then)


def change_of(tile: Tile, now: Fraction, then: Fraction) -> Tile:
    """The tile with the change in per cent; none from nothing, or by more than MANIFOLD."""
    difference = now - then
    if not then or abs(difference) > MANIFOLD * then:
        return tile
    text_of = say.percent(abs(difference), then)
    if text_of == "0 %":
        return replace(tile, change="±0 %")
    sign = "+" if difference > 0 else "−"
    return replace(tile, change=f"{sign}{text_of}", direction="up" if difference > 0 else "down")


def _open_invoices(request: TenantRequest, totals: invoices.Open) -> Tile:
    href = reverse("invoices", args=[request.tenant.slug])
    if not totals.count:
        return Tile(label=_("Open invoices"), value=_("None"), note=_("everything is paid"), href=href)
    waiting = totals.count - totals.processing
    if not waiting:
        note = _("{count} being processed").format(count=totals.count)
        return Tile(label=_("Open invoices"), value=say.sums(totals.sums), note=note, href=href)
    text = _("{count} to pay")
    if totals.first_due is not None:
        past = totals.first_due < request.today
        text = (
            _("{count} to pay, the first was due {day}") if past else _("{count} to pay, the first due {day}")
        )
    note = text.format(count=waiting, day=say.day(totals.first_due) if totals.first_due else "")
    if totals.processing:
        note = f"{note}; {_('{count} being processed').format(count=totals.processing)}"
    return Tile(
        label=_("Open invoices"),
        value=say.sums(totals.sums),
        note=note,
        href=href,
        offer=open_offer(request, totals, least=1),
    )


def _owed_back(request: TenantRequest, totals: invoices.OwedBack) -> Tile:
    slug, one = request.tenant.slug, totals.count == 1
    href = reverse("invoice", args=[slug, totals.number]) if one else reverse("invoices", args=[slug])
    note = _("to be paid back to you, from {source}").format(
        source=totals.number if one else say.counted(totals.count, "invoice")
    )
    return Tile(label=_("Owed to you"), value=say.sums(totals.sums), note=note, href=href)
