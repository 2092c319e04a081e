"""A program of Op's has the charges of all tenants written, follows how far that is, and downloads the file."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from billing.models import FocusExport
from billing.reports import focus_exports
from tests.api.door import Door
from tests.builders import at
from tests.scenarios.test_commands_operator import answer_of

pytestmark = pytest.mark.django_db

NOW = at("2026-04-20 08:00")
MARCH = {"period": "2026-03"}


def work() -> None:
    focus_exports.perform_next(clock=lambda: NOW)


def test_api_058_op_has_march_of_all_tenants_written_and_fetches_it(op: Door, tmp_path: Path) -> None:
    accepted = op.post("/focus-exports", MARCH)
    assert (accepted.status, accepted.body["state"]) == (202, "waiting")
    assert accepted.body["progress"] == {"done": 0, "total": None}
    assert op.post("/focus-exports", MARCH).body["id"] == accepted.body["id"]
    name = accepted.body["id"]
    assert op.get(f"/focus-exports/{name}/file").problem == (409, "refused")

    work()
    followed = op.get(f"/operations/{name}").body
    assert (followed["state"], followed["result"]) == (
        "succeeded",
        f"/api/v1/focus-exports/{name}/file",
    )
    tenants = followed["progress"]["total"]
    assert followed["progress"] == {"done": tenants, "total": tenants}
    file = op.get(f"/focus-exports/{name}/file")
    answer_of("export_focus", "2026-03", tmp_path / "march.csv")
    assert file.raw == (tmp_path / "march.csv").read_bytes()
    charged = {row["BillingAccountId"] for row in csv.DictReader(io.StringIO(file.raw.decode()))}
    assert charged == {"tenants/vision-lab", "tenants/speech-lab"}
    assert (file.headers["ClusterTab-Status"], file.headers["Content-Length"]) == (
        "final",
        str(len(file.raw)),
    )
    assert file.headers["Content-Disposition"] == 'attachment; filename="focus-1.2-all-2026-03.csv"'
    (row,) = op.get("/focus-exports").body["data"]
    assert (row["id"], row["period"], row["format"], row["size"]) == (name, "2026-03", "csv", len(file.raw))
    assert "API key" in row["requested_by"]
    assert row["fetched_by"] == row["requested_by"]


def test_api_060_a_month_that_goes_on_is_preliminary_and_parquet_is_written_too(op: Door) -> None:
    accepted = op.post("/focus-exports", {"period": "2150-01", "format": "parquet"})
    work()
    file = op.get(f"/focus-exports/{accepted.body['id']}/file")
    assert (file.headers["ClusterTab-Status"], file.raw[:4]) == ("preliminary", b"PAR1")
    assert "-2150-01-preliminary.parquet" in file.headers["Content-Disposition"]


def test_a_failure_says_what_failed(op: Door) -> None:
    accepted = op.post("/focus-exports", MARCH)
    refused = op.post("/focus-exports", MARCH | {"format": "parquet"})
    assert (refused.status, "as CSV: wait until that is ready" in refused.body["detail"]) == (409, True)
    FocusExport.objects.update(attempts=focus_exports.ATTEMPTS)
    work()
    failed = op.get(f"/operations/{accepted.body['id']}").body
    assert (failed["state"], failed["result"]) == ("failed", None)
    assert "the worker's log says why" in failed["problem"]["detail"]
    refused = op.get(f"/focus-exports/{accepted.body['id']}/file")
    assert (refused.status, "There is no file of 2026-03" in refused.body["detail"]) == (409, True)


@pytest.mark.parametrize(
    "body", [{}, {"period": "2026-13"}, {"period": "9998-01"}, MARCH | {"format": "xls"}]
)
def test_what_is_no_month_or_no_kind_of_file_is_refused(body: dict[str, str], op: Door) -> None:
    assert op.post("/focus-exports", body).status == 400
    assert not FocusExport.objects.exists()


def test_keys_of_tenants_get_nothing(op: Door, ann: Door) -> None:
    name = op.post("/focus-exports", MARCH).body["id"]
    work()
    assert ann.get("/focus-exports").status == 403
    assert ann.post("/focus-exports", MARCH).status == 403
    assert ann.get(f"/focus-exports/{name}/file").status == 403
    assert ann.get(f"/operations/{name}").status == 403
    assert op.get("/focus-exports/focus_0000000000000/file").status == 404
