"""What a draft of a plan would have made of months that are over: in all, and for which tenant most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from functools import partial

from django.utils.translation import gettext as _

from billing.catalog.meters import units_of
from billing.queries import plans as reading
from billing.queries.costs import per_currency
from billing.rules.money import Money
from billing.rules.period import shifted
from billing.simulation import what_if
from billing.simulation.what_if import Months, Simulation
from portal.config_file import drafts
from portal.config_file.plan_entries import PlanEntry
from portal.core.tenants.models import Tenant
from portal.excerpt import quoted
from portal.ops.cli import BadInputError
from portal.ops.management.commands.simulate_plan import months_of
from portal.web import format as say
from portal.web.cost_explorer import signed, signed_percent
from portal.web.previews import Progress

AT_ONCE = 200_000  # records that a preview simulates; more is for the command
AT_FIRST = 50_000  # that are simulated before anybody asks for it
IN_FILES = 50_000  # of these at most jobs of dropped months, which are read from files
OWNERS = 20  # tenants that a preview reads files of: some 0.5 s each
LAST_MONTHS = 3
SHOWN = 20  # tenants


@dataclass(frozen=True, kw_only=True)
class TenantEffect:
    """One tenant's months now and under the draft."""

    tenant: str
    now: Sequence[Money]
    draft: Sequence[Money]
    change: str  # "+$840.00"
    percent: str  # "+7.5 %", "" of nothing
    lines: Sequence[tuple[str, Sequence[Money], Sequence[Money]]]
    unpriced: str
    rank: Fraction


@dataclass(frozen=True, kw_only=True)
class Effect:
    since: str = ""  # of the months, as forms write them
    until: str = ""
    tenants: str = ""
    months: str = ""  # "March 2026"; "" where nothing was simulated
    now: Sequence[Money] = ()
    draft: Sequence[Money] = ()
    change: str = ""
    percent: str = ""
    most: str = ""  # the tenant that it changes most for
    rows: Sequence[TenantEffect] = ()
    others: int = 0  # tenants that are not shown
    note: str = ""  # why there is none, or less than all


def effect_of(
    entry: PlanEntry,
    *,
    since: str,
    until: str,
    tenants: str,
    month: tuple[int, int] | None,
    progress: Progress,
) -> Effect:
    """Of these months and tenants, as they were typed. Raises BadInputError where they cannot be, or are too many."""
    inputs = Effect(since=since, until=until, tenants=tenants)
    if month is None and not since:
        return Effect(note=_("No usage yet. The effect is shown after the first full month."))
    months = months_of(since, until or since)
    chosen = _tenants(tenants) or what_if.tenants_on(plan=entry.name, months=months)
    records, in_files, owners = what_if.count_records(tenants=chosen, months=months)
    if records > AT_ONCE:
        raise BadInputError(
            _(
                "These are {count:,} jobs, more than a preview simulates ({most:,}): choose fewer tenants or months, "
                "or save the draft and run simulate_plan FILE.toml --from {since}{until}."
            ).format(count=records, most=AT_ONCE, since=since, until=f" --to {until}" if until else "")
        )
    if in_files > IN_FILES or owners > OWNERS:
        raise BadInputError(
            _(
                "{count:,} jobs of {owners:,} tenants are only in the files of sealed months. A preview reads "
                "{most:,} jobs of {few} tenants from files: choose fewer tenants or months, or save the draft "
                "and run simulate_plan FILE.toml --from {since}{until}."
            ).format(
                count=in_files,
                owners=owners,
                most=IN_FILES,
                few=OWNERS,
                since=since,
                until=f" --to {until}" if until else "",
            )
        )
    return _effect(entry, chosen, months, inputs, progress)


def first_effect(entry: PlanEntry, *, month: tuple[int, int] | None, progress: Progress) -> Effect:
    """Of the last months, as many as can be told at once; of a small, a usual and a large tenant where even one is
    too much."""
    if month is None:
        return effect_of(entry, since="", until="", tenants="", month=None, progress=progress)
    for count in (LAST_MONTHS, 1):
        months = shifted(month, 1 - count), month
        tenants = what_if.tenants_on(plan=entry.name, months=months)
        if _is_small(tenants, months):
            return _effect(entry, tenants, months, _inputs(months), progress)
    return _of_examples(entry, month, progress)


def _of_examples(entry: PlanEntry, month: tuple[int, int], progress: Progress) -> Effect:
    months = (month, month)
    examples = [tenant for _size, tenant in reading.examples(plan=entry.name, month=month)]
    tenants = [tenant for tenant in examples if _is_small([tenant], months)]
    note = _(
        "All tenants have too many jobs to tell before you ask. Shown: a small, a usual and a large one, as far as "
        "they have not."
    )
    inputs = _inputs(months, " ".join(tenant.slug for tenant in tenants))
    if not tenants:
        return Effect(since=inputs.since, note=note)
    return _effect(entry, tenants, months, inputs, progress, note)


def _is_small(tenants: Sequence[Tenant], months: Months) -> bool:
    """Whether it is simulated before anybody asks for it."""
    records, in_files, owners = what_if.count_records(tenants=tenants, months=months)
    return records <= AT_FIRST and in_files <= IN_FILES and owners <= OWNERS


def _inputs(months: Months, tenants: str = "") -> Effect:
    first, last = (f"{year}-{number:02}" for year, number in months)
    return Effect(since=first, until="" if first == last else last, tenants=tenants)


def _tenants(text: str) -> list[Tenant]:
    slugs = text.replace(",", " ").split()
    by_slug = {tenant.slug: tenant for tenant in Tenant.objects.filter(slug__in=slugs)}
    if missing := [slug for slug in slugs if slug not in by_slug]:
        raise BadInputError(_("There is no tenant {slug}.").format(slug=quoted(missing[0])))
    return [by_slug[slug] for slug in sorted(by_slug)]


def _effect(
    entry: PlanEntry,
    tenants: Sequence[Tenant],
    months: Months,
    inputs: Effect,
    progress: Progress,
    note: str = "",
) -> Effect:
    begun = drafts.start_by([entry], date(*months[0], 1))
    trials: list[Simulation] = []
    for start in range(0, len(tenants), what_if.TOGETHER):
        progress(start, len(tenants))
        trials += what_if.simulate_plan(
            tenants=tenants[start : start + what_if.TOGETHER],
            months=months,
            draft=partial(drafts.write, begun),
            most_in_files=IN_FILES,
        )
    units = units_of({resource for trial in trials for resource, _model, _hours in trial.unpriced})
    rows = sorted((_row(trial, units) for trial in trials), key=lambda row: (-row.rank, row.tenant))
    now = per_currency(amount for row in rows for amount in row.now)
    draft = per_currency(amount for row in rows for amount in row.draft)
    change, percent, _rank = _change(now, draft)
    return Effect(
        since=inputs.since,
        until=inputs.until,
        tenants=inputs.tenants,
        months=_named(months),
        now=now,
        draft=draft,
        change=change,
        percent=percent,
        most=rows[0].tenant if rows and rows[0].rank else "",
        rows=rows[:SHOWN],
        others=len(rows[SHOWN:]),
        note=note,
    )


def _named(months: Months) -> str:
    first, last = (f"{date(*month, 1):%B %Y}" for month in months)
    return first if first == last else _("{first} to {last}").format(first=first, last=last)


def _row(trial: Simulation, units: dict[str, str]) -> TenantEffect:
    lines: dict[str, tuple[list[Money], list[Money]]] = {}
    for row in trial.rows:
        now, draft = lines.setdefault(row.line, ([], []))
        now += [row.now] if row.now else []
        draft += [row.tried] if row.tried else []
    change, percent, rank = _change(trial.now, trial.tried)
    return TenantEffect(
        tenant=trial.tenant,
        now=trial.now,
        draft=trial.tried,
        change=change,
        percent=percent,
        lines=[(name, per_currency(now), per_currency(draft)) for name, (now, draft) in lines.items()],
        unpriced=", ".join(
            f"{say.hours(hours * 3600)} {units.get(resource, resource)}{f' ({model})' if model else ''}"
            for resource, model, hours in trial.unpriced
        ),
        rank=rank,
    )


def _change(now: Sequence[Money], draft: Sequence[Money]) -> tuple[str, str, Fraction]:
    """In words, in per cent where both are in one currency, and how large it is to rank by.

    Both are rounded first, so that what is shown adds up.
    """
    before, after = [money.rounded() for money in now], [money.rounded() for money in draft]
    changes = per_currency([*after, *(-money for money in before)])
    currencies = {money.currency for money in (*before, *after)}
    rank = max((abs(money.amount) for money in changes), default=Fraction(0))
    percent = signed_percent(changes[0].amount, before[0].amount) if len(currencies) == 1 and before else ""
    return signed(changes), percent if rank else "", rank
