"""Whatever happens to an export on its way: nothing but a refusal is raised, and no line is lost."""

from __future__ import annotations

import gzip
import io
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from clusters.connectors.base import ConnectorError, Reading
from clusters.connectors.files import physical_lines
from clusters.connectors.sacct.layout import layout, raw_rows
from clusters.connectors.sacct.rows import RowReader
from clusters.connectors.sacct.text_export import open_export
from tests.contracts.sacct_exports import COLUMNS, LOS_ANGELES, row
from tests.tiers import examples

EXPORT = "\n".join(
    [
        "|".join(COLUMNS),
        row(),
        row(JobIDRaw="4711.batch"),
        row(JobIDRaw="4712", JobName="two\nlines"),
        row(JobIDRaw="4713", State="RUNNING", End="Unknown"),
        row(JobIDRaw="4714", State="PENDING", Start="Unknown", End="Unknown", AllocTRES="", ElapsedRaw="0"),
        row(
            JobIDRaw="4715",
            Submit="2017-11-05T01:30:00",
            Start="2017-11-05T01:30:00",
            End="2017-11-05T02:00:00",
        ),
        row(JobIDRaw="4716", AllocTRES="cpu=1,gres/gpu:a100_1g.5gb=2,mem=62.50G"),
        "",
    ]
).encode()
UNTORN = EXPORT.replace(b"two\nlines", b"two words")  # each line a row: read by columns
HEADER_END = EXPORT.index(b"\n") + 1

PIECES = st.one_of(
    st.binary(max_size=6),
    st.sampled_from(
        [b"\n", b"\r\n", b"|", b"||", b"\x00", b"\xff", b"-", b"9" * 25, b"gres/gpu=1,", "٣".encode(), b" "]
    ),
)
EDITS = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 60), PIECES), min_size=1, max_size=6
)  # where, how much is cut out, what is put there


def mangled(data: bytes, edits: list[tuple[float, int, bytes]], *, first: int = 0) -> bytes:
    for where, cut, piece in edits:
        at = first + int(where * (len(data) - first))
        data = data[:at] + piece + data[at + cut :]
    return data


@settings(max_examples=examples(200, 5_000))
@given(edits=EDITS, zipped=st.booleans())
def test_only_a_refusal_is_ever_raised(edits: list[tuple[float, int, bytes]], zipped: bool) -> None:
    data = mangled(gzip.compress(EXPORT, mtime=0) if zipped else EXPORT, edits)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "export"
        path.write_bytes(data)
        try:
            export = open_export(path, zone=LOS_ANGELES)
        except ConnectorError:
            return
        list(export.rows())


@settings(max_examples=examples(200, 5_000))
@given(edits=EDITS, torn=st.booleans())
def test_every_line_ends_up_in_a_fact_a_reason_or_a_step(
    edits: list[tuple[float, int, bytes]], torn: bool
) -> None:
    data = mangled(EXPORT if torn else UNTORN, edits, first=HEADER_END)
    body = [line.text for line in physical_lines(io.BytesIO(data))][1:]
    rows = list(raw_rows(list(physical_lines(io.BytesIO(data)))[1:], delimiter="|", width=len(COLUMNS)))
    reader = RowReader(layout(COLUMNS, delimiter="|"), LOS_ANGELES, Reading())
    careful = list(reader.rows(rows))
    line_counts = Counter(line for raw_row in rows for line in raw_row.text.split("\n") if line.strip())
    assert line_counts == Counter(line for line in body if line.strip())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "export"
        path.write_bytes(data)
        export = open_export(path, zone=LOS_ANGELES)
        assert list(export.rows()) == careful  # by columns, and by all the rules, whatever the rows
        assert len(careful) + export.reading.steps == len(rows)
