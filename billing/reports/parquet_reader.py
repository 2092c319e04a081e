"""A program that reads columns of a Parquet file: its name and theirs as arguments, CSV on standard output.

It is a process of its own for the reasons of `parquet_writer`. It knows no Django. Columns that the file lacks are left
out.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

BATCH = 2_000  # rows in memory


def text(value: Any) -> str:
    """A cell as CSV has it: instants in UTC, numbers in full, lists and maps as JSON."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, (list, dict)):
        return json.dumps(dict(value) if value and isinstance(value, list) else value, default=str)
    return str(value)


def read(path: str, columns: Sequence[str], out: Any) -> None:
    """Raises what pyarrow raises for a file that is none."""
    pa.set_cpu_count(1)
    file = pq.ParquetFile(path, buffer_size=1 << 16)
    names = [name for name in file.schema_arrow.names if name in set(columns)]
    writer = csv.writer(out)
    writer.writerow(names)
    if not names:
        return
    for batch in file.iter_batches(batch_size=BATCH, columns=names, use_threads=False):
        columns = [batch.column(batch.schema.get_field_index(name)).to_pylist() for name in names]
        writer.writerows([text(value) for value in row] for row in zip(*columns, strict=True))


if __name__ == "__main__":
    read(sys.argv[1], sys.argv[2:], sys.stdout)
