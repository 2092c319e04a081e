"""Plans of a file, for trying them on what was used: nothing of them is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

from portal.config_file.apply import write_plans
from portal.config_file.schema import ConfigError, File, PlanEntry, PriceEntry
from portal.excerpt import quoted


def draft_of(file: File, name: str) -> list[PlanEntry]:
    """All versions that the file has of the plan. ConfigError where it has none."""
    found = [entry for entry in file.plans if entry.name == name]
    if not found:
        known = ", ".join(sorted({entry.name for entry in file.plans})) or "none"
        raise ConfigError(f"The file has no plan {quoted(name)}; it has: {known}.")
    return found


def the_plan(file: File, name: str) -> str:
    """The name of the plan that is meant: the one asked for, or the only one. ConfigError where several could be."""
    names = sorted({entry.name for entry in file.plans})
    if not name and len(names) > 1:
        raise ConfigError(f"The file has several plans: say with --plan which one, of {', '.join(names)}.")
    return name or (names[0] if names else "")


def begun(entries: Sequence[PlanEntry], first: date) -> list[PlanEntry]:
    """The versions, moved back as they stand to each other, so that the first holds from that day.

    One that holds by then stays where it is.
    """
    back = max(timedelta(0), min(entry.since for entry in entries) - first)
    return [_moved(entry, back) for entry in entries] if back else list(entries)


def write(entries: Sequence[PlanEntry], name: str) -> None:
    """Have a plan of that name be as the versions say. ConfigError, telling the plan as people call it, where not."""
    told = [replace(entry, name=name) for entry in entries]
    try:
        write_plans(told)
    except ConfigError as error:
        raise ConfigError(*(text.replace(name, entries[0].name) for text in error.sentences)) from error


def _moved(entry: PlanEntry, back: timedelta) -> PlanEntry:
    terms = replace(
        entry.terms,
        allowances=[_moved_terms(each, back) for each in entry.terms.allowances],
        fees=[_moved_terms(each, back) for each in entry.terms.fees],
        commitments=[_moved_terms(each, back) for each in entry.terms.commitments],
        discounts=[_moved_terms(each, back) for each in entry.terms.discounts],
    )
    prices = [_moved_price(price, back) for price in entry.prices]
    return replace(entry, since=entry.since - back, prices=prices, terms=terms)


def _moved_price(price: PriceEntry, back: timedelta) -> PriceEntry:
    return replace(price, since=price.since - back, until=price.until - back if price.until else None)


def _moved_terms(said: dict[str, Any], back: timedelta) -> dict[str, Any]:
    moved = {name: said[name] - back for name in ("valid_from", "valid_until") if said[name] is not None}
    return {**said, **moved}
