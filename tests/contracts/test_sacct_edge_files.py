"""Exports from other sites and other tools' test suites: each read, or refused with a sentence.

The counts were derived by hand from the files; each test says how.
"""

from __future__ import annotations

import pytest

from clusters.connectors.base import ConnectorError
from tests.contracts.sacct_exports import ReadExport, read_export, shared

FOLDER = "accounting/slurm_edge_cases/"
XDMOD = [  # the 26 fields of Open XDMoD's sacct command; its logs have no header line
    "JobID", "JobIDRaw", "Cluster", "Partition", "QOS", "Account", "Group", "GID", "User", "UID", "Submit",
    "Eligible", "Start", "End", "Elapsed", "ExitCode", "State", "NNodes", "NCPUS", "ReqCPUS", "ReqMem",
    "ReqTRES", "AllocTRES", "Timelimit", "NodeList", "JobName",
]  # fmt: skip


def without_header(name: str) -> ReadExport:
    return read_export(shared(FOLDER + name), columns=XDMOD)


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        ("apel_sacct.log", "There is no header line: run sacct without --noheader"),
        ("xdmod_accounting-logs.log", "name the columns with --columns"),
        ("xdmod_accounting-logs-with-job-arrays.log", "There is no header line"),
        ("xdmod_non-ended-job-state.log", "There is no header line"),
        ("xdmod_unknown-job-state.log", "There is no header line"),
        ("xdmod_utf8-multibyte-chars.log", "There is no header line"),
        ("xdmod_alloc_tres_gpu_count.json", "There is no header line"),
        ("gcm_sample-sacct-fake-line-break.txt", "import it with --delimiter '|#'"),
        ("gcm_sample-sacct-multiple-multiline.txt", "import it with --delimiter '|#'"),
        ("gcm_sample-sacct-one-multiline.txt", "import it with --delimiter '|#'"),
        ("gcm_sample-sacct-running-output.txt", "import it with --delimiter '|#'"),
        (
            "gcm_sample-sacct-output-midnight-edge-case-small.txt",
            "The export lacks JobIDRaw, Submit, Start, Account, AllocTRES, ElapsedRaw (or Elapsed).",
        ),
        ("gcm_sample-sacctmgr-qos.txt", "This is not a listing of jobs: its columns are Name, Priority"),
    ],
)
def test_is_refused_whole_with_a_sentence(file: str, sentence: str) -> None:
    with pytest.raises(ConnectorError) as refused:
        read_export(shared(FOLDER + file))
    assert sentence in str(refused.value)
    assert not refused.value.retry


def test_steps_alone_bill_nothing() -> None:
    # 68 lines after the header, all of the array task's step 8084960.0
    export = read_export(shared(FOLDER + "gcm_sample-sacct-output.txt"))
    assert (export.facts, export.bad, export.reading.steps) == ([], [], 68)


def test_running_steps_alone_bill_nothing() -> None:
    # 10 lines after the header, all 6539485.extern
    export = read_export(shared(FOLDER + "gcm_sample-sacct-running-output.txt"), delimiter="|#")
    assert (export.facts, export.bad, export.reading.steps) == ([], [], 10)


def test_bytes_that_are_not_utf_8_stop_nothing() -> None:
    # 11 lines: jobs 3557891 (99 s, 8 GPUs) and 3557892 (2:00:12, 1 GPU), and nine steps
    export = read_export(shared(FOLDER + "gcm_sample-sacct-output-invalid-utf8.txt"))
    assert [(fact.job_id, fact.state, fact.gpus) for fact in export.facts] == [
        ("3557891", "FAILED", 8),
        ("3557892", "TIMEOUT", 1),
    ]
    assert [fact.ended - fact.started for fact in export.facts if fact.ended and fact.started] == [99, 7212]
    assert (export.bad, export.reading.steps) == ([], 9)


def test_a_line_cut_off_at_its_front_is_kept_with_its_reason() -> None:
    # one line of 93 fields under a header of 109
    export = read_export(shared(FOLDER + "gcm_sample-sacct-output-with-invalid-lines.txt"))
    assert (export.refused.code, export.refused.line) == ("truncated", 2)
    assert export.refused.raw.startswith("lpha-0.0-ed|volta32gb|")


@pytest.mark.parametrize(
    "file", ["gcm_sample-sacct-one-multiline.txt", "gcm_sample-sacct-fake-line-break.txt"]
)
def test_a_line_break_inside_a_command_is_mended(file: str) -> None:
    # lines: step 200131.0, job 201729, job 201844 in two lines (81 + 30 fields make 110), step 201729.batch
    export = read_export(shared(FOLDER + file), delimiter="|#")
    assert [(fact.source_key, fact.gpus, fact.gpus * run_seconds(fact)) for fact in export.facts] == [
        ("201729@1673735314", 1024, 1024 * 79_396),
        ("201844@1673766955", 256, 256 * 87_356),
    ]
    assert (export.bad, export.reading.steps) == ([], 2)


def test_several_line_breaks_are_mended_one_by_one() -> None:
    # as above, with job 201844 three times
    export = read_export(shared(FOLDER + "gcm_sample-sacct-multiple-multiline.txt"), delimiter="|#")
    keys = [fact.source_key for fact in export.facts]
    assert keys == ["201729@1673735314", *["201844@1673766955"] * 3]
    assert (export.bad, export.reading.steps) == ([], 2)


def test_array_tasks_keep_the_id_that_people_write() -> None:
    # six rows of one JobIDRaw, 256 CPUs for three days each; AllocTRES is empty, so NCPUS counts
    export = without_header("xdmod_accounting-logs-with-job-arrays.log")
    assert [fact.job_id for fact in export.facts] == [
        "4103947_100", "4103947_[1-3]", "4103947_[1,5]", "4103947_[9-11,20]", "4103947_[91,100-102]",
        "4103947_[9-11,13,16-20]",
    ]  # fmt: skip
    assert {fact.source_key for fact in export.facts} == {"4103947@1435327020"}
    assert {(fact.cpu_milli, fact.nodes, fact.gpus, run_seconds(fact)) for fact in export.facts} == {
        (256_000, 32, 0, 259_200)
    }


def test_a_log_without_header_is_read_by_the_names_that_the_operator_gives() -> None:
    export = without_header("xdmod_accounting-logs.log")
    assert [(fact.job_id, fact.cpu_milli, fact.memory_mib, run_seconds(fact)) for fact in export.facts] == [
        ("4103947", 256_000, 3_000, 259_200),  # 3-00:00:00
        ("4107166", 36_000, 48_000, 252_184),  # 2-22:03:04
        ("4107219", 48_000, 144_000, 50_449),  # 14:00:49
        ("5692623", 0, 0, 0),
    ]
    allocation = export.facts[3]
    assert (allocation.gpus, allocation.eligible) == (2, None)  # Eligible is Unknown
    assert export.facts[1].state == "CANCELLED"
    assert export.facts[2].time_limit == 14 * 3600 + 20 * 60


def test_running_is_open_and_pending_has_not_begun() -> None:
    running, pending = without_header("xdmod_non-ended-job-state.log").facts
    assert (running.state, running.started, running.ended) == ("RUNNING", 1593545048, None)
    assert (pending.state, pending.started, pending.ended) == ("PENDING", None, None)
    # the running row's Start 2020-06-30T19:24:08 plus 22:32:22
    assert without_header("xdmod_non-ended-job-state.log").reading.proves_until == 1593545048 + 81_142


def test_states_that_slurm_does_not_know_decide_nothing() -> None:
    foo, bar = without_header("xdmod_unknown-job-state.log").facts
    # Start equals End, but 22:32:22 elapsed: the elapsed time is what was held
    assert (foo.state, foo.started, foo.ended) == ("FOO", 1593545048, 1593545048 + 81_142)
    # no Start, ended 2020-07-01T15:28:17: over before it began
    assert (bar.state, bar.started, bar.ended) == ("BAR", 1593617297, 1593617297)


def test_names_keep_their_letters() -> None:
    fact = without_header("xdmod_utf8-multibyte-chars.log").fact
    assert (fact.name, fact.cpu_milli) == ("aàb", 8000)


def run_seconds(fact: object) -> int:
    ended, started = getattr(fact, "ended", None), getattr(fact, "started", None)
    assert isinstance(ended, int)
    assert isinstance(started, int)
    return ended - started
