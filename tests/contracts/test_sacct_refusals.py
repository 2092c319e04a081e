"""What refuses an export whole before any row is imported, and how an export is read line by line."""

from __future__ import annotations

import gzip
import os
import random
import re
import tracemalloc
from pathlib import Path

import pytest

from clusters.connectors.base import ConnectorError, UsageFact
from clusters.connectors.sacct.layout import COMMAND, ELAPSED, NEEDED, OPTIONAL
from clusters.connectors.sacct.text_export import open_export
from tests.contracts.sacct_exports import COLUMNS, UTC, read_export, read_rows, row

HEADER = "|".join(COLUMNS)


def test_an_archive_that_inflates_without_end_is_refused_before_any_row(path: Path) -> None:
    bomb = gzip.compress(f"{HEADER}\n".encode() + b"A" * (80 << 20), compresslevel=9)
    assert len(bomb) < 100_000
    tracemalloc.start()
    try:
        sentence = refusal(path, bomb)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "holds more than 200 times its own size" in sentence
    assert "unpack it and import it as plain text" in sentence
    assert peak < 20_000_000


def refusal(
    path: Path, content: bytes | str, *, columns: list[str] | None = None, delimiter: str = "|"
) -> str:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConnectorError) as refused:
        open_export(path, zone=UTC, columns=columns, delimiter=delimiter)
    assert not refused.value.retry
    return str(refused.value)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "export.sacct"


def test_a_file_that_cannot_be_had(tmp_path: Path) -> None:
    for path, sentence in [(tmp_path / "gone", "There is no file"), (tmp_path, "is not a file")]:
        with pytest.raises(ConnectorError, match=sentence):
            open_export(path, zone=UTC)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConnectorError, match="is not a file"):
        open_export(tmp_path / "pipe", zone=UTC)


def test_an_empty_file(path: Path) -> None:
    assert "export.sacct is empty" in refusal(path, "")
    assert "export.sacct is empty" in refusal(path, "\n \n")
    assert "export.sacct is empty" in refusal(path, gzip.compress(b""))


@pytest.mark.parametrize(
    ("start", "what"),
    [(b"BZh91AY", "bzip2"), (b"\xfd7zXZ\x00", "xz"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"PK\x03\x04", "zip")],
)
def test_other_archives_are_named(path: Path, start: bytes, what: str) -> None:
    assert what in refusal(path, start + b"data")


def test_an_archive_cut_off_or_damaged_anywhere_is_refused_before_any_row(path: Path) -> None:
    rows = "\n".join([HEADER, *(row(JobIDRaw=str(number)) for number in range(1, 2000)), ""])
    archive = gzip.compress(rows.encode())
    chosen = random.Random(7)
    for cut in [3, 11, len(archive) - 1, *(chosen.randrange(12, len(archive)) for _ in range(30))]:
        assert "broken or cut gzip file" in refusal(path, archive[:cut])
    middle = len(archive) // 2
    damaged = archive[:middle] + bytes([archive[middle] ^ 0xFF]) + archive[middle + 1 :]
    assert "broken or cut gzip file" in refusal(path, damaged)
    assert "broken or cut gzip file" in refusal(path, archive + b"trailing words")


def test_no_header(path: Path) -> None:
    sentence = refusal(path, row() + "\n")
    assert "run sacct without --noheader, or name the columns with --columns" in sentence
    assert COMMAND in sentence
    path.write_text(row() + "\n")
    assert read_export(path, columns=COLUMNS).fact.source_key == "4711@1767600000"


def test_columns_given_beside_a_header(path: Path) -> None:
    path.write_text(f"{HEADER}\n{row()}\n")
    assert read_export(path, columns=COLUMNS).fact.account == "vision"
    assert "leave out --columns" in refusal(path, f"{HEADER}\n{row()}\n", columns=COLUMNS[::-1])
    assert "lacks JobIDRaw" in refusal(path, f"{row()}\n", columns=COLUMNS[1:])


@pytest.mark.parametrize(
    ("missing", "named"),
    [*((name, name) for name in ("JobIDRaw", "Submit", "Start", "End", "State", "Account", "AllocTRES")),
     ("ElapsedRaw", "ElapsedRaw (or Elapsed)")],
)  # fmt: skip
def test_a_missing_column_is_named_with_the_command_that_gives_it(
    path: Path, missing: str, named: str
) -> None:
    sentence = refusal(path, "|".join(name for name in COLUMNS if name != missing) + "\n")
    assert f"The export lacks {named}." in sentence
    assert COMMAND in sentence


@pytest.mark.parametrize(
    ("separator", "option"), [("|#", "'|#'"), (",", "','"), (";", "';'"), ("\t", "$'\\t'"), ("^", "'^'")]
)
def test_another_separator_is_suggested_and_not_guessed(path: Path, separator: str, option: str) -> None:
    content = separator.join(COLUMNS) + "\n" + row().replace("|", separator) + "\n"
    assert f"--delimiter {option}" in refusal(path, content)
    if separator != ",":  # commas are inside AllocTRES
        assert read_export(path, delimiter=separator).fact.gpus == 2


def test_a_wrong_separator_names_the_right_one(path: Path) -> None:
    assert "--delimiter '|'" in refusal(path, HEADER + "\n", delimiter=",")
    assert "at least one character" in refusal(path, HEADER + "\n", delimiter="")


def test_aligned_columns(path: Path) -> None:
    aligned = "JobID           JobName  Partition    Account  AllocCPUS      State ExitCode \n------- ----\n"
    assert "run sacct with --parsable2" in refusal(path, aligned)


def test_another_listing(path: Path) -> None:
    sentence = refusal(path, "Cluster|Account|User|Partition|Share|QOS\nc|a|u|p|1|normal\n")
    assert "This is not a listing of jobs: its columns are Cluster, Account, User" in sentence


def test_a_header_alone_is_a_quiet_month(tmp_path: Path) -> None:
    export = read_rows(tmp_path)
    assert (export.facts, export.bad, export.reading.proves_until) == ([], [], None)


def test_header_names_count_in_any_order_and_case_with_what_windows_adds(path: Path) -> None:
    names = [f" {name.upper()}" for name in reversed(COLUMNS)] + [
        "Comment",
        "",
    ]  # --parsable ends lines with "|"
    line = "|".join([*reversed(row().split("|")), "a comment", ""])
    path.write_bytes(b"\xef\xbb\xbf" + f"{'|'.join(names)}\r\n\r\n{line}\r\n".encode())
    assert read_export(path).fact.node_list == "node01"


def test_a_file_that_changes_while_it_is_read_is_to_be_read_again(path: Path) -> None:
    path.write_text(f"{HEADER}\n{row()}\n")
    export = open_export(path, zone=UTC)
    assert len(list(export.rows())) == 1
    rows = export.rows()
    next(rows)
    with path.open("a") as file:
        file.write(row() + "\n")
    with pytest.raises(ConnectorError, match="changed while it was read") as refused:
        list(rows)
    assert refused.value.retry


def test_reading_twice_tells_the_same(path: Path) -> None:
    path.write_text(f"{HEADER}\n{row()}\n{row(JobIDRaw='4711.0')}\n{row(End='2026-01-05T08:00:00')}\n")
    export = open_export(path, zone=UTC)
    first = list(export.rows())
    noted = (export.reading.steps, export.reading.proves_until, list(export.reading.notes))
    assert list(export.rows()) == first
    assert (export.reading.steps, export.reading.proves_until, export.reading.notes) == noted
    assert noted[0] == 1


def test_a_line_break_inside_a_name_is_mended(tmp_path: Path) -> None:
    fact = read_rows(tmp_path, row(JobName="train\n\nagain\r\nand again")).fact
    assert fact.name == "train\n\nagain\nand again"


def test_a_line_break_inside_what_is_billed_by_is_kept_aside_in_one_piece(tmp_path: Path) -> None:
    export = read_rows(tmp_path, row(Account="vi\nsion"), row())
    assert [(bad.code, bad.line, bad.raw) for bad in export.bad] == [("joined", 2, row(Account="vi\nsion"))]
    assert len(export.facts) == 1


def test_a_torn_line_does_not_take_the_good_line_behind_it_along(tmp_path: Path) -> None:
    torn = row()[:60]
    export = read_rows(tmp_path, row(JobIDRaw="1"), torn, row(JobIDRaw="2"), torn, torn, row(JobIDRaw="3"))
    assert [fact.source_key.partition("@")[0] for fact in export.facts] == ["1", "2", "3"]
    assert [(bad.code, bad.line) for bad in export.bad] == [("truncated", 3), ("truncated", 5)]
    assert "\n".join(bad.raw for bad in export.bad) == f"{torn}\n{torn}\n{torn}"


def test_two_torn_lines_that_have_enough_fields_together_make_no_job(tmp_path: Path) -> None:
    fields = row().split("|")
    for cut in range(2, len(fields)):
        export = read_rows(tmp_path, "|".join(fields[:cut]), "|".join(fields[: len(fields) - cut + 1]))
        assert export.facts == [], cut
        assert sum(bad.raw.count("\n") + 1 for bad in export.bad) == 2


def test_a_separator_inside_a_name_is_kept_aside_with_the_way_out(tmp_path: Path) -> None:
    bad = read_rows(tmp_path, row(JobName="a|b")).refused
    assert bad.code == "too-many-fields"
    assert "sacct --delimiter '|#'" in bad.reason


def test_the_last_line_of_a_file_that_was_cut_off_is_kept_aside(path: Path) -> None:
    columns = [name for name in COLUMNS if name != "AllocTRES"] + ["AllocTRES"]
    fields = dict(zip(COLUMNS, row().split("|"), strict=True))
    line = "|".join(fields[name] for name in columns)
    path.write_text("|".join(columns) + f"\n{line}\n{line}"[:-7])  # …mem=64 of mem=64G,node=1
    export = read_export(path)
    assert (len(export.facts), [bad.code for bad in export.bad]) == (1, ["unfinished"])


def test_a_missing_last_line_break_harms_nothing_where_a_cut_would_show(path: Path) -> None:
    path.write_text(f"{HEADER}\n{row()}")  # NodeList is last
    assert read_export(path).fact.gpus == 2


def test_names_in_other_encodings_stay_distinct(path: Path) -> None:
    names = [b"caf\xe9", b"caf\xe8", b"nul\x00", "café".encode(), b"\x1b[31m"]
    lines = [row(JobName="?").encode().replace(b"?", name) for name in names]
    path.write_bytes(b"\n".join([HEADER.encode(), *lines, b""]))
    assert [fact.name for fact in read_export(path).facts] == [
        "caf\\xe9",
        "caf\\xe8",
        "nul\\x00",
        "café",
        "\x1b[31m",
    ]


def test_a_line_without_end_is_kept_in_pieces(path: Path) -> None:
    path.write_bytes(f"{HEADER}\n{row()}\n".encode() + b"x" * (3 * 2**20) + f"\n{row()}\n".encode())
    export = read_export(path)
    assert len(export.facts) == 2
    assert {bad.code for bad in export.bad} == {"too-long"}
    assert sum(len(bad.raw) for bad in export.bad) == 3 * 2**20
    assert max(len(bad.raw) for bad in export.bad) <= 2**20


def test_rows_of_several_clusters_are_noted(tmp_path: Path) -> None:
    header = "|".join([*COLUMNS, "Cluster"])
    export = read_rows(tmp_path, row() + "|alex", row() + "|fritz", header=header)
    assert "several clusters (alex, fritz)" in export.reading.notes[0]


def test_the_page_for_operators_names_the_command_every_column_and_every_reason() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference/sacct.md").read_text(encoding="utf-8")
    assert COMMAND in page.replace(" \\\n  ", " ")
    for column in (*NEEDED, *ELAPSED, *OPTIONAL):
        assert f"`{column}`" in page, column
    sources = sorted((Path(__file__).parents[2] / "clusters" / "connectors" / "sacct").glob("*.py"))
    codes = {
        code
        for source in sources
        for code in re.findall(r'UnreadableError\(\s*"([a-z-]+)"', source.read_text())
    }
    assert len(codes) > 10
    for code in codes | {
        "truncated",
        "too-many-fields",
        "too-long",
        "negative-elapsed",
        "unreadable-duration",
    }:
        assert f"`{code}`" in page, code


def test_memory_does_not_grow_with_the_file(path: Path) -> None:
    lines = "".join(row(JobIDRaw=str(number)) + "\n" for number in range(1, 20_001))
    path.write_bytes(gzip.compress(f"{HEADER}\n{lines}".encode()))
    export = open_export(path, zone=UTC)
    tracemalloc.start()
    try:
        assert sum(isinstance(usage_row, UsageFact) for usage_row in export.rows()) == 20_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(lines) > 4_500_000
    assert peak < 3_000_000
