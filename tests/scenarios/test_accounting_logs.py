"""Op's other schedulers: logs of PBS, LSF and Grid Engine become usage once, and `prove` reads them again."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusters.models import Quarantined, UsageRecord
from tests import builders
from tests.contracts.test_accounting_logs import E, S
from tests.scenarios.real import data, run

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("form", "file", "gpu_seconds"),
    [
        ("pbs", "pbs/xdmod_pbs.log", 8_407 + 4 * 100_000 + 2 * 100_000 + 4 * 36_072),
        ("pbs", "pbs/ncar_casper_pbspro.log", 0),
        ("lsf", "lsf/xdmod_lsf.log", 0),
        ("grid-engine", "gridengine/xdmod_uge.log", 12_837),
    ],
)
def test_every_second_of_a_log_is_proved_against_the_log_itself(
    form: str, file: str, gpu_seconds: int
) -> None:
    builders.a_cluster("lab")
    path = data(f"accounting/{file}")
    first = run("import_usage", "lab", path, "--format", form)
    again = run("import_usage", "lab", path, "--format", form)
    assert (first["quarantined"], again["new"], again["revised"]) == (0, 0, 0)
    proof = run("prove", "--source", path, "--format", form)
    assert proof["holds"]
    assert proof["source"]["facts"] == UsageRecord.objects.count()
    assert proof["source"]["differing"] == 0
    (sums,) = [row for row in proof["sums"] if row["resource"] == "gpu"] or [{"allocated": "0"}]
    assert sums["allocated"] == str(gpu_seconds)


def test_what_cannot_be_true_is_kept_with_its_reason_and_bills_nothing() -> None:
    builders.a_cluster("lab")
    result = run("import_usage", "lab", data("accounting/pbs/apel_torque.log"), "--format", "pbs")
    assert (result["read"], result["quarantined"]) == (11, 2)
    assert set(Quarantined.objects.values_list("code", flat=True)) == {
        "log-field-missing",
        "end-before-start",
    }
    assert run("prove")["holds"]


def test_a_run_that_goes_on_at_the_end_of_a_day_ends_with_the_next_day_s_log(tmp_path: Path) -> None:
    builders.a_cluster("lab")
    first, second = tmp_path / "20260302", tmp_path / "20260303"
    first.write_text(f"{S}\n{E.replace('7.pbs', '8.pbs')}\n")
    second.write_text(E + "\n")
    run("import_usage", "lab", first, "--format", "pbs")
    running = UsageRecord.objects.get(job_id="7.pbs")
    assert (running.ended, running.seen_until) == (None, 1772445610)
    result = run("import_usage", "lab", second, "--format", "pbs")
    assert (result["new"], result["revised"]) == (0, 1)
    running.refresh_from_db()
    assert running.ended == 1772445610


def test_a_held_suspension_is_resolved_by_the_joined_file(tmp_path: Path) -> None:
    builders.a_cluster("lab")
    z, r = "03/02/2026 08:30:00;z;7.pbs;", "03/02/2026 08:40:30;r;7.pbs;"
    second, joined = tmp_path / "20260303", tmp_path / "joined"
    second.write_text(f"{r}\n{E}\n")
    joined.write_text("".join(f"{line}\n" for line in (S, z, r, E)))
    assert run("import_usage", "lab", second, "--format", "pbs")["quarantined"] == 1
    run("import_usage", "lab", joined, "--format", "pbs")
    assert not Quarantined.objects.filter(resolved_at=None).exists()
    assert UsageRecord.objects.get().suspended == 630
