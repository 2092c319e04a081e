"""What the database says of issued lines, and what is computed of each of them alone, find the same."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection

from billing.models import Invoice, InvoiceLine
from billing.proof import line_amounts
from billing.rules.meters import PerUnit
from billing.rules.money import exponent
from billing.rules.price_shares import shared
from tests.builders import a_cluster, a_job, a_plan, a_tenant, ingest
from tests.owner import as_owner
from tests.stories import closed

pytestmark = pytest.mark.django_db

CURRENCIES = ("USD", "JPY", "KWD", "CLF")
PRICES = ("0", "0.01", "0.000000000001", "1", "1.37", "2", "3.6", "0.333333333333", "987654.5")
SECONDS = (0, 1, 5, 9, 1_800, 5_400, 3_600, 86_400, 31_557_601)
COPY = """
INSERT INTO billing_invoice
SELECT (jsonb_populate_record(i, jsonb_build_object('id', nextval('billing_invoice_id_seq'), 'currency', c,
                                                    'number', i.number || c, 'kind', 'correction'))).*
FROM billing_invoice i, unnest(%s::text[]) AS c
"""


@pytest.fixture
def line() -> InvoiceLine:
    """An issued line, and a document without lines in each currency; from here on no law keeps lines as they were."""
    cluster = a_cluster(complete_through="2026-04-01")
    lab = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(started="2026-03-02 10:00:00", ended="2026-03-02 10:00:09"))
    closed("2026-03", lab)
    with as_owner() as owner:
        owner.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for table in ("billing_invoice", "billing_invoiceline"):
            owner.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        owner.execute(COPY, [list(CURRENCIES)])
    return InvoiceLine.objects.get()


@contextmanager
def each_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        every = "SELECT id FROM billing_invoiceline WHERE %(minor_units)s <> ''"
        patch.setattr(line_amounts, "sql", SimpleNamespace(TO_COMPUTE=every))
        yield


Part = tuple[int, int, Decimal | None]
"""Seconds as numerator and denominator, and the price that a line says."""


def minor(seconds: Fraction, unit_price: Decimal, currency: str) -> int:
    return PerUnit(unit_price).amount(seconds, currency).rounded().minor


def half(unit_price: Decimal, currency: str) -> Fraction:
    """Seconds that cost exactly half of the smallest coin."""
    return Fraction(1_800) / Fraction(unit_price) / Fraction(10 ** exponent(currency))


def errors(parts: list[Part], amount: int, currency: str) -> list[int]:
    """What somebody makes up who is near, or takes one price, one denominator or one currency for that of all."""
    whole = sum((Fraction(num, den) for num, den, _ in parts), Fraction(0))
    prices = [price for _, _, price in parts if price is not None] or [Decimal(0)]
    dens = [den for _, den, _ in parts]
    total = sum(num for num, _, _ in parts)
    return [
        *(amount + off for off in (-1, 1)),
        *(minor(whole, price, currency) for price in (min(prices), max(prices))),
        *(minor(Fraction(total, den), prices[-1], currency) for den in (min(dens), max(dens))),
        minor(whole, prices[-1], "USD"),
        sum(minor(Fraction(num, den), prices[-1], currency) for num, den, _ in parts),
    ]


class Lines:
    """Lines of one price after the other, of a few projects, as documents could have brought them; some are wrong."""

    def __init__(self, pattern: InvoiceLine, seed: int) -> None:
        self.dice = random.Random(seed)
        self.invoices = dict(Invoice.objects.order_by("pk").values_list("currency", "pk"))
        self.pattern = {
            field.attname: getattr(pattern, field.attname) for field in InvoiceLine._meta.concrete_fields
        }
        self.rows: list[InvoiceLine] = []

    def of_a_price(self, price: int) -> None:
        dice, currency = self.dice, self.dice.choice(CURRENCIES)
        seconds: dict[int, Fraction] = {}
        billed: dict[int, int] = {}
        unit_price = Decimal(dice.choice(PRICES))
        for project in range(1, dice.choice((2, 2, 2, 3, 4))):
            unit_price = dice.choice((unit_price, unit_price, Decimal(dice.choice(PRICES))))
            parts = [self.a_part(unit_price) for _ in range(dice.choice((1, 1, 2, 3)))]
            if unit_price and dice.random() < 0.2:
                parts = [(*half(unit_price, currency).as_integer_ratio(), unit_price)]
            if len(parts) > 1 and dice.random() < 0.3:  # a corrected price, for all that is billed
                unit_price = Decimal(dice.choice(PRICES))
                parts.append((0, 1, dice.choice((unit_price, unit_price, None))))
            whole = sum((Fraction(num, den) for num, den, _ in parts), Fraction(0))
            amount = minor(whole, unit_price, currency)
            if dice.random() < 0.4:
                amount = dice.choice(errors(parts, amount, currency))
            for place, (num, den, shown) in enumerate(parts):
                self.add(price, project, currency, num, den, shown, 0 if place else amount)
            seconds[project], billed[project] = whole, amount
        if (
            dice.random() < 0.1 and min(seconds.values()) >= 0
        ):  # the price came to look at the total of all projects
            for project, owed in shared(seconds, PerUnit(unit_price), currency).items():
                assert owed.share is not None
                more = owed.share.amount.minor - dice.choice((billed[project], billed[project], 0))
                self.add(price, project, currency, 0, 1, None, more, owed.share.terms)

    def a_part(self, unit_price: Decimal) -> Part:
        den = self.dice.choice((1, 1, 1, 1, 7, 1_024))
        num = self.dice.choice((1, 1, 1, -1)) * self.dice.choice(SECONDS) * self.dice.choice((1, den))
        return num, den, self.dice.choice((unit_price,) * 10 + (None,))

    def add(
        self,
        price: int,
        project: int,
        currency: str,
        num: int,
        den: int,
        unit_price: Decimal | None,
        amount: int,
        terms: Mapping[str, Any] | None = None,
    ) -> None:
        of_this = {
            "id": None,
            "invoice_id": self.invoices[currency],
            "position": len(self.rows) + 1,
            "project_id": project,
            "price_id": price,
            "seconds_num": num,
            "seconds_den": den,
            "unit_price": unit_price,
            "amount": amount,
            "terms": dict(terms or {}),
        }
        self.rows.append(InvoiceLine(**{**self.pattern, **of_this}))

    def are_all(self) -> None:
        InvoiceLine.objects.all().delete()
        InvoiceLine.objects.bulk_create(self.rows)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 20))])
def test_the_database_leaves_out_no_line_that_is_found_when_each_is_computed(
    line: InvoiceLine, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Currencies of 0 to 4 decimals, negative lines, none of seconds, parts of a unit, corrected prices, half cents."""
    lines = Lines(line, seed)
    for price in range(400):
        lines.of_a_price(price)
    lines.are_all()
    texts = line_amounts.lines_that_cost_something_else()
    with each_alone(monkeypatch):
        each = line_amounts.lines_that_cost_something_else()
    assert set(each) == set(texts)
    assert 40 < len(texts) < 360
    assert lines_computed() < len(lines.rows)


def lines_computed() -> int:
    """How many the database does not vouch for."""
    units = json.dumps({currency: str(10 ** exponent(currency)) for currency in CURRENCIES})
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM ({line_amounts.sql.TO_COMPUTE}) l", {"minor_units": units})
        return int(cursor.fetchone()[0])


@pytest.mark.parametrize(
    ("made_up", "right"),
    [
        ("unit_price = -2, seconds_num = 3600, amount = -200", False),
        ("unit_price = -2, seconds_num = -3600, amount = 200", False),
        ("seconds_den = 9223372036854775807, amount = 0", True),
        ("seconds_den = 9223372036854775807, amount = 1", False),
        ("seconds_den = -1, seconds_num = -9, amount = 1", True),
        ("terms = '{\"price\": 1}', amount = 0", False),
        ('terms = \'{"price": {"unit": "1"}, "of": "1/0", "included": "0"}\', amount = 0', False),
        ("unit_price = 0, amount = 0", True),
        ("unit_price = 0, amount = 1", False),
    ],
)
def test_a_line_that_no_rule_makes_is_named_and_takes_no_other_its_check(
    line: InvoiceLine, made_up: str, right: bool
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE billing_invoiceline SET {made_up}")
    assert (line_amounts.lines_that_cost_something_else() == []) is right


def test_a_free_line_beside_one_that_is_not_is_right(line: InvoiceLine) -> None:
    """Each project's lines are looked at by what they say themselves: 0 is a price."""
    lines = Lines(line, 0)
    lines.add(1, 1, "USD", 3_600, 1, Decimal(0), 0)
    lines.add(1, 2, "USD", 3_600, 1, Decimal(2), 200)
    lines.add(1, 2, "USD", 1, 7, Decimal(2), 0)
    lines.are_all()
    assert line_amounts.lines_that_cost_something_else() == []
    # An amount without a quantity says no price: that of the others holds.
    lines.add(1, 1, "USD", 0, 1, None, 0)
    lines.are_all()
    (text,) = line_amounts.lines_that_cost_something_else()
    assert text.endswith("{project:1}, {price:1}")
