"""Rows of a provider's bill: a FOCUS dataset, or an AWS Cost and Usage Report, as CSV (also gzip) or Parquet.

Columns are those of the FOCUS specification 1.0 to 1.3 and of AWS's dictionary of the report, in its spelling with
slashes or in that of its Parquet files. What a commitment covers is counted as it is used: FOCUS tells that as
EffectiveCost, and of AWS's report it is worked out as AWS's guide to amortized cost does. Taxes are left out, as
revenue is before tax. AWS's report is not yet seen from a live account.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Context, Decimal, InvalidOperation
from fractions import Fraction
from hashlib import sha256
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

from billing.rules.money import is_currency, rounded_text
from portal.excerpt import quoted

ROOT = Path(__file__).parents[2]
MOST_SENTENCES = 20
MOST_DECIMALS = 30
LARGEST = Decimal(10**15)
_EXACT = Context(prec=60)
FIRST, LAST = date(2001, 1, 1), date(2095, 1, 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Row = Mapping[str, str]


class BillError(Exception):
    """A bill cannot be taken; `sentences` say why, the first twenty."""

    def __init__(self, *sentences: str) -> None:
        self.sentences = sentences[:MOST_SENTENCES]
        super().__init__("\n".join(self.sentences))


@dataclass(frozen=True, slots=True)
class BillRow:
    """One charge. [since, until) are epoch seconds, `amount` is in major units; `digest` is of all that was read."""

    provider: str
    account: str
    period: date
    currency: str
    digest: str
    since: int
    until: int
    amount: Decimal


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a format has what. `needed` columns have to be there, `others` are read where they are."""

    name: str
    needed: tuple[str, ...]
    others: tuple[str, ...]
    provider: Callable[[Row], str]
    account: str
    period: str
    span: tuple[str, str]
    currency: str
    is_tax: Callable[[Row], bool]
    amount: Callable[[Row], Decimal]


def _focus_amount(row: Row) -> Decimal:
    return _decimal(row, "EffectiveCost")


def _cur_amount(row: Row) -> Decimal:
    """Amortized, by the kind of the line."""
    kind = row["line_item_line_item_type"]
    if kind == "SavingsPlanCoveredUsage":
        return _decimal(row, "savings_plan_savings_plan_effective_cost")
    if kind == "SavingsPlanRecurringFee":
        used = _decimal(row, "savings_plan_used_commitment")
        return _EXACT.subtract(_decimal(row, "savings_plan_total_commitment_to_date"), used)
    if kind in {"SavingsPlanNegation", "SavingsPlanUpfrontFee"}:
        return Decimal(0)
    if kind == "DiscountedUsage":
        return _decimal(row, "reservation_effective_cost")
    if kind == "RIFee":
        upfront = _decimal(row, "reservation_unused_amortized_upfront_fee_for_billing_period")
        return _EXACT.add(upfront, _decimal(row, "reservation_unused_recurring_fee"))
    if kind == "Fee" and row.get("reservation_reservation_a_r_n"):
        return Decimal(0)
    return _decimal(row, "line_item_unblended_cost")


FOCUS = Layout(
    "FOCUS",
    needed=(
        "EffectiveCost", "BillingCurrency", "BillingPeriodStart", "ChargePeriodStart", "ChargePeriodEnd",
        "ChargeCategory", "BillingAccountId",
    ),
    others=(
        "ProviderName", "ServiceProviderName", "InvoiceIssuerName", "BilledCost", "ChargeClass", "ChargeFrequency",
        "ChargeDescription", "SubAccountId", "ResourceId", "SkuId", "SkuPriceId", "RegionId", "ServiceName",
        "PricingCategory", "PricingQuantity", "ConsumedQuantity", "CommitmentDiscountId", "CommitmentDiscountStatus",
        "Tags",
    ),
    provider=lambda row: next(
        filter(None, (row.get(name) for name in ("ServiceProviderName", "ProviderName", "InvoiceIssuerName"))), ""
    ),
    account="BillingAccountId",
    period="BillingPeriodStart",
    span=("ChargePeriodStart", "ChargePeriodEnd"),
    currency="BillingCurrency",
    is_tax=lambda row: row["ChargeCategory"] == "Tax",
    amount=_focus_amount,
)  # fmt: skip
CUR = Layout(
    "AWS Cost and Usage Report",
    needed=(
        "line_item_unblended_cost", "line_item_currency_code", "bill_billing_period_start_date",
        "line_item_usage_start_date", "line_item_usage_end_date", "line_item_line_item_type", "bill_payer_account_id",
    ),
    others=(
        "identity_line_item_id", "line_item_usage_account_id", "line_item_product_code", "line_item_usage_type",
        "line_item_operation", "line_item_resource_id", "line_item_usage_amount", "line_item_line_item_description",
        "savings_plan_savings_plan_effective_cost", "savings_plan_used_commitment",
        "savings_plan_total_commitment_to_date", "reservation_effective_cost", "reservation_unused_recurring_fee",
        "reservation_unused_amortized_upfront_fee_for_billing_period", "reservation_reservation_a_r_n",
    ),
    provider=lambda _: "AWS",
    account="bill_payer_account_id",
    period="bill_billing_period_start_date",
    span=("line_item_usage_start_date", "line_item_usage_end_date"),
    currency="line_item_currency_code",
    is_tax=lambda row: row["line_item_line_item_type"] == "Tax",
    amount=_cur_amount,
)  # fmt: skip


def snake(name: str) -> str:
    """`lineItem/UsageType` → `line_item_usage_type`, as AWS writes it in Parquet."""
    return re.sub(r"(?<=[^/:_])(?=[A-Z])", "_", name).replace("/", "_").replace(":", "_").lower()


class BillFile:
    """One file. `taxes` and `others` count the rows that were left out: taxes, and what the selection did not take."""

    def __init__(self, path: Path, selection: Mapping[str, str]) -> None:
        self.path = path
        self.selection = selection
        self.taxes = self.others = 0

    def rows(self) -> Iterator[BillRow]:
        """All that were selected. Raises BillError at the end, where any row cannot be read, or at once."""
        wrong: list[str] = []
        with _opened(self.path, self.selection) as cells:
            header = next(cells, [])
            layout, names = self._layout(header)
            for number, values in enumerate(cells, 2):
                try:
                    if (row := self._row(layout, names, values)) is not None:
                        yield row
                except ValueError as error:
                    wrong.append(f"{self.path.name}, row {number}: {error}")
                    if len(wrong) == MOST_SENTENCES:
                        raise BillError(*wrong) from error
        if wrong:
            raise BillError(*wrong)

    def _layout(self, header: Sequence[str]) -> tuple[Layout, list[str]]:
        names = [name.strip() for name in header]
        for layout, spelled in ((FOCUS, names), (CUR, [snake(name) for name in names])):
            if set(layout.needed) <= set(spelled):
                if doubled := {name for name in layout.needed if spelled.count(name) > 1}:
                    raise BillError(f"{self.path.name} has the column {min(doubled)} twice.")
                for key in self.selection:
                    if _root(key, layout) not in spelled:
                        raise BillError(f"{self.path.name} has no column {quoted(key)} to select by.")
                return layout, spelled
        missing = [name for name in FOCUS.needed if name not in names]
        raise BillError(
            f"{self.path.name} is neither a FOCUS dataset nor an AWS Cost and Usage Report: of FOCUS it lacks "
            f"{', '.join(missing)}. Export one of the two, as CSV with its header or as Parquet."
        )

    def _row(self, layout: Layout, names: list[str], values: list[str]) -> BillRow | None:
        if len(values) != len(names):
            raise ValueError(
                f"it has {len(values)} cells, and the header {len(names)}: the file is cut or mixed."
            )
        row = dict(zip(names, values, strict=True))
        if not all(_selected(row, key, value, layout) for key, value in self.selection.items()):
            self.others += 1
            return None
        if layout.is_tax(row):
            self.taxes += 1
            return None
        amount = layout.amount(row)
        if not row[layout.currency] or not is_currency(row[layout.currency]):
            raise ValueError(f"{quoted(row[layout.currency])} is no currency of ISO 4217.")
        since, until = (_instant(row, name) for name in layout.span)
        provider = layout.provider(row)
        if not provider:
            raise ValueError("it names no provider.")
        read = (row.get(name, "") for name in (*layout.needed, *layout.others))
        return BillRow(
            provider[:200],
            row[layout.account][:200],
            _day(_instant(row, layout.period)),
            row[layout.currency],
            sha256("\x1f".join(read).encode()).hexdigest(),
            since,
            max(until, since + 1),
            amount,
        )


def _root(key: str, layout: Layout) -> str:
    """The column that a key of the selection is about: `Tags.cluster` is about `Tags`."""
    return key.partition(".")[0] if layout is FOCUS else snake(key)


def _selected(row: Row, key: str, value: str, layout: Layout) -> bool:
    cell = row[_root(key, layout)]
    if layout is FOCUS and "." in key:
        try:
            tags = json.loads(cell or "{}")
        except ValueError:
            return False
        return isinstance(tags, dict) and str(tags.get(key.partition(".")[2], "")) == value
    return cell == value


def _decimal(row: Row, name: str) -> Decimal:
    text = row.get(name, "").strip()
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"its {name} is {quoted(text)}, which is no amount.") from None
    if not value.is_finite() or value.copy_abs() >= LARGEST:
        raise ValueError(f"its {name} is {quoted(text)}, which no bill has.")
    if -int(value.as_tuple().exponent) <= MOST_DECIMALS:
        return value
    if value.adjusted() < -MOST_DECIMALS - 1:  # 1e-999999999 as a fraction takes days
        return Decimal(0)
    return Decimal(rounded_text(Fraction(value), MOST_DECIMALS))  # noise of providers that reckon in floats


def _instant(row: Row, name: str) -> int:
    text = row[name].strip()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"its {name} is {quoted(text)}; it is written like 2026-03-01T00:00:00Z.") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if not FIRST <= moment.date() < LAST:
        raise ValueError(f"its {name} is {quoted(text)}, which is not of our time.")
    return (moment - _EPOCH) // (datetime.resolution * 1_000_000)


def _day(second: int) -> date:
    return datetime.fromtimestamp(second, UTC).date()


def _refuse_cut(path: Path, raw: BinaryIO) -> None:
    """Raise BillError for a last line without an end: cut in its last cell, it would be read as another amount."""
    raw.seek(-1, os.SEEK_END)
    if raw.read(1) not in {b"\n", b"\r"}:
        raise BillError(
            f"{path.name} may be cut: its last line has no end. Fetch it again, or end that line if it is whole."
        )
    raw.seek(0)


@contextmanager
def _opened(path: Path, selection: Mapping[str, str]) -> Iterator[Iterator[list[str]]]:
    """The file's cells, the header first. Raises BillError for what is no CSV and no Parquet."""
    try:
        with path.open("rb") as raw:
            magic = raw.read(4)
            raw.seek(0)
            if magic == b"PAR1":
                with _parquet(path, selection) as cells:
                    yield cells
                return
            is_gzip = magic[:2] == b"\x1f\x8b"
            if not is_gzip and magic:
                _refuse_cut(path, raw)
            stream = gzip.GzipFile(fileobj=raw) if is_gzip else raw
            yield csv.reader(TextIOWrapper(stream, "utf-8-sig", newline=""), strict=True)
    except OSError as error:
        raise BillError(
            f"{path.name} cannot be read: {error.strerror or 'it is no whole archive'}."
        ) from error
    except (EOFError, zlib.error, csv.Error, UnicodeDecodeError) as error:
        raise BillError(f"{path.name} is no whole CSV in UTF-8, nor Parquet: {error}.") from error


@contextmanager
def _parquet(path: Path, selection: Mapping[str, str]) -> Iterator[Iterator[list[str]]]:
    """Read by a process of its own, as what writes Parquet is: pyarrow is as large as a web process."""
    columns = [*FOCUS.needed, *FOCUS.others, *CUR.needed, *CUR.others]
    columns += [_root(key, layout) for key in selection for layout in (FOCUS, CUR)]
    command = [
        sys.executable,
        "-m",
        "billing.reports.parquet_reader",
        str(path.resolve()),
        *dict.fromkeys(columns),
    ]
    environ = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    environ |= {"PYTHONUTF8": "1", "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
    with (
        TemporaryFile() as log,  # of a pipe that nobody reads before the rows, a warning a row would fill it
        subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=log) as process,
    ):
        try:
            assert process.stdout is not None  # noqa: S101 - of a pipe
            cells = csv.reader(TextIOWrapper(process.stdout, "utf-8", newline=""))
            header = next(cells, None)
            if header is not None:
                yield chain([header], cells)
        except BaseException:
            process.kill()
            raise
        if process.wait():
            log.seek(0)
            last = log.read().decode("utf-8", "replace").strip().splitlines()[-1:]
            raise BillError(f"{path.name} is no whole Parquet file: {''.join(last)[:200]}.")
