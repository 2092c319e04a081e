"""Which periods statements look at: those of corrections and of terms of plans besides their own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from billing.invoicing import payer_statements
from billing.invoicing import statement_rows as rows
from billing.invoicing.close_inputs import RatedPeriod
from billing.invoicing.payer_statements import PayerStatement
from billing.invoicing.statement_inputs import StatementInputs
from billing.invoicing.statement_rows import IssuedLine, UsageParties
from billing.models import BillingPeriod
from billing.rules.statement_lines import TermKind

Touched = Mapping[UsageParties, list[BillingPeriod]]


@dataclass(frozen=True, slots=True)
class Batch:
    """Statements that are made together, by whose use it is, and who pays."""

    books: Mapping[UsageParties, PayerStatement]
    rated: Mapping[int, Sequence[RatedPeriod]]
    supposed: Sequence[BillingPeriod]  # periods that are not kept, and count as if they were
    besides: Sequence[BillingPeriod]  # that are asked for, whether or not they have changed


def load_touched(batches: Sequence[Batch], inputs: StatementInputs) -> tuple[list[Touched], list[IssuedLine]]:
    """Of each batch the periods that are looked at, and the lines of standing invoices in all of them. One query.

    Terms can be given for what is past, as a subscription can begin there: every period in which a term of its plans
    holds is compared. What somebody was billed for another's terms is looked at again, too, since who pays can be told
    late: its lines tell of which periods that is, and are read with the others.
    """
    changed = [_list_changed(batch, inputs) for batch in batches]
    possible = [_list_possible(batch, inputs) for batch in batches]
    lines = rows.load_lines(merged([*changed, *possible]))
    touched = [
        _with_terms(batch, own, listed, lines)
        for batch, own, listed in zip(batches, changed, possible, strict=True)
    ]
    whole = rows.group_by_parties(lines, merged(touched))
    return touched, [line for own in whole.values() for line in own]


def merged(touched: Sequence[Touched]) -> Touched:
    """Of all batches together."""
    periods: dict[UsageParties, list[BillingPeriod]] = defaultdict(list)
    for of_batch in touched:
        for parties, own in of_batch.items():
            periods[parties] += own
    return periods


def _list_changed(batch: Batch, inputs: StatementInputs) -> Touched:
    """What was rated differently since an invoice last covered it, what is asked for besides, and the period itself."""
    changed = {
        parties: _changed_periods(book.period, parties, batch.rated.get(parties.payer, []))
        for parties, book in batch.books.items()
    }
    by_id = {period.pk: period for periods in inputs.calendars.values() for period in periods}
    # Some may have been made since the others were read.
    by_id |= BillingPeriod.objects.in_bulk({pk for ids in changed.values() for pk in ids} - by_id.keys())
    more: dict[int, list[BillingPeriod]] = defaultdict(list)
    for period in batch.besides:
        more[period.tenant_id].append(period)
    return {
        parties: [*(by_id[pk] for pk in changed[parties]), *more[parties.tenant], book.period]
        for parties, book in batch.books.items()
    }


def _changed_periods(period: BillingPeriod, parties: UsageParties, rated: Sequence[RatedPeriod]) -> list[int]:
    """The earlier periods that were rated differently since an invoice last covered them, in order."""
    return [
        rated_period.period
        for rated_period in sorted(rated, key=lambda rated_period: rated_period.start)
        if rated_period.tenant == parties.tenant
        and rated_period.period != period.pk
        and rated_period.has_changed
    ]


def _list_possible(batch: Batch, inputs: StatementInputs) -> Touched:
    """Of those whose plans have terms every period in which one holds, or may have been billed.

    Also the one behind their own where a fee is billed in advance: it begins where that ends.
    """
    possible = {}
    for parties, book in batch.books.items():
        if book.plan_terms is None:
            continue
        last = book.period.end if book.plan_terms.in_advance else book.period.start
        periods = payer_statements.list_with_supposed(parties.tenant, batch.supposed, inputs.calendars)
        possible[parties] = [
            period
            for period in periods
            if period.start <= last and (book.looks_back or book.plan_terms.touches(period.start, period.end))
        ]
    return possible


def _with_terms(batch: Batch, changed: Touched, possible: Touched, lines: Sequence[IssuedLine]) -> Touched:
    """Of who looks back the periods without a term that nothing was billed for are left out again."""
    billed: dict[UsageParties, set[int]] = defaultdict(set)
    for line in lines:
        if line.kind in list(TermKind):
            billed[line.parties].add(line.period)
    touched = dict(changed)
    for parties, periods in possible.items():
        plan_terms = batch.books[parties].plan_terms
        of_terms = [
            period
            for period in periods
            if period.pk in billed[parties] or (plan_terms and plan_terms.touches(period.start, period.end))
        ]
        touched[parties] = [*of_terms, *changed[parties]]  # the last may be supposed by the caller alone
    return touched
