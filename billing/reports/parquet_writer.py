"""A program that writes the rows of a FOCUS dataset as Parquet: CSV on standard input, the file's name as its argument.

It is a process of its own because pyarrow and what it keeps in memory are as large as a whole web process, and go away
with it. It knows no Django. Its exit code is the number of the operating system's error, such as that of a full disk.
"""

from __future__ import annotations

import csv
import sys
import traceback
from collections.abc import Iterable
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq

from billing.reports.focus_columns import COLUMNS, Kind

GROUP = 2_000  # rows of a row group: so many are in memory
PAGE = 64 << 10  # bytes
PRECISION, SCALE = (
    38,
    21,
)  # digits of a decimal, and of these behind the point: those of a price and of a quantity
TYPES = {
    Kind.TEXT: pa.string(),
    Kind.FREE: pa.string(),
    Kind.DECIMAL: pa.decimal128(PRECISION, SCALE),
    Kind.MOMENT: pa.timestamp("ms", tz="UTC"),
    Kind.COUNT: pa.int64(),
}
SCHEMA = pa.schema([(name, TYPES[kind]) for name, kind in COLUMNS.items()])
TEXTS = [name for name, kind in COLUMNS.items() if kind in {Kind.TEXT, Kind.FREE, Kind.MOMENT}]


def write(rows: Iterable[list[str]], path: str) -> None:
    """An empty text is null. Raises ValueError for a text that is no value of its column."""
    pa.set_cpu_count(1)
    rest = iter(rows)
    options = {
        "compression": "zstd",
        "use_dictionary": TEXTS,
        "write_statistics": False,
        "data_page_size": PAGE,
        "dictionary_pagesize_limit": PAGE,
    }
    with pq.ParquetWriter(path, SCHEMA, **options) as file:
        while group := list(islice(rest, GROUP)):
            columns = zip(SCHEMA, zip(*group, strict=True), strict=True)
            arrays = [
                pa.array([text or None for text in texts], pa.string()).cast(field.type)
                for field, texts in columns
            ]
            file.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA))


if __name__ == "__main__":
    csv.field_size_limit(1 << 30)
    try:
        write(csv.reader(sys.stdin), sys.argv[1])
    except OSError as error:
        traceback.print_exc()
        sys.exit(error.errno or 1)
