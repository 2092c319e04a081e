"""What became of a close, for programs and as lines for people: `close_period` prints it, the page keeps it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from billing.invoicing.close_results import STUCK, Outcome, TenantClose
from billing.invoicing.period_comparison import Change
from billing.models import DocumentKind
from billing.rules.changes import Moved
from billing.rules.formatting import money_text

KINDS = {
    DocumentKind.INVOICE.value: "Invoice",
    DocumentKind.CREDIT_NOTE.value: "Credit note",
    DocumentKind.CORRECTION.value: "Invoice of corrections",
}
SHOWN = 3  # lines that differ, of each tenant


def to_json(one: TenantClose, *, previewed: bool) -> dict[str, Any]:
    """JSON values, as `close_period --json` prints them."""
    return {
        "tenant": one.tenant,
        "outcome": one.outcome.value,
        "number": None if previewed and one.outcome is Outcome.ISSUED else one.number or None,
        "currency": one.total.currency if one.total else None,
        "total": one.total.text if one.total else None,
        "reason": one.reason or None,
        "note": one.note or None,
        "blocks": [{"code": block.code, "sentence": block.sentence} for block in one.blocks],
        "change": _change(one.change) if one.change else None,
        "related_documents": [
            {
                "kind": other.kind,
                "number": None if previewed else other.number,
                "total": other.total.text,
                "currency": other.total.currency,
                "original": other.original or None,
            }
            for other in one.related_documents
        ],
    }


def to_lines(closed: Sequence[TenantClose], *, previewed: bool) -> list[str]:
    """One for each tenant, with what differs most beneath it, and in the end of a preview who is kept by what."""
    report = [
        line
        for one in closed
        for line in (_format_line(one, previewed=previewed), *_list_changes(one.change))
    ]
    if previewed:
        report += _list_blocks(closed)
    return report or ["There are no tenants yet."]


def _change(change: Change) -> dict[str, Any]:
    return {
        "since": change.since,
        "number": change.number,
        "currency": change.total.before.currency,
        **_change_data(change.total),
        "lines": [
            {"project": project, "description": description, **_change_data(pair)}
            for (project, description), pair in change.lines.items()
        ],
    }


def _change_data(pair: Moved) -> dict[str, Any]:
    return {
        "before": pair.before.text,
        "now": pair.now.text,
        "difference": pair.difference.text,
        "percent": pair.percent or None,
    }


def _format_line(one: TenantClose, *, previewed: bool) -> str:
    outcome = "would be issued" if previewed and one.outcome is Outcome.ISSUED else one.outcome.value
    number = one.number if not (previewed and one.outcome is Outcome.ISSUED) else ""
    words = [f"  {one.tenant}: {outcome}", number, money_text(one.total) if one.total else ""]
    if one.change:
        words.append(f"({_format_change(one.change.total)} on {one.change.since})")
    others = [
        " ".join(
            (KINDS[other.kind], "" if previewed else other.number, "over", money_text(other.total)),
        ).replace("  ", " ")
        + (f" for {other.original}" if other.original else "")
        + "."
        for other in one.related_documents
    ]
    sentences = [sentence for sentence in (*others, one.reason, one.note) if sentence]
    return ". ".join(
        [" ".join(word for word in words if word), *([" ".join(sentences)] if sentences else [])]
    )


def _list_changes(change: Change | None) -> Iterable[str]:
    if change is None:
        return
    for (project, description), pair in list(change.lines.items())[:SHOWN]:
        name = ", ".join(part for part in (project, description) if part)
        yield f"      {name}: {money_text(pair.before)} -> {money_text(pair.now)} ({_format_change(pair)})"
    if len(change.lines) > SHOWN:
        yield f"      and {len(change.lines) - SHOWN} more lines differ"


def _format_change(pair: Moved) -> str:
    """`+$6.00, +300 %`"""
    sign = "+" if pair.difference.amount > 0 else ""
    percent = f", {pair.percent} %" if pair.percent else ""
    return f"{sign}{money_text(pair.difference)}{percent}"


def _list_blocks(closed: Sequence[TenantClose]) -> list[str]:
    """By what is in the way, whom it stops."""
    whom: dict[str, list[str]] = defaultdict(list)
    for one in closed:
        if one.outcome in STUCK:
            for code in [block.code for block in one.blocks] or [one.outcome.value]:
                whom[code].append(one.tenant)
    if not whom:
        return []
    stuck = sum(one.outcome in STUCK for one in closed)
    blockers = [f"  {code}: {', '.join(tenants)}" for code, tenants in sorted(whom.items())]
    return [f"In the way of {stuck} of {len(closed)} tenants:", *blockers]
