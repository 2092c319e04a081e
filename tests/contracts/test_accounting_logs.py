"""Real records of PBS, Torque, LSF and Grid Engine: seconds, CPUs and GPUs as counted by hand, and odd rows kept."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.connectors.accounting.formats import FORMATS, Export, open_export
from clusters.connectors.accounting.log import gpu_count
from clusters.connectors.base import BadRow, ConnectorError, UnreadableError, UsageFact
from portal.env import ROOT
from tests.contracts.sacct_exports import UTC, shared
from tests.contracts.test_filled_columns import filled

FORM_OF = {"pbs": "pbs", "lsf": "lsf", "gridengine": "grid-engine"}
# By hand: (file, line) of records that nobody can read as a run, and why.
REFUSED = {
    ("pbs/apel_torque.log", 1): "log-field-missing",  # etime and start in one word
    ("lsf/apel_lsf.log", 1): "log-field-missing",  # two texts without a blank between them
}


def log(name: str, form: str, *, zone: ZoneInfo = UTC) -> Export:
    return open_export(shared(f"accounting/{name}"), form, zone=zone)


def counted_by_hand() -> list[dict[str, str]]:
    with shared("truth/accounting_records.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("folder", FORM_OF)
def test_every_run_of_every_real_log_comes_out_as_counted_by_hand(folder: str) -> None:
    records = [row for row in counted_by_hand() if row["file"].startswith(f"{folder}/")]
    for name in sorted({row["file"] for row in records}):
        ended = [row for row in records if row["file"] == name and row["record"] not in {"Q", "S"}]
        rows = list(log(name, FORM_OF[folder]).rows())
        assert len(rows) == len(ended), name
        for row, by_hand in zip(rows, ended, strict=True):
            reason = REFUSED.get((name, int(by_hand["line"])))
            if reason:
                assert isinstance(row, BadRow)
                assert (row.code, row.line) == (reason, int(by_hand["line"]))
                continue
            assert isinstance(row, UsageFact), by_hand
            assert row.started is not None
            assert row.ended is not None
            assert row.ended - row.started == int(by_hand["end_minus_start_s"]), by_hand
            assert row.job_id.partition("[")[0] == by_hand["job"].partition("[")[0]
            assert (row.user, row.cpu_milli, row.gpus) == (
                by_hand["user"], int(by_hand["cpus"]) * 1000, int(by_hand["gpus"]),
            ), by_hand  # fmt: skip
            if by_hand["account"] not in {"", "NONE"}:
                assert row.account == by_hand["account"]


def test_a_run_that_goes_back_to_the_queue_is_billed_apart_from_the_next_one() -> None:
    rows = [row for row in log("pbs/ncar_casper_pbspro.log", "pbs").rows() if isinstance(row, UsageFact)]
    assert [(row.source_key, row.state) for row in rows[:2]] == [
        ("4215033.casper-pbs#1743440360@1743440355", "REQUEUED"),
        ("4215033.casper-pbs#1743440371@1743440355", "ENDED"),
    ]


S = (
    "03/02/2026 08:00:10;S;7.pbs;user=ben group=vision project=_pbs_project_default jobname=train queue=gpu "
    "ctime=1772438400 qtime=1772438400 etime=1772438400 start=1772438410 exec_host=n1/0*8 "
    "exec_vnode=(n1:ncpus=8:ngpus=2:mem=16777216kb) Resource_List.select=1:ncpus=8:ngpus=2:gpu_type=a100 "
    "Resource_List.walltime=24:00:00"
)
E = (
    S.replace(";S;", ";E;").replace("08:00:10", "10:00:10")
    + " end=1772445610 Exit_status=0 resources_used.walltime=02:00:00"
)


def pbs(tmp_path: Path, *lines: str) -> list[UsageFact | BadRow]:
    path = tmp_path / "20260302"
    path.write_text("".join(f"{line}\n" for line in lines))
    return [row for row in open_export(path, "pbs", zone=UTC).rows() if isinstance(row, UsageFact | BadRow)]


def test_a_run_without_an_end_still_ran_when_the_last_record_was_written(tmp_path: Path) -> None:
    other = E.replace("7.pbs", "8.pbs")
    ended, running = pbs(tmp_path, S, other)
    assert isinstance(running, UsageFact)
    assert isinstance(ended, UsageFact)
    assert (running.job_id, running.ended, running.seen_until, running.state) == (
        "7.pbs",
        None,
        1772445610,
        "RUNNING",
    )
    assert (ended.gpus, ended.gpu_model, ended.memory_mib, ended.account) == (2, "a100", 16384, "vision")
    (again,) = pbs(tmp_path, S, E)
    assert isinstance(again, UsageFact)
    assert again.source_key == running.source_key  # its end is a revision of the same run


def test_suspended_seconds_are_those_between_its_records(tmp_path: Path) -> None:
    z, r = "03/02/2026 08:30:00;z;7.pbs;", "03/02/2026 08:40:30;r;7.pbs;"
    (fact,) = pbs(tmp_path, S, z, r, E)
    assert isinstance(fact, UsageFact)
    assert fact.suspended == 630
    (deleted,) = pbs(tmp_path, S, z, E)  # deleted while it was suspended: nothing resumes it
    assert isinstance(deleted, UsageFact)
    assert deleted.suspended == 1772445610 - 1772440200
    (running,) = pbs(tmp_path, S, z, r)
    assert isinstance(running, UsageFact)
    assert (running.suspended, running.seen_until) == (630, 1772440830)


def test_a_suspension_that_began_in_another_file_is_held_for_review(tmp_path: Path) -> None:
    (held,) = pbs(tmp_path, "03/02/2026 08:40:30;r;7.pbs;", E)
    assert isinstance(held, BadRow)
    assert (held.code, held.source_key) == ("pbs-suspension", "7.pbs#1772438410@1772438400")
    assert "import them as one" in held.reason


def test_a_run_of_an_earlier_file_that_is_longer_than_pbs_measured_is_held_for_review(tmp_path: Path) -> None:
    shorter = E.replace("walltime=02:00:00", "walltime=01:49:30")
    (held,) = pbs(tmp_path, shorter)  # its z and r, if there are any, are in the file of the day before
    assert isinstance(held, BadRow)
    assert held.code == "pbs-suspension"
    (whole,) = pbs(tmp_path, S, shorter)  # all of it is here: PBS began to measure late
    assert isinstance(whole, UsageFact)
    assert whole.suspended == 0


def test_jobs_that_gave_nodes_back_are_held_for_review(tmp_path: Path) -> None:
    (held,) = pbs(tmp_path, S, S.replace(";S;", ";u;"), E)
    assert isinstance(held, BadRow)
    assert held.code == "pbs-phases"


def test_a_run_that_begins_twice_is_not_lost(tmp_path: Path) -> None:
    later = S.replace("start=1772438410", "start=1772440000")
    lost, running = pbs(tmp_path, S, later)
    assert isinstance(lost, BadRow)
    assert lost.code == "pbs-run-without-end"
    assert isinstance(running, UsageFact)
    assert running.started == 1772440000


def test_an_array_itself_and_what_only_waited_are_counted_and_bill_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(
        f"{E.replace('7.pbs', '9[].pbs')}\n{E.replace('7.pbs', '9[3].pbs')}\n03/02/2026 09:00:00;A;10.pbs;\n"
    )
    export = open_export(path, "pbs", zone=UTC)
    assert [getattr(row, "job_id", "") for row in export.rows()] == ["9[3].pbs"]
    assert export.reading.steps == 2


@pytest.mark.parametrize(
    ("spec", "gpus", "cpus"),
    [
        ("Resource_List.nodes=2:ppn=8:gpus=2+1:ppn=4", 4, 20),
        ("Resource_List.nodes=n7:ppn=4:gpus=1", 1, 4),
        ("Resource_List.ngpus=3 Resource_List.ncpus=6", 3, 6),
        ("exec_vnode=(a:ncpus=4:ngpus=1)+(b:ncpus=4:ngpus=1+c:ncpus=2) Resource_List.ngpus=9", 2, 10),
        ("exec_host=a/0-3,5+b/1*2", 0, 7),
        ("exec_gpus=n1-gpu/0+n1-gpu/1 Resource_List.nodes=1:ppn=2:gpus=1", 2, 2),
        ("exec_vnode=(n1:ncpus=8) Resource_List.select=2:ncpus=8:ngpus=2", 4, 8),
    ],
)
def test_what_pbs_and_torque_gave(spec: str, gpus: int, cpus: int, tmp_path: Path) -> None:
    head = "03/02/2026 10:00:10;E;7.pbs;user=ben ctime=1772438400 start=1772438410 end=1772445610"
    (fact,) = pbs(tmp_path, f"{head} {spec}")
    assert isinstance(fact, UsageFact)
    assert (fact.gpus, fact.cpu_milli) == (gpus, cpus * 1000)


@pytest.mark.parametrize("text", ["", "some"])
def test_a_gpu_job_of_pbs_whose_count_nobody_can_read_is_never_zero(text: str, tmp_path: Path) -> None:
    (bad,) = pbs(tmp_path, f"{E.replace(':ngpus=2', '')} Resource_List.ngpus={text}")
    assert isinstance(bad, BadRow)


# IBM's reference of lsb.acct (10.1): the fields in their order; of a job with two GPUs on each of two hosts.
LSF = (
    '"JOB_FINISH" "10.108" 1772445610 386 1501 33554434 2 1772438400 0 0 1772438410 "ben" "gpu" "" "" "" "login1" '
    '"/home/ben" "" "" "" "1772438400.386" 0 2 "n1" "n2" 64 100.0 "train ""x""" "python train.py" '
    "0.004997 0.006155 3748 0 -1 0 0 436 4 0 928 0 -1 0 0 0 19 2 -1 "
    '"" "vision" 0 2 "" "" 3 2048 0 "" "" "" "" 0 "" 0 "" -1 "" "" "" "" -1 "" "" 5136 "" 1772438410 "" "" 1 1110 '
    '"default" 0 86400 4194304 1024 "select[type == any] rusage[{rusage}] span[ptile=1]" "" -1 "" -1 0 "" 0 0 "" '
    '{run} "/home/ben" 0 "" 0.000000 0.00 0.00 0.00 0.00 2 "n1" "n2" -1 0 0 {hosts} 0 1 "schedulingOverhead" "0.00"'
)


def lsf(
    tmp_path: Path, *, rusage: str = "ngpus_physical=2.00", run: int = 7200, hosts: int = 0
) -> UsageFact | BadRow:
    path = tmp_path / "lsb.acct"
    path.write_text(LSF.format(rusage=rusage, run=run, hosts=hosts) + "\n")
    (row,) = open_export(path, "lsf", zone=UTC).rows()
    assert isinstance(row, UsageFact | BadRow)
    return row


def test_gpus_of_lsf_are_of_each_host_and_what_did_not_run_was_suspended(tmp_path: Path) -> None:
    fact = lsf(tmp_path, run=6600)
    assert isinstance(fact, UsageFact)
    assert (fact.gpus, fact.cpu_milli, fact.nodes, fact.suspended) == (4, 2000, 2, 600)
    assert (fact.job_id, fact.name, fact.account, fact.time_limit) == ("386[3]", 'train "x"', "vision", 86400)


@pytest.mark.parametrize(
    ("rusage", "hosts"), [("mem=1", 1), ("ngpus_physical=2.00/task", 0), ("ngpus_physical=some", 0)]
)
def test_a_gpu_job_of_lsf_whose_count_nobody_can_read_is_never_zero(
    rusage: str, hosts: int, tmp_path: Path
) -> None:
    row = lsf(tmp_path, rusage=rusage, hosts=hosts)
    assert isinstance(row, BadRow)
    assert row.code == "log-gpus"


GRID_ENGINE = (
    "gpu.q:n1:vision:ben:train:{job}:sge:0:1772438400:1772438410:1772445610:{failed}:0:7200:0:0:0:0:0:0:0:0:0:0:0:0:0:0:"
    "0:0:0:NONE:defaultdepartment:{pe}:0:0:0:0:{category}:0:NONE:0:0:0\n"
)


def grid_engine(
    tmp_path: Path, category: str, *, form: str = "grid-engine", pe: str = "NONE:1", failed: str = "0"
) -> UsageFact | BadRow:
    path = tmp_path / "accounting"
    path.write_text("# Version: 8.1.9\n" + GRID_ENGINE.format(job=7, category=category, pe=pe, failed=failed))
    (row,) = open_export(path, form, zone=UTC).rows()
    assert isinstance(row, UsageFact | BadRow)
    return row


def test_gpus_of_grid_engine_are_of_the_job_or_of_each_slot_by_choice(tmp_path: Path) -> None:
    category = "-u ben -l gpu=2,gpu_type=a100,h_rt=3600 -pe smp 4"
    of_job = grid_engine(tmp_path, category, pe="smp:4")
    of_slot = grid_engine(tmp_path, category, pe="smp:4", form="grid-engine-per-slot")
    assert isinstance(of_job, UsageFact)
    assert isinstance(of_slot, UsageFact)
    assert (of_job.gpus, of_job.gpu_model, of_job.cpu_milli, of_job.account) == (2, "a100", 4000, "vision")
    assert of_slot.gpus == 8


@pytest.mark.parametrize("category", ["-l gpu=TRUE", "-l gpu_class=2"])
def test_a_gpu_job_of_grid_engine_whose_count_nobody_can_read_is_never_zero(
    category: str, tmp_path: Path
) -> None:
    row = grid_engine(tmp_path, category)
    assert isinstance(row, BadRow)
    assert row.code == "log-gpus"


def test_what_is_only_wished_for_and_memory_of_gpus_are_no_gpus(tmp_path: Path) -> None:
    row = grid_engine(tmp_path, "-l gpu_mem=16G -soft -l gpu=1")
    assert isinstance(row, UsageFact)
    assert row.gpus == 0


@pytest.mark.parametrize("form", [form for form in FORMATS if not form.startswith("sacct")])
def test_a_file_of_another_program_is_refused_whole(form: str, tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_text("JobIDRaw|User|State\n1|ben|COMPLETED\n")
    with pytest.raises(ConnectorError, match=r"^other is no (accounting log|export|answer) of "):
        open_export(path, form, zone=UTC)
    path.write_bytes(gzip.compress(b"\n\n"))
    with pytest.raises(ConnectorError, match="is empty"):
        open_export(path, form, zone=UTC)


def test_a_torn_last_line_and_a_stray_one_are_kept_with_their_reason(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(f"{E}\nnot of this world\n{E.replace('7.pbs', '8.pbs')[:-20]}")
    rows = list(open_export(path, "pbs", zone=UTC).rows())
    assert [(getattr(row, "code", ""), getattr(row, "line", 0)) for row in rows] == [
        ("", 0), ("log-record", 2), ("unfinished", 3),
    ]  # fmt: skip


@given(st.integers(0, 999))
def test_a_count_of_gpus_is_a_whole_number_however_it_is_written(number: int) -> None:
    assert gpu_count("gpu", f"{number}.00") == gpu_count("gpu", str(number)) == number
    with pytest.raises(UnreadableError):
        gpu_count("gpu", f"{number}.5")


def documented() -> dict[str, set[str]]:
    """By format, the columns that the docs say its recorded logs fill."""
    page = (ROOT / "docs/reference/accounting-logs.md").read_text()
    table = page.partition("## What each source fills\n")[2].partition("\n#")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.splitlines()
        if line[:1] == "|"
    ]
    assert rows[0] == ["column", "PBS", "LSF", "Grid Engine"]
    columns = enumerate(FORM_OF, start=1)
    return {folder: {row[0].strip("`") for row in rows[2:] if row[at] == "yes"} for at, folder in columns}


@pytest.mark.parametrize("folder", FORM_OF)
def test_the_docs_say_which_columns_recorded_logs_fill(folder: str, tmp_path: Path) -> None:
    names = sorted({row["file"] for row in counted_by_hand() if row["file"].startswith(f"{folder}/")})
    facts = [row for name in names for row in log(name, FORM_OF[folder]).rows() if isinstance(row, UsageFact)]
    if folder == "pbs":  # the log as it stood before its last record: the run of that one goes on
        lines = shared("accounting/pbs/ncar_casper_pbspro.log").read_text().splitlines()
        facts += [row for row in pbs(tmp_path, *lines[:-1]) if isinstance(row, UsageFact)]
    assert filled(facts) == documented()[folder]
