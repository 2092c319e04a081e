"""The figures of docs/explanation/amounts.md on what one tenant has of its own, computed again."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from billing.rules.fees import Commitment, Discount, Fee, committed
from tests.documentation import number, table
from tests.rules.test_docs_tables import PAGE, dollars


def test_what_one_tenant_has_of_its_own_takes_its_seconds_from_the_plans() -> None:
    for row in table(PAGE, "What one tenant has of its own"):
        parts = [Fraction(int(row[days].split()[0]), 31) for days in ("for", "then for")]
        values = [row["plan's"], row["own"]]
        if row["what"] == "fee":
            owed = [
                Fee(Decimal(value)).owed("USD", part).text for value, part in zip(values, parts, strict=True)
            ]
        elif row["what"] == "included hours":
            owed = [str(number(value) * part) for value, part in zip(values, parts, strict=True)]
        else:
            base, owed = dollars(row["what"].removeprefix("discount on ")), []
            for value, part in zip(values, parts, strict=True):
                off = Discount(percent=Decimal(value.rstrip(" %"))).owed(base, part)
                base += off
                owed.append(off.text)
        assert " and ".join(owed) == row["comes to"], row


def test_two_commitments_in_one_period() -> None:
    for row in table(PAGE, "Two commitments in one period"):
        use = dollars(row["used"])
        parts = [
            (Commitment(Decimal(row[amount]), Decimal(row[factor])), Fraction(int(row[days].split()[0]), 31))
            for amount, factor, days in (
                ("plan's", "factor", "for"),
                ("own", "factor then", "then for"),
            )
        ]
        owed = committed(parts, use, whole=Fraction(1))
        assert use + owed == dollars(row["use and commitments come to"]), row
