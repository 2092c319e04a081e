"""FOCUS as Parquet: the rows of the CSV with types, written by a process of its own."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from django.core.management import call_command

from billing.documents.csv import cell
from billing.models import FocusFormat
from billing.reports import focus, focus_exports, focus_files
from billing.reports.focus_columns import COLUMNS, Kind
from portal.core.tenants.models import Tenant
from tests.api.door import Door, door
from tests.builders import at
from tests.integration.test_focus_validator import a_year_of_everything
from tests.web.house import House, a_house, signed_in

pytestmark = pytest.mark.django_db

MARCH = "exports/focus?period=2026-03"


def as_written(value: Any, kind: Kind) -> object:
    """A cell of Parquet as the CSV has it; of a decimal its value."""
    if value is None:
        return ""
    if kind is Kind.MOMENT:
        assert value.utcoffset().total_seconds() == 0
        return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    if kind is Kind.FREE:
        return cell(value)
    return value if kind is Kind.DECIMAL else str(value)


def assert_same(parquet: bytes, text: bytes) -> int:
    """Every cell; how many rows there are."""
    table = pq.read_table(pa.BufferReader(parquet))
    rows = list(csv.DictReader(io.StringIO(text.decode(), newline="")))
    assert table.column_names == list(COLUMNS)
    assert table.num_rows == len(rows)
    for ours, row in zip(table.to_pylist(), rows, strict=True):
        for name, kind in COLUMNS.items():
            expected: object = row[name]
            if kind is Kind.DECIMAL and row[name]:
                expected = Decimal(row[name])
            assert as_written(ours[name], kind) == expected, name
    return len(rows)


def test_api_058_every_cell_of_the_parquet_is_that_of_the_csv_and_the_bytes_are_the_same_twice() -> None:
    tenants = a_year_of_everything()

    def content(kind: str, month: int) -> bytes:
        dataset = focus.make_dataset(tenants=tenants, month=(2026, month), moment=at("2026-06-02"))
        return b"".join(focus_files.AS[kind](dataset.charges))

    count = 0
    for month in (3, 4, 5):
        parquet = content("parquet", month)
        count += assert_same(parquet, content("csv", month))
        assert parquet == content("parquet", month)
    assert count > 15


def test_api_058_the_types_are_decimals_moments_of_utc_and_counts() -> None:
    schema = pq.read_schema(pa.BufferReader(b"".join(focus_files.as_parquet([]))))
    assert schema.field("BilledCost").type == pa.decimal128(38, 21)
    assert schema.field("ChargePeriodStart").type == pa.timestamp("ms", tz="UTC")
    assert schema.field("x_JobCount").type == pa.int64()
    assert schema.field("Tags").type == pa.string()


def a_charge(**values: str) -> list[str]:
    defaults = {Kind.DECIMAL: "0.01", Kind.MOMENT: "2026-03-01T00:00:00Z", Kind.COUNT: "1"}
    return [values.get(name, defaults.get(kind, name)) for name, kind in COLUMNS.items()]


def test_free_text_is_as_it_is_and_all_digits_of_a_decimal_stay() -> None:
    odd = a_charge(
        ResourceName='=cmd|"x",\r\ny', ListCost="-12345678901234567.000000000000000000001", x_JobCount=""
    )
    (row,) = pq.read_table(pa.BufferReader(b"".join(focus_files.as_parquet([odd])))).to_pylist()
    assert row["ResourceName"] == '=cmd|"x",\r\ny'
    assert row["ListCost"] == Decimal("-12345678901234567.000000000000000000001")
    assert row["x_JobCount"] is None
    assert row["ChargePeriodStart"] == datetime(2026, 3, 1, tzinfo=UTC)


def test_what_is_no_value_of_its_column_fails_loudly() -> None:
    with pytest.raises(focus_files.ParquetError, match="writer of Parquet"):
        list(focus_files.as_parquet([a_charge(BilledCost="much")]))


@pytest.fixture
def house() -> House:
    return a_house()


def test_api_058_page_api_and_command_give_the_same_file(house: House, tmp_path: Path) -> None:
    ann: Door = door(house.ann, house.vision)
    answer = ann.get(f"/{MARCH}&format=parquet")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/vnd.apache.parquet")
    assert (
        answer.headers["Content-Disposition"] == 'attachment; filename="focus-1.2-vision-lab-2026-03.parquet"'
    )
    assert assert_same(answer.raw, ann.get(f"/{MARCH}").raw) > 0
    page = signed_in(house.ann).get(f"/t/vision-lab/{MARCH}&format=parquet")
    assert b"".join(page.streaming_content) == answer.raw  # type: ignore[attr-defined]
    file = tmp_path / "march.parquet"
    call_command("export_focus", "2026-03", str(file), tenant="vision-lab", verbosity=0)
    assert file.read_bytes() == answer.raw
    assert Tenant.objects.count() > 1
    export = focus_exports.request_export(
        month=date(2026, 3, 1), kind=FocusFormat.PARQUET, by="op", moment=at("2026-06-02")
    )
    focus_exports.perform_next(clock=lambda: at("2026-06-02"))
    everyones = signed_in(house.op).get(f"/operator/exports/focus/{export.pk}/file")
    assert pq.read_table(pa.BufferReader(b"".join(everyones.streaming_content))).num_rows > 0  # type: ignore[attr-defined]
    assert signed_in(house.ann).get(f"/t/vision-lab/{MARCH}&format=xls").status_code == 404


def test_api_062_no_process_that_serves_or_bills_loads_pyarrow() -> None:
    code = "import django, sys; django.setup(); import portal.api.routes, portal.urls; print('pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
