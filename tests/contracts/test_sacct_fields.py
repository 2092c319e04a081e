"""What one field of sacct says: resources, memory, lengths of time, limits, states and ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from clusters.connectors.base import UnreadableError
from clusters.connectors.sacct.fields import duration, raw_seconds, state_word, time_limit
from clusters.connectors.sacct.tres import mebibytes, parse_tres
from tests.contracts.sacct_exports import COLUMNS, read_rows, row

if TYPE_CHECKING:
    from pathlib import Path

NO_VAL64 = "18446744073709551614"


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("", 0),
        ("billing=1,cpu=1,mem=1000M,node=1", 0),
        ("billing=10,cpu=10,gres/gpu=4,mem=374000M,node=2", 4),
        ("billing=12,cpu=12,gres/gpu=4,mem=748000M,node=4", 4),
        ("billing=6,cpu=6,gres/gpu=2,mem=374000M,node=2", 2),
        ("billing=1,cpu=1,gres/gpu=1,mem=125G,node=1", 1),
        ("billing=1,cpu=1,gres/gpu:p100=1,mem=125G,node=1", 1),
        ("gres/gpu:volta=2,mem=125G,node=1", 2),
        ("billing=1,cpu=1,gres/gpu:tesla=4", 4),
        ("gres/gpu=2,gres/gpu:a100=2", 2),  # two views of two GPUs
        ("gres/gpu:a100=2,gres/gpu:v100=1", 3),
        ("gres/gpu=4,gres/gpu:a100=2", 4),  # the total rules
        ("cpu=1,gres/gpumem=80G,gres/gpuutil=37", 0),
        (f"cpu=1,energy={NO_VAL64},gres/gpu=1", 1),
        ("cpu=1,gres/gpu=4294967294", 0),  # NO_VAL
        ("cpu=1,gres/gpu:a100=0,gres/gpu=0", 0),
        ("cpu=1,gres/shard=0,node=1", 0),
    ],
)
def test_gpus_are_counted_once(text: str, gpus: int) -> None:
    assert (parse_tres(text).gpus, parse_tres(text).gpu_share) == (gpus, (1, 1))


@pytest.mark.parametrize(
    ("text", "model", "note"),
    [
        ("gres/gpu=2", "", ""),
        ("gres/gpu=2,gres/gpu:a100=2", "a100", ""),
        ("gres/gpu:v100=1,gres/gpu:a100=2", "a100+v100", ""),
        ("gres/gpu=3,gres/gpu:v100=1,gres/gpu:a100=2", "a100+v100", ""),
        ("gres/gpu:a100=2,gres/gpu:v100=0", "a100", ""),
        ("gres/gpu=4,gres/gpu:a100=2", "", "gpu-types"),  # of what model are the other two?
    ],
)
def test_a_model_is_named_only_if_it_is_all_of_them(text: str, model: str, note: str) -> None:
    assert (parse_tres(text).gpu_model, parse_tres(text).note) == (model, note)


@pytest.mark.parametrize(
    ("text", "gpus", "model", "profile", "share"),
    [
        ("gres/gpu:a100_1g.5gb=2,gres/gpu=2", 2, "a100", "1g.5gb", (1, 7)),
        ("gres/gpu:1g.10gb=3", 3, "", "1g.10gb", (1, 7)),
        ("gres/gpu:a100_3g.20gb=1", 1, "a100", "3g.20gb", (3, 7)),
        ("gres/gpu:a30_2g.12gb=1", 1, "a30", "2g.12gb", (1, 2)),
        ("gres/gpu:nvidia_a100-sxm4-40gb_1g.5gb=1", 1, "nvidia_a100-sxm4-40gb", "1g.5gb", (1, 7)),
        ("gres/gpu:h100_7g.80gb=1", 1, "h100", "7g.80gb", (1, 1)),
        ("gres/gpu:a100_1g.5gb+me=1", 1, "a100", "1g.5gb+me", (1, 7)),
        ("gres/gpu:a100_1g.5gb=1,gres/gpu:a100_3g.20gb=2", 7, "a100", "1g.5gb+3g.20gb", (1, 7)),
        ("gres/gpu:a100=1,gres/gpu:a100_1g.5gb=1", 8, "a100", "1g.5gb", (1, 7)),
        ("gres/gpu:a30_1g.6gb=1,gres/gpu:a100_1g.5gb=1", 11, "a100+a30", "1g.5gb+1g.6gb", (1, 28)),
    ],
)
def test_a_slice_is_an_exact_fraction_of_its_gpu(
    text: str, gpus: int, model: str, profile: str, share: tuple[int, int]
) -> None:
    resources = parse_tres(text)
    assert (resources.gpus, resources.gpu_model, resources.mig_profile, resources.gpu_share) == (
        gpus,
        model,
        profile,
        share,
    )


@pytest.mark.parametrize(
    "text",
    [
        "cpu=abc", "cpu=-1", "cpu=", "cpu", "cpu=1,", "cpu=1,cpu=2", "gres/gpu=two", "gres/gpu:a100=-1",
        "mem=-1G", "mem=4X", "mem=99999999999P", "cpu=1,gres/gp", "=1", "node=1.5", "gres/gpu:a30_7g.24gb=1",
        "cpu=١", "gres/gpu=3,gres/gpu:a100_1g.5gb=2",
    ],
)  # fmt: skip
def test_resources_that_cannot_be_read_bill_nothing(text: str) -> None:
    with pytest.raises(UnreadableError):
        parse_tres(text)


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("400G", 409_600),
        ("62.50G", 64_000),
        ("170000M", 170_000),
        ("1.82T", 1_908_408),  # 1,908,408.32
        ("7284K", 7),
        ("512K", 1),
        ("511K", 0),
        ("2P", 2_147_483_648),
        ("3000", 3_000),
        ("0", 0),
        (NO_VAL64, 0),
    ],
)
def test_memory_is_read_to_the_nearest_mebibyte(text: str, mib: int) -> None:
    assert mebibytes(text) == mib


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:00:00", 0), ("00:01:39", 99), ("7-20:39:39", 679_179), ("1-00:00:00", 86_400),
        ("125-00:00:00", 10_800_000), ("01:05.753", 65), ("14:20", 860), ("100:00:00", 360_000), ("", None),
    ],
)  # fmt: skip
def test_lengths_of_time(text: str, seconds: int | None) -> None:
    assert duration("Elapsed", text) == seconds


@pytest.mark.parametrize(
    "text", ["-00:00:16", "16", "1:2", "00:60:00", "00:00:60", "INVALID", "1-14:20", "1 00:00:00"]
)
def test_lengths_of_time_that_cannot_be_read(text: str) -> None:
    with pytest.raises(UnreadableError):
        duration("Elapsed", text)


def test_seconds_elapsed() -> None:
    assert [raw_seconds(text) for text in ("0", "3600", "", "4294967294")] == [0, 3600, None, None]
    with pytest.raises(UnreadableError) as refused:
        raw_seconds("-16")
    assert refused.value.code == "negative-elapsed"


@pytest.mark.parametrize(
    ("raw", "text", "seconds"),
    [
        ("1439", "", 86_340),
        ("", "3-00:00:00", 259_200),
        ("60", "3-00:00:00", 3_600),  # minutes first
        ("UNLIMITED", "UNLIMITED", None),
        ("Partition_Limit", "Partition_Limit", None),
        ("4294967295", "", None),
        ("", "", None),
    ],
)
def test_time_limits(raw: str, text: str, seconds: int | None) -> None:
    assert time_limit(raw, text) == seconds


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("COMPLETED", "COMPLETED"), ("CANCELLED by 1234", "CANCELLED"), ("CANCELLED by ben", "CANCELLED"),
        ("CANCELLED+", "CANCELLED+"), ("OUT_OF_MEMORY", "OUT_OF_MEMORY"), ("FOO", "FOO"),
    ],
)  # fmt: skip
def test_states_are_kept_without_their_reason(text: str, word: str) -> None:
    assert state_word(text) == word


@pytest.mark.parametrize(
    "text", ["", "0:0", "2026-01-05T08:00:00", "COMPLETED\nFAILED", "COMPLETED or so", "gpu1"]
)
def test_what_is_no_state_is_kept_aside(text: str) -> None:
    with pytest.raises(UnreadableError):
        state_word(text)


@pytest.mark.parametrize(
    ("job_id_raw", "job_id", "key"),
    [
        ("4711", "4711", "4711@1767600000"),
        ("8084960", "8012944_24093", "8084960@1767600000"),
        ("124", "123+1", "124@1767600000"),
        ("16051200000000", "74939900000000_2625", "16051200000000@1767600000"),
        ("0004711", "4711", "4711@1767600000"),
    ],
)
def test_a_job_is_known_by_its_raw_id_and_submission(
    tmp_path: Path, job_id_raw: str, job_id: str, key: str
) -> None:
    fact = read_rows(tmp_path, row(JobIDRaw=job_id_raw, JobID=job_id)).fact
    assert (fact.source_key, fact.job_id) == (key, job_id)


@pytest.mark.parametrize(
    "job_id_raw", ["", "0", "-1", "4711_2", "1.60512e+13", "abc", "9223372036854775808", "٣"]
)
def test_a_row_without_a_raw_id_is_kept_aside(tmp_path: Path, job_id_raw: str) -> None:
    assert read_rows(tmp_path, row(JobIDRaw=job_id_raw)).refused.code == "job-id"


@pytest.mark.parametrize(
    "step", ["4711.batch", "4711.extern", "4711.interactive", "4711.0", "4711+1.0", "4711.0+1"]
)
def test_a_step_is_counted_and_not_billed(tmp_path: Path, step: str) -> None:
    export = read_rows(tmp_path, row(JobIDRaw=step, AllocTRES="cpu=abc"))
    assert (export.facts, export.bad, export.reading.steps) == ([], [], 1)


def test_a_row_says_everything_that_is_billed_by(tmp_path: Path) -> None:
    fact = read_rows(tmp_path, row()).fact
    assert (fact.account, fact.user, fact.queue, fact.qos, fact.name) == (
        "vision",
        "ben",
        "gpu",
        "normal",
        "train",
    )
    assert (fact.gpus, fact.gpu_model, fact.cpu_milli, fact.memory_mib, fact.nodes) == (
        2,
        "a100",
        16_000,
        65_536,
        1,
    )
    assert (fact.submitted, fact.started, fact.ended) == (1767600000, 1767600600, 1767604200)
    assert (fact.state, fact.exit_code, fact.time_limit, fact.node_list) == (
        "COMPLETED",
        "0:0",
        86_400,
        "node01",
    )
    assert fact.requested == "cpu=16,gres/gpu=2,mem=64G,node=1"


def test_what_was_only_requested_is_never_held(tmp_path: Path) -> None:
    fact = read_rows(tmp_path, row(AllocTRES="")).fact
    assert (fact.gpus, fact.memory_mib, fact.cpu_milli, fact.nodes) == (0, 0, 16_000, 1)


def test_counts_that_slurm_did_not_set_are_none_at_all(tmp_path: Path) -> None:
    fact = read_rows(tmp_path, row(AllocTRES="gres/gpu=1", NCPUS="4294967294", NNodes="4294967295")).fact
    assert (fact.gpus, fact.cpu_milli, fact.nodes) == (1, 0, 0)


@pytest.mark.parametrize(
    ("column", "text", "code"),
    [
        ("AllocTRES", "cpu=abc", "tres-count"),
        ("State", "12:30", "state"),
        ("Submit", "Unknown", "no-submit"),
        ("Submit", "1969-12-31T23:59:59", "absurd-date"),
        ("Start", "1989-12-31T23:59:59", "absurd-date"),
        ("End", "2201-01-01T00:00:00", "absurd-date"),
        ("End", "2026-02-30T00:00:00", "unreadable-time"),
        ("End", "1767604200", "unreadable-time"),
        ("Start", "2026-01-05T24:00:00", "unreadable-time"),
        ("ElapsedRaw", "-3600", "negative-elapsed"),
        ("ElapsedRaw", "1e3", "unreadable-duration"),
        ("ElapsedRaw", "99999999999999999999", "end-before-start"),
        ("Suspended", "soon", "unreadable-duration"),
    ],
)
def test_a_row_that_cannot_be_true_is_kept_with_its_reason(
    tmp_path: Path, column: str, text: str, code: str
) -> None:
    changed = {column: text}
    if code == "end-before-start":  # not set, so nothing decides
        changed["End"] = "2026-01-05T07:00:00"
    bad = read_rows(tmp_path, row(**changed)).refused
    assert (bad.code, bad.line, bad.raw) == (code, 2, row(**changed))
    assert bad.source_key == ("" if column == "Submit" else "4711@1767600000")


def test_a_column_named_twice_must_agree_with_itself(tmp_path: Path) -> None:
    header = "|".join([*COLUMNS, "end"])
    same = read_rows(tmp_path, row() + "|2026-01-05T09:10:00", header=header)
    assert same.fact.ended == 1767604200
    other = read_rows(tmp_path, row() + "|2026-01-05T09:10:01", header=header)
    assert other.refused.code == "repeated-column"


def test_mixed_parts_and_untyped_gpus_are_noted_once_with_their_number(tmp_path: Path) -> None:
    mixed = "cpu=1,gres/gpu:a100_1g.5gb=1,gres/gpu:a100_3g.20gb=1"
    export = read_rows(
        tmp_path,
        row(AllocTRES=mixed),
        row(AllocTRES=mixed),
        row(AllocTRES="cpu=1,gres/gpu=4,gres/gpu:a100=2"),
    )
    assert export.reading.notes == [
        "1 row whose GPU types do not add up to gres/gpu: gres/gpu was counted, without a model.",
        "2 rows with different parts of GPUs, counted in their common fraction of a GPU.",
    ]
