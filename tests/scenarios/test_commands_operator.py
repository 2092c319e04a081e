"""Op at the shell: from an accounting file to a paid invoice, with an answer and a code for each step."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from billing.models import BillingPeriod
from clusters.models import Cluster, Pull, UsageRecord
from portal.ops.cli import RefusedError
from tests.builders import a_cluster, a_plan, a_tenant, at

pytestmark = pytest.mark.django_db

HEADER = "JobIDRaw|User|Account|Submit|Start|End|ElapsedRaw|State|AllocTRES"


def row(
    job: int, start: str = "2026-03-02T10:00:00", end: str = "2026-03-02T11:00:00", elapsed: int = 3600
) -> str:
    state = "RUNNING" if end == "Unknown" else "COMPLETED"
    return f"{job}|ben|vision|{start}|{start}|{end}|{elapsed}|{state}|cpu=4,gres/gpu=2,gres/gpu:a100=2"


def file(folder: Path, *rows: str, name: str = "march.sacct") -> Path:
    path = folder / name
    path.write_text("\n".join([HEADER, *rows, ""]))
    return path


def answer_of(command: str, *arguments: object) -> tuple[dict[str, Any], int]:
    """The answer with --json and the exit code."""
    out = io.StringIO()
    code = 0
    try:
        call_command(command, *map(str, arguments), "--json", stdout=out)
    except SystemExit as end:
        code = int(end.code or 0)
    except RefusedError as refusal:
        code = refusal.returncode
    lines = out.getvalue().splitlines()
    assert len(lines) == 1
    answer: dict[str, Any] = json.loads(lines[0])
    return answer, code


def text_of(command: str, *arguments: object) -> str:
    out = io.StringIO()
    call_command(command, *map(str, arguments), stdout=out)
    return out.getvalue().strip()


@pytest.fixture
def gpu1() -> Cluster:
    cluster = a_cluster()
    a_tenant("vision-lab", plan=a_plan(), accounts=[(cluster, "vision")])
    return cluster


def test_from_the_file_to_the_money(gpu1: Cluster, tmp_path: Path) -> None:
    march = file(tmp_path, row(1), row(2), "3|ben|vision")

    answer, code = answer_of("import_usage", "gpu1", march, "--as-of", "2026-04-01")
    assert code == 0
    assert {key: answer[key] for key in ("read", "new", "unchanged", "revised", "quarantined", "as_of")} == {
        "read": 3, "new": 2, "unchanged": 0, "revised": 0, "quarantined": 1, "as_of": "2026-04-01T00:00:00Z",
    }  # fmt: skip

    answer, code = answer_of("close_period", "2026-03")
    assert code == 0
    (closed,) = answer["tenants"]
    number = closed["number"]
    assert (closed["outcome"], closed["total"], closed["currency"]) == ("issued", "8.00", "USD")

    (invoice,) = answer_of("show_invoices", "--month", "2026-03")[0]["invoices"]
    assert (invoice["number"], invoice["subtotal"], invoice["tax"], invoice["total"]) == (
        number,
        "8.00",
        "0.00",
        "8.00",
    )
    (line,) = invoice["lines"]
    line_fields = {key: line[key] for key in ("project", "meter", "quantity", "unit", "unit_price", "amount")}
    assert line_fields == {
        "project": "vision", "meter": "gpu-hour", "quantity": "4", "unit": "GPU-hour", "unit_price": "2.00",
        "amount": "8.00",
    }  # fmt: skip
    assert answer_of("show_invoices", "--tenant", "nobody")[0] == {"invoices": []}

    explained = answer_of("explain_invoice", number)[0]["lines"][0]
    assert [job["job"] for job in explained["jobs"]] == ["1", "2"]
    assert explained["formula"] == "14400 s ÷ 3600 × 2.00 USD, rounded once = $8.00"

    paid, code = answer_of("record_payment", number, "8.00", "--reference", "A1", "--on", "2026-04-09")
    assert (paid["paid"], paid["due"], paid["status"], code) == ("8.00", "0.00", "paid", 0)
    more = text_of("record_payment", number, "3.00", "--reference", "A2", "--on", "2026-04-09")
    assert more == (
        f"{number}: 8.00 USD paid, 0.00 due: paid. 3.00 USD went to the credit balance of vision-lab."
    )
    assert answer_of("show_invoices")[0]["invoices"][0]["settlement"] == "paid"

    proof, code = answer_of("prove", "2026-03", "--source", march)
    assert (proof["holds"], code) == (True, 0)
    assert proof["source"]["facts"] == 2
    assert {(r["resource"], r["allocated"], r["billed"], r["waived"]) for r in proof["sums"]} == {
        ("gpu", "14400", "14400", "0"),
        ("cpu", "28800", "0", "28800"),
        ("memory", "0", "0", "0"),
    }


def test_a_file_imported_again_changes_nothing_and_says_so(gpu1: Cluster, tmp_path: Path) -> None:
    march = file(tmp_path, row(1), row(2, end="Unknown", elapsed=7200))
    assert answer_of("import_usage", "gpu1", march)[0]["as_of"] == "2026-03-02T12:00:00Z"

    answer, code = answer_of("import_usage", "gpu1", march)
    assert (answer["new"], answer["unchanged"], answer["revised"], code) == (0, 2, 0, 0)
    assert "Nothing changed: all of it was known already." in text_of("import_usage", "gpu1", march)
    gpu1.refresh_from_db()
    assert gpu1.complete_through == at("2026-03-02 12:00")


def test_what_cannot_be_meant_is_code_2_and_changes_nothing(gpu1: Cluster, tmp_path: Path) -> None:
    march = file(tmp_path, row(1))
    for command, *arguments in (
        ("import_usage", "gpu9", march),
        ("import_usage", "gpu1", march, "--as-of", "2100-01-01"),
        ("import_usage", "gpu1", march, "--as-of", "soon"),
        ("close_period", "2026-13"),
        ("close_period", "March"),
        ("close_period", "2026-03", "--tenant", "nobody"),
        ("close_period", "2026-03", "--as-of", "2100-01-01"),
        ("show_invoices", "--month", "2026"),
        ("prove", "2026-00"),
        ("explain_invoice", "INV-2026-0001"),
        ("record_payment", "INV-2026-0001", "8.00", "--reference", "A1"),
    ):
        answer, code = answer_of(command, *arguments)
        assert (code, set(answer)) == (2, {"error", "errors"}), command
        assert answer["error"].endswith((".", "`apply`."))
    assert not UsageRecord.objects.exists()
    assert not Pull.objects.exists()


def test_a_file_that_is_no_job_listing_is_refused_whole_with_code_1(gpu1: Cluster, tmp_path: Path) -> None:
    notice = tmp_path / "notice.txt"
    notice.write_text("Dear Op,\nthe file is on its way.\n")
    for path, sentence in (
        (notice, "There is no header line"),
        (tmp_path / "missing.sacct", "missing.sacct"),
    ):
        answer, code = answer_of("import_usage", "gpu1", path)
        assert code == 1
        assert sentence in answer["error"]
    assert not UsageRecord.objects.exists()


def test_a_blocked_close_is_code_1_and_a_preview_shows_no_number(gpu1: Cluster, tmp_path: Path) -> None:
    answer_of("import_usage", "gpu1", file(tmp_path, row(1)))

    answer, code = answer_of("close_period", "2026-03")
    assert (answer["tenants"][0]["outcome"], code) == ("blocked", 1)
    assert "--accept-incomplete" in answer["tenants"][0]["reason"]

    answer, code = answer_of(
        "close_period", "2026-03", "--dry-run", "--accept-incomplete", "the cluster is gone"
    )
    (closed,) = answer["tenants"]
    assert (answer["dry_run"], closed["outcome"], closed["number"], closed["total"], code) == (
        True, "issued", None, "4.00", 0,
    )  # fmt: skip
    assert text_of("close_period", "2026-03", "--dry-run", "--accept-incomplete", "gone") == (
        "Preview of 2026-03: nothing was kept.\n  vision-lab: would be issued $4.00"
    )
    answer, _ = answer_of("close_period", "2026-03", "--accept-incomplete", "the cluster is gone")
    assert answer["tenants"][0]["number"].endswith("-0001")


def test_a_sum_that_does_not_close_and_a_source_that_differs_are_code_1(
    gpu1: Cluster, tmp_path: Path
) -> None:
    answer_of("import_usage", "gpu1", file(tmp_path, row(1)))
    other = file(tmp_path, row(1, end="2026-03-02T12:00:00", elapsed=7200), row(2), name="other.sacct")

    answer, code = answer_of("prove", "--source", other)
    assert (answer["holds"], answer["source"]["differing"], code) == (False, 2, 1)

    UsageRecord.objects.update(gpus=1)
    answer, code = answer_of("prove")
    assert (answer["holds"], code) == (False, 1)


def test_a_payment_that_cannot_be_is_refused(gpu1: Cluster, tmp_path: Path) -> None:
    answer_of("import_usage", "gpu1", file(tmp_path, row(1)), "--as-of", "2026-04-01")
    number = answer_of("close_period", "2026-03")[0]["tenants"][0]["number"]

    assert answer_of("record_payment", number, "-1.00", "--reference", "A1")[1] == 1
    assert answer_of("record_payment", number, "1.001", "--reference", "A1")[1] == 2
    assert answer_of("record_payment", number, "much", "--reference", "A1")[1] == 2
    assert answer_of("show_invoices")[0]["invoices"][0]["due"] == "4.00"


@pytest.mark.parametrize(
    "arguments",
    [
        ("assign_account", "gpu1", "x" * 300, "vision-lab"),
        ("assign_account", "gpu1", "vision", "vision-lab", "--project", "x" * 300),
        ("assign_account", "gpu1", "vision", "vision-lab", "--since", "0001-01-01"),
        ("assign_account", "gpu1", "nul\x00", "vision-lab"),
        ("close_period", "9998-12"),
        ("close_period", "1970-01"),
    ],
)
def test_what_no_table_can_hold_is_refused_with_a_sentence(arguments: tuple[str, ...]) -> None:
    a_cluster()
    a_tenant("vision-lab", timezone="Asia/Tokyo")
    with pytest.raises(CommandError) as refused:
        call_command(*arguments)
    assert refused.value.returncode == 2
    assert not BillingPeriod.objects.exists()
