"""Whether issued lines cost what they say, computed again from their frozen prices and terms alone."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

from django.db.models.expressions import RawSQL

from billing.models import Invoice, InvoiceLine, InvoiceState, LineKind
from billing.proof.names import mark
from billing.rules.errors import RuleError
from billing.rules.fees import amount_of
from billing.rules.meters import PerUnit
from billing.rules.money import exponent
from billing.rules.price_shares import recomputed
from billing.rules.statement_lines import TermKind
from portal.sql_files import Statements

sql = Statements(__file__, "line_amounts.sql")


@dataclass(slots=True)
class _Price:
    """All lines of one price in one service period: by project, or together where terms say so."""

    currency: str = ""
    terms: dict[str, Any] = field(default_factory=dict)  # of the newest line that says how it is priced
    unit_price: Decimal | None = (
        None  # of the newest line that has one; a price can come to have tiers, and not to
    )
    amounts: dict[int | None, int] = field(default_factory=lambda: defaultdict(int))
    seconds: dict[int | None, Fraction] = field(default_factory=lambda: defaultdict(Fraction))
    unit_prices: dict[int | None, Decimal | None] = field(default_factory=dict)

    def broken(self) -> Iterator[str]:
        """The projects whose lines do not cost what they hold, nor what any rule makes of what they say."""
        if self.terms:
            whole, billed = sum(self.seconds.values(), Fraction(0)), sum(self.amounts.values())
            try:
                amount = recomputed(self.terms, self.currency).minor
                right = (billed, self.terms["amount"], Fraction(self.terms["of"])) == (amount, amount, whole)
            except (ValueError, ArithmeticError, KeyError):  # no rule makes such terms
                right = False
            if not right:
                yield "all projects"
            return
        for project in self.seconds:
            if self._cost_of(project) != self.amounts[project]:
                yield mark("project", project) if project is not None else "no project"

    def _cost_of(self, project: int | None) -> int | None:
        """Minor units; None where no price is as the lines say. One that they do not say is that of the others."""
        unit_price = self.unit_prices[project]
        if unit_price is None:
            unit_price = self.unit_price or Decimal(0)
        try:
            return PerUnit(unit_price).amount(self.seconds[project], self.currency).rounded().minor
        except RuleError:
            return None


def lines_that_cost_something_else() -> list[str]:
    """One text per place where issued lines together are not their seconds at their price, rounded once.

    Of plain lines, which are most, the database says whether that is so; the others are computed here.
    """
    prices: dict[tuple[int, int, int | None], _Price] = defaultdict(_Price)
    currencies = Invoice.objects.order_by().values_list("currency", flat=True).distinct()
    minor_units = json.dumps({currency: str(10 ** exponent(currency)) for currency in currencies})
    to_compute = RawSQL(sql.TO_COMPUTE % {"minor_units": "%s"}, [minor_units])  # noqa: S611 - a constant statement
    lines = InvoiceLine.objects.filter(
        invoice__state=InvoiceState.ISSUED, kind=LineKind.USAGE, pk__in=to_compute
    ).values_list(
        *(
            "tenant",
            "service_period",
            "project_id",
            "price_id",
            "seconds_num",
            "seconds_den",
            "amount",
            "unit_price",
        ),
        *("terms", "invoice__currency"),
    )
    for payer, period, project, price_id, num, den, amount, unit_price, terms, currency in lines.order_by(
        "pk"
    ):
        price = prices[payer, period, price_id]
        price.currency = currency
        if terms or unit_price is not None:
            price.terms, price.unit_price = terms, unit_price
        price.amounts[project] += amount
        price.seconds[project] += Fraction(int(num), den)
        price.unit_prices[project] = unit_price
    broken = [
        f"{mark('period', period)}, {where}, {mark('price', price_id) if price_id is not None else 'no price'}"
        for (_, period, price_id), price in prices.items()
        for where in price.broken()
    ]
    return broken + _terms_that_come_to_something_else()


def _terms_that_come_to_something_else() -> list[str]:
    """Fees, commitments and discounts whose lines together are not what the newest of them states."""
    sums: dict[tuple[int, int, str, int | None], int] = defaultdict(int)
    newest: dict[tuple[int, int, str, int | None], tuple[dict[str, Any], str, str]] = {}
    lines = InvoiceLine.objects.filter(invoice__state=InvoiceState.ISSUED, kind__in=list(TermKind))
    columns = (
        "tenant",
        "service_period",
        "kind",
        "term_id",
        "amount",
        "terms",
        "invoice__currency",
        "description",
    )
    for payer, period, kind, term, amount, *rest in lines.order_by("pk").values_list(*columns):
        sums[payer, period, kind, term] += amount
        newest[payer, period, kind, term] = rest[0], rest[1], rest[2]
    return [
        f"{mark('period', period)}, {kind} “{description}”"
        for (payer, period, kind, term), (terms, currency, description) in newest.items()
        if sums[payer, period, kind, term] != (amount_of(terms, currency).minor if terms else 0)
    ]
