"""A program of Op's asks which months are sealed, has one sealed and unsealed, and follows how far that is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from billing.models import SealedMonth, SealRun
from billing.proof import checks
from billing.sealed_months import drop, seal_runs
from clusters.models import Cluster
from portal.core.audit.models import AuditEntry
from tests import builders
from tests.api.door import Door, a_key
from tests.builders import ingest
from tests.sealed_march import MARCH, NOW, enter_march, sealed
from tests.stories import close

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _directory(settings: Any, tmp_path: Path) -> None:
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"
    settings.CLUSTERTAB_SEAL_AFTER_MONTHS = -60  # stories import in 2030


@pytest.fixture
def op() -> Door:
    enter_march()
    checks.prove(moment=NOW)
    return Door(a_key(builders.an_operator(), None).secret)


def months(op: Door) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = op.get("/sealed-months").body["months"]
    return listed


@pytest.mark.sample
def test_a_program_seals_a_month_and_unseals_it_and_the_history_names_its_key(op: Door) -> None:
    (march,) = months(op)
    assert (march["month"], march["state"], march["records"], march["files"]) == ("2026-03", "ready", 4, 0)
    accepted = op.post("/sealed-months", {"month": "2026-03", "kind": "seal"})
    assert (accepted.status, accepted.body["state"]) == (202, "waiting")
    again = op.post("/sealed-months", {"month": "2026-03", "kind": "seal"})
    assert again.body["id"] == accepted.body["id"]
    assert SealRun.objects.count() == 1
    seal_runs.perform_next(clock=lambda: NOW)
    followed = op.get(f"/operations/{accepted.body['id']}").body
    assert (followed["state"], followed["result"]) == ("succeeded", "/api/v1/sealed-months")
    (march,) = months(op)
    assert (march["state"], march["files"], march["sealed_at"]) == ("sealed", 6, "2031-06-01T02:00:00Z")
    assert march["sealed_by"] == AuditEntry.objects.of_table(SealedMonth).get().who
    assert "API key" in march["sealed_by"]
    op.post("/sealed-months", {"month": "2026-03", "kind": "unseal"})
    seal_runs.perform_next(clock=lambda: NOW)
    assert months(op)[0]["state"] == "ready"


def test_a_preview_keeps_nothing_and_what_is_refused_says_why(op: Door, settings: Any) -> None:
    preview = op.post("/sealed-months?dry_run=true", {"month": "2026-03", "kind": "seal"})
    assert preview.status == 202
    assert not SealRun.objects.exists()
    refused = op.post("/sealed-months", {"month": "2026-03", "kind": "unseal"})
    assert (refused.status, refused.body["detail"]) == (409, "2026-03 is not sealed.")
    assert op.post("/sealed-months", {"month": "March", "kind": "seal"}).status == 400
    settings.CLUSTERTAB_SEALED_MONTHS = None
    refused = op.post("/sealed-months", {"month": "2026-03", "kind": "seal"})
    assert refused.body["detail"] == "SEALED_MONTHS_DIRECTORY is not set, so there are no sealed months."


def test_what_a_worker_could_not_do_is_the_problem_of_its_operation(op: Door, settings: Any) -> None:
    operation = op.post("/sealed-months", {"month": "2026-03", "kind": "seal"}).body
    settings.CLUSTERTAB_SEAL_AFTER_MONTHS = 18
    seal_runs.perform_next(clock=lambda: NOW)
    followed = op.get(f"/operations/{operation['id']}").body
    assert followed["state"] == "failed"
    assert followed["problem"]["detail"].startswith("It was changed last on 2030-01-01")
    (march,) = months(op)
    assert (march["state"], march["blockers"]) == ("blocked", [followed["problem"]["detail"]])


def test_a_program_sees_that_the_rows_of_a_month_are_in_files_alone(op: Door) -> None:
    ingest(Cluster.objects.get(), as_of="2026-05-02")
    close("2026-04", on="2026-05-03")
    sealed()
    assert [(row["state"], row["dropped_at"]) for row in months(op)] == [("sealed", None)]
    assert months(op)[0]["table_bytes"] > 0
    drop.drop_month(month=MARCH, moment=NOW, all_processes_replaced=True)
    assert [(row["state"], row["dropped_at"]) for row in months(op)] == [("dropped", "2031-06-01T02:00:00Z")]


def test_a_program_drops_the_rows_of_a_month_and_loads_them_back(op: Door) -> None:
    ingest(Cluster.objects.get(), as_of="2026-05-02")
    close("2026-04", on="2026-05-03")
    sealed()
    drops = {"month": "2026-03", "kind": "drop"}
    refused = op.post("/sealed-months", drops)
    assert refused.status == 409
    assert "replace all of them, on each machine, then confirm that" in refused.body["detail"]
    accepted = op.post("/sealed-months", drops | {"all_processes_replaced": True})
    seal_runs.perform_next(clock=lambda: NOW)
    assert op.get(f"/operations/{accepted.body['id']}").body["state"] == "succeeded"
    assert months(op)[0]["state"] == "dropped"
    accepted = op.post("/sealed-months", {"month": "2026-03", "kind": "load"})
    seal_runs.perform_next(clock=lambda: NOW)
    assert op.get(f"/operations/{accepted.body['id']}").body["state"] == "succeeded"
    assert months(op)[0]["state"] == "sealed"
    assert op.post("/sealed-months", drops).status == 202  # asked once, of the first
