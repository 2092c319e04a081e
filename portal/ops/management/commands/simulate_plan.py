"""`simulate_plan FILE.toml`: what past months would have cost under a plan of the file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from billing.catalog.meters import units_of
from billing.queries.costs import per_currency
from billing.rules.money import Money, rounded_text
from billing.rules.period import parse_month
from billing.simulation import what_if
from billing.simulation.what_if import Months, Row, Simulation
from portal.config_file import drafts
from portal.config_file.schema import ConfigError, parse
from portal.core.tenants.models import Tenant
from portal.excerpt import quoted
from portal.ops.cli import Answer, BadInputError, OperatorCommand, Progress, instant_text
from portal.ops.management.commands.apply import read
from portal.sentences import sentence

MONTHS = 36  # at most, in one question


class Command(OperatorCommand):
    help = "Simulate a plan on past months: what they would have cost under it. Changes nothing."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE.toml")
        parser.add_argument("--plan", metavar="NAME", default="", help="which one, of several in the file")
        parser.add_argument("--from", dest="since", required=True, metavar="YYYY-MM", help="the first month")
        parser.add_argument("--to", dest="until", metavar="YYYY-MM", help="the last one; --from without it")
        parser.add_argument("--tenant", action="append", metavar="SLUG", help="this tenant; may be repeated")

    def answer(self, **options: Any) -> Answer:
        months = months_of(options["since"], options["until"] or options["since"])
        try:
            file = parse(read(Path(options["file"])))
            name = drafts.plan_name(file, options["plan"])
            entries = drafts.start_by(drafts.draft_of(file, name), date(*months[0], 1))
            tenants = _tenants(options["tenant"], name, months)
            total = what_if.count_records(tenants=tenants, months=months)
            with Progress("Records simulated", total=total.records) as progress:
                trials = what_if.simulate_plan(
                    tenants=tenants,
                    months=months,
                    draft=partial(drafts.write, entries),
                    progress=progress.add,
                )
        except ConfigError as error:
            raise BadInputError(*error.sentences, "Nothing was simulated.") from error
        return Answer(_data(name, months, trials), _text(name, months, trials))


def months_of(since: str, until: str) -> Months:
    """BadInputError for what are no months, for too many, and for a first one after the last."""
    try:
        first, last = parse_month(since), parse_month(until)
    except ValueError as error:
        raise BadInputError(sentence(error)) from error
    count = (last[0] - first[0]) * 12 + last[1] - first[1] + 1
    if not 1 <= count <= MONTHS:
        raise BadInputError(
            f"From {since} to {until} are {count} months; name 1 to {MONTHS}, the earlier one first."
        )
    return first, last


def _tenants(slugs: Sequence[str] | None, plan: str, months: Months) -> list[Tenant]:
    if not slugs:
        return what_if.tenants_on(plan=plan, months=months)
    by_slug = {tenant.slug: tenant for tenant in Tenant.objects.filter(slug__in=slugs)}
    for slug in slugs:
        if slug not in by_slug:
            raise BadInputError(f"There is no tenant {quoted(slug)}.")
    return [by_slug[slug] for slug in sorted(by_slug)]


def _data(plan: str, months: Months, trials: Sequence[Simulation]) -> dict[str, Any]:
    return {
        "plan": plan,
        "from": _month(months[0]),
        "to": _month(months[1]),
        "tenants": [
            {
                "tenant": trial.tenant,
                "now": _sums(trial.now),
                "simulated": _sums(trial.tried),
                "unpriced": [
                    {"resource": resource, "gpu_model": model, "hours": rounded_text(hours, 6)}
                    for resource, model, hours in trial.unpriced
                ],
                "lines": [_line(row) for row in trial.rows],
            }
            for trial in trials
        ],
        "now": _sums(_all(trial.now for trial in trials)),
        "simulated": _sums(_all(trial.tried for trial in trials)),
    }


def _line(row: Row) -> dict[str, Any]:
    currency = (row.now or row.tried or Money.zero("USD")).currency
    now, simulated = (amount.text if amount else None for amount in (row.now, row.tried))
    return {
        "period_start": instant_text(row.period.start),
        "period_end": instant_text(row.period.end),
        "line": row.line,
        "currency": currency,
        "now": now,
        "simulated": simulated,
    }


def _all(sums: Iterable[Sequence[Money]]) -> list[Money]:
    return per_currency(amount for amounts in sums for amount in amounts)


def _sums(amounts: Iterable[Money]) -> dict[str, str]:
    return {amount.currency: amount.text for amount in amounts}


def _month(month: tuple[int, int]) -> str:
    return f"{month[0]}-{month[1]:02}"


def _text(plan: str, months: Months, trials: Sequence[Simulation]) -> str:
    if not trials:
        return "Nobody was on any plan in these months: there is nothing to simulate."
    lines = [
        f"Plan {plan}, simulated for {_month(months[0])} to {_month(months[1])}. Before tax; nothing was changed.",
        "",
    ]
    lines.append(_columns("", "now", "simulated", "difference"))
    for trial in trials:
        lines += _of_tenant(trial)
    total = Simulation("All tenants")
    now, simulated = _all(trial.now for trial in trials), _all(trial.tried for trial in trials)
    lines += _summed(total.tenant, now, simulated)
    return "\n".join(lines)


def _of_tenant(trial: Simulation) -> list[str]:
    lines = _summed(trial.tenant, trial.now, trial.tried)
    sums: dict[str, tuple[list[Money], list[Money]]] = {}
    for row in trial.rows:
        now, simulated = sums.setdefault(row.line, ([], []))
        now += [row.now] if row.now else []
        simulated += [row.tried] if row.tried else []
    for line, (now, simulated) in sums.items():
        lines += _summed(f"  {line}", per_currency(now), per_currency(simulated))
    units = units_of({resource for resource, _model, _hours in trial.unpriced})
    for resource, model, hours in trial.unpriced:
        which = f" ({model})" if model else ""
        unit = units.get(resource, resource)
        shown = rounded_text(Fraction(hours), 2)
        lines.append(f"  No price of the plan covers {shown} {unit}{which}: they are in no sum.")
    return lines


def _summed(name: str, now: Sequence[Money], simulated: Sequence[Money]) -> list[str]:
    sums = [{amount.currency: amount for amount in amounts} for amounts in (now, simulated)]
    lines = []
    for currency in sorted(sums[0].keys() | sums[1].keys()):
        before, after = (by_currency.get(currency, Money.zero(currency)) for by_currency in sums)
        lines.append(
            _columns(name, f"{before.text} {currency}", f"{after.text} {currency}", (after - before).text)
        )
    return lines or [_columns(name, "nothing", "nothing", "")]


def _columns(name: str, *cells: str) -> str:
    return f"{name:<48}" + "".join(f" {cell:>18}" for cell in cells)
