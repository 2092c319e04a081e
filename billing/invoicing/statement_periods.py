"""Which periods statements look at: those of corrections and of terms of plans besides their own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from billing.invoicing import payer_statements
from billing.invoicing import statement_rows as rows
from billing.invoicing.close_inputs import RatedPeriod
from billing.invoicing.payer_statements import PayerStatement
from billing.invoicing.statement_inputs import StatementInputs
from billing.invoicing.statement_rows import IssuedLine, UsageParties
from billing.models import BillingPeriod, LineKind
from billing.rules.statement_lines import TermKind

Touched = Mapping[UsageParties, list[BillingPeriod]]


@dataclass(frozen=True, slots=True)
class Batch:
    """Statements that are made together, by whose use it is, and who pays."""

    books: Mapping[UsageParties, PayerStatement]
    rated: Mapping[int, Sequence[RatedPeriod]]
    supposed: Sequence[BillingPeriod]  # periods that are not kept, and count as if they were
    besides: Sequence[BillingPeriod]  # that are asked for, whether or not they have changed
    looks_back: bool = True  # at what was billed for terms, whether or not there is one now


def load_touched(batches: Sequence[Batch], inputs: StatementInputs) -> tuple[list[Touched], list[IssuedLine]]:
    """Of each batch the periods that are looked at, and the lines of standing invoices in all of them. One query.

    Terms can be given for what is past, and taken back, as a subscription can begin or end there, and who pays can be
    told late: every period in which a term of its plans holds is compared, and every one that one was billed for. Where
    some of these have no term any more, their lines are read in a second query.
    """
    changed = [_list_changed(batch, inputs) for batch in batches]
    possible = [_list_possible(batch, inputs) for batch in batches]
    lines = rows.load_lines(merged([*changed, *possible]))
    billed = _find_billed_terms(lines)
    # A period's own place is the last: it may be supposed by the caller alone.
    touched: list[Touched] = [
        {
            parties: [*own[parties], *_list_billed(batch, parties, billed, inputs), *listed[parties]]
            for parties in batch.books
        }
        for batch, own, listed in zip(batches, possible, changed, strict=True)
    ]
    read = {period.pk for own in (*changed, *possible) for periods in own.values() for period in periods}
    unread = {
        parties: rest
        for parties, periods in merged(touched).items()
        if (rest := [period for period in periods if period.pk not in read])
    }
    if unread:  # what they hold for terms was read with the others
        lines += [line for line in rows.load_lines(unread) if line.kind == LineKind.USAGE]
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
    """Every period in which a term of the plans holds."""
    return {
        parties: [
            period
            for period in _list_due(batch, parties, inputs)
            if book.plan_terms is not None and book.plan_terms.touches(period.start, period.end)
        ]
        for parties, book in batch.books.items()
    }


def _list_billed(
    batch: Batch, parties: UsageParties, billed: Mapping[UsageParties, set[int]], inputs: StatementInputs
) -> list[BillingPeriod]:
    """Every period of which something is billed for a term."""
    if not (batch.looks_back and billed[parties]):
        return []
    return [period for period in _list_due(batch, parties, inputs) if period.pk in billed[parties]]


def _list_due(batch: Batch, parties: UsageParties, inputs: StatementInputs) -> list[BillingPeriod]:
    """Up to their own; where a fee is billed in advance also the one behind it, which begins where that ends."""
    book = batch.books[parties]
    in_advance = book.plan_terms is not None and book.plan_terms.in_advance
    last = book.period.end if in_advance else book.period.start
    periods = payer_statements.list_with_supposed(parties.tenant, batch.supposed, inputs.calendars)
    return [period for period in periods if period.start <= last]


def _find_billed_terms(lines: Iterable[IssuedLine]) -> Mapping[UsageParties, set[int]]:
    """The periods of which somebody was billed an amount for a term that was not taken back since."""
    sums: dict[tuple[UsageParties, int, str, int | None, str], int] = defaultdict(int)
    for line in lines:
        if line.kind in list(TermKind):
            sums[line.parties, line.period, line.kind, line.term, line.currency] += line.amount
    billed: dict[UsageParties, set[int]] = defaultdict(set)
    for (parties, period, *_), amount in sums.items():
        if amount:
            billed[parties].add(period)
    return billed
