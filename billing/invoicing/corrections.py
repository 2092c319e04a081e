"""Where corrections of earlier periods go: on the next invoice, on credit notes, or on an invoice of their own.

What is too much is taken back from the lines that billed it, the newest first, and never more than is
left of them and of their invoice. What was credited by hand before stays credited, and is not given a second time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from django.db.models import QuerySet
from django.utils.translation import gettext as _

from billing.invoicing import line_taxes
from billing.models import InvoiceLine, InvoiceState, LineKind
from billing.rules import tax
from billing.rules.credit import take_back
from billing.rules.money import Money
from billing.rules.tax import Tax, TaxRow
from portal.core.tenants.models import Corrections
from portal.languages import in_language

Key = tuple[int, int, str, int | None, int | None, str, int | None]
"""What a line charges for, of whom, and when; lines of one key correct each other."""


class _IssuedLine(NamedTuple):
    """A standing line, as it was issued."""

    pk: int
    key: Key
    amount: int
    original: int | None
    invoice: int
    tax: Tax


@dataclass(slots=True)
class _Remainder:
    """The standing lines of one key: what is left of each, in minor units, the oldest first."""

    left: dict[int, int] = field(default_factory=dict)
    forgiven: dict[int, int] = field(default_factory=dict)  # what was credited by hand, signs as billed


@dataclass(frozen=True, slots=True)
class BilledLines:
    """What stands of some service periods."""

    lines: Mapping[int, _IssuedLine]
    remainders: Mapping[Key, _Remainder]
    taxes: Mapping[tuple[int, int], Tax]  # of the newest line, by tenant and service period
    invoices: Mapping[int, list[TaxRow]] = field(default_factory=dict)  # what is left of them, by tax

    def left(self, line: int) -> int:
        """What is left to be taken back of a line, in minor units, sign as billed."""
        return self.remainders[self.lines[line].key].left.get(line, 0)

    def covers(self, invoice: int, amounts: Iterable[tuple[Tax, Money]]) -> bool:
        """Whether a credit note of these amounts, below zero, leaves the invoice at nothing or more, with tax."""
        left = self.invoices[invoice]
        rows = [*left, *tax.credited(amounts, left=left)]
        return line_taxes.total_with_tax(rows, left[0].net.currency).amount >= 0

    def tax_of(self, line: InvoiceLine) -> Tax | None:
        """How the line's use was taxed when it was billed; None where it never was."""
        balance = self.remainders.get(line_key(line))
        if balance and balance.left:
            return self.lines[next(reversed(balance.left))].tax
        return self.taxes.get((line.tenant_id, line.service_period_id))


@dataclass(frozen=True, slots=True)
class DividedLines:
    """The lines to bill, by where they go; none of them is saved, nor has it an invoice or a position."""

    lines: list[InvoiceLine]  # the period's invoice
    separate: list[InvoiceLine] = field(default_factory=list)  # an invoice of corrections
    credits: Mapping[int, list[InvoiceLine]] = field(default_factory=dict)  # credit notes, by their invoice

    def __bool__(self) -> bool:
        return bool(self.lines or self.separate or self.credits)


def line_key(line: InvoiceLine) -> Key:
    """What a line is about: lines of the same key correct one another."""
    return (
        line.tenant_id,
        line.service_period_id,
        line.kind,
        line.term_id,
        line.project_id,
        line.meter,
        line.price_id,
    )


def load_corrected_lines(lines: Iterable[InvoiceLine]) -> BilledLines:
    """What stands of the service periods that some of these lines correct. Two queries, none without corrections."""
    correcting = [line for line in lines if line.correction]
    return load_billed_lines(correcting) if correcting else BilledLines({}, {}, {})


def load_billed_lines(lines: Iterable[InvoiceLine]) -> BilledLines:
    """What stands of the service periods of these lines. Two queries."""
    billed = load_remainders(lines)
    return replace(billed, invoices=line_taxes.load_left({line.invoice for line in billed.lines.values()}))


def load_remainders(lines: Iterable[InvoiceLine]) -> BilledLines:
    """As `load_billed_lines`, without what is left of whole invoices, which credit notes need. One query."""
    keys = {(line.tenant_id, line.service_period_id) for line in lines}
    return _replay(
        InvoiceLine.objects.filter(
            tenant__in={tenant for tenant, _ in keys}, service_period__in={period for _, period in keys}
        )
    )


def divide_lines(
    lines: Sequence[InvoiceLine], *, billed: BilledLines, policy: str, currency: str
) -> DividedLines:
    """The lines of one tenant's statement, by the policy of corrections; what they come to stays the same.

    Lines that correct what was billed are taxed as that was.
    """
    own = [line for line in lines if not line.correction]
    debits: list[InvoiceLine] = []
    credit_parts: dict[int, list[InvoiceLine]] = defaultdict(list)
    for line in lines:
        if not line.correction:
            continue
        rest, parts = _split_line(line, billed, currency, whole=policy == Corrections.NEXT_INVOICE)
        debits += [rest] if rest is not None else []
        for part in parts:
            credit_parts[billed.lines[part.original_id or 0].invoice].append(part)
    for invoice, parts in list(credit_parts.items()):
        if policy == Corrections.NEXT_INVOICE or not _is_credit_note(parts, billed, invoice, currency):
            debits += credit_parts.pop(invoice)
    if policy == Corrections.OWN_INVOICE and debits and _is_payable(debits, currency):
        return DividedLines(own, debits, credit_parts)
    return DividedLines(own + debits, [], credit_parts)


def mark_correction(line: InvoiceLine, billed: BilledLines) -> InvoiceLine:
    """As a correction where it takes back what was billed already, be it of its own period."""
    if line.amount >= 0 or line_key(line) not in billed.remainders:
        return line
    reversal = copy(line)
    reversal.correction = True
    return reversal


def drop_excess_credit(lines: list[InvoiceLine], currency: str) -> list[InvoiceLine]:
    """All lines; where they come to less than nothing without those by hand, or else of use alone.

    Use cannot wait: what an invoice covers is not looked at again. Lines by hand and terms of plans are.
    """
    used = [line for line in lines if line.kind in {LineKind.USAGE, LineKind.CREDIT}]
    for some in (lines, [line for line in lines if line.kind != LineKind.MANUAL], used):
        if line_taxes.total_with_tax(line_taxes.sum_taxes(some, currency), currency).amount >= 0:
            return some
    return []


def _is_payable(lines: Sequence[InvoiceLine], currency: str) -> bool:
    """Whether they ask for something before tax, and give nothing back with it: rates may differ between them."""
    sums = line_taxes.sum_taxes(lines, currency)
    net = sum((row.net for row in sums), Money.zero(currency))
    return net.amount > 0 and line_taxes.total_with_tax(sums, currency).amount >= 0


def _is_credit_note(parts: Sequence[InvoiceLine], billed: BilledLines, invoice: int, currency: str) -> bool:
    """Whether they give something back, and no more than is left of their invoice.

    They may: of a minimum of 50.00 less 10 % nothing is owed once use comes late that reaches it, but only 45.00 was
    billed. The use that stands in its place is on the next invoice, and so is then what is taken back for it.
    """
    amounts = [(part.taxed_as, Money.from_minor(part.amount, currency)) for part in parts]
    net = sum(part.amount for part in parts)
    left = sum(row.net.minor for row in billed.invoices[invoice])
    return -left <= net < 0 and billed.covers(invoice, amounts)


def _split_line(
    line: InvoiceLine, billed: BilledLines, currency: str, *, whole: bool
) -> tuple[InvoiceLine | None, list[InvoiceLine]]:
    """What of the line is no credit, and its parts that name the line that they take back from."""
    balance = billed.remainders.get(line_key(line), _Remainder())
    newest = [(pk, Money.from_minor(left, currency)) for pk, left in reversed(balance.left.items())]
    reversal = take_back(Money.from_minor(line.amount, currency), [(pk, -left) for pk, left in newest])
    forgiven = [(pk, Money.from_minor(-part, currency)) for pk, part in reversed(balance.forgiven.items())]
    again = take_back(reversal.excess, forgiven)
    rest = again.excess.minor
    parts = [] if whole else [_make_part(line, pk, part.minor, billed) for pk, part in reversal.parts.items()]
    if whole:
        rest += sum(part.minor for part in reversal.parts.values())
    for pk, part in again.parts.items():
        parts.append(_make_part(line, pk, part.minor, billed))
        with in_language(line.tenant.language):
            parts.append(make_credit_line(line, billed.lines[pk], -part.minor))
    keeps = copy(line) if rest or not parts else None
    if keeps is not None:
        keeps.amount = rest
    for other in parts[:1] if keeps is None else []:
        other.seconds_num, other.seconds_den = line.seconds_num, line.seconds_den
    return keeps, parts


def _make_part(line: InvoiceLine, original: int, amount: int, billed: BilledLines) -> InvoiceLine:
    """An amount of the line, without its seconds, which stand on one part alone."""
    part = line_taxes.set_tax(copy(line), billed.lines[original].tax)
    part.original_id, part.amount = original, amount
    part.seconds_num, part.seconds_den = line.seconds_num * 0, 1
    return part


def credit_text(line: str, *, amount: int, original: int) -> str:
    """What a line by hand is called that takes back a line of that name and amount, or a credit of it."""
    text = _("Credit: {line}") if amount * original < 0 else _("Credited before: {line}")
    return text.format(line=line)


def make_credit_line(line: InvoiceLine, original: _IssuedLine, amount: int) -> InvoiceLine:
    """A line by hand: what is credited beside what was used, or takes such a credit back. It has no quantity.

    In the current language.
    """
    return line_taxes.set_tax(
        InvoiceLine(
            tenant_id=line.tenant_id,
            service_period_id=line.service_period_id,
            kind=LineKind.CREDIT,
            project_id=line.project_id,
            project=line.project,
            description=credit_text(line.description, amount=amount, original=original.amount),
            seconds_num=line.seconds_num * 0,
            seconds_den=1,
            amount=amount,
            correction=line.correction,
            original_id=original.pk,
        ),
        original.tax,
    )


_COLUMNS = (
    *("pk", "tenant", "service_period", "kind", "term_id", "project_id", "meter", "price_id"),
    *("amount", "original", "invoice", "tax_category", "tax_rate"),
)


def _replay(rows: QuerySet[InvoiceLine]) -> BilledLines:
    """In the order in which they were issued; a line below zero without an original takes from the newest."""
    lines: dict[int, _IssuedLine] = {}
    balances: dict[Key, _Remainder] = defaultdict(_Remainder)
    taxes: dict[tuple[int, int], Tax] = {}
    issued_lines = rows.filter(invoice__state=InvoiceState.ISSUED).order_by("pk")
    for pk, *key, amount, original, invoice, category, rate in issued_lines.values_list(*_COLUMNS):
        line = lines[pk] = _IssuedLine(pk, tuple(key), amount, original, invoice, Tax(category, rate))
        if original is None:
            taxes[line.key[0], line.key[1]] = line.tax
            _add_line(balances[line.key].left, line)
        elif original in lines:
            of = balances[lines[original].key]
            of.left[original] += amount
            if line.key[2] == LineKind.CREDIT:
                of.forgiven[original] = of.forgiven.get(original, 0) - amount
    return BilledLines(lines, balances, taxes)


def _add_line(left: dict[int, int], line: _IssuedLine) -> None:
    rest = line.amount
    for pk in reversed(left):
        if rest * left[pk] < 0:
            part = min(abs(rest), abs(left[pk])) * (1 if rest > 0 else -1)
            left[pk] += part
            rest -= part
    left[line.pk] = rest
