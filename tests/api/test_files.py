"""Op's scripts send accounting files, which a worker imports. Cases 32 and 41 of the API."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from datetime import datetime

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from billing.models import RatedJob
from billing.rating import file_imports
from billing.rating.file_imports import FileRefusedError
from clusters.models import ClusterKind, FileFormat, UsageFile, UsageFilePart, UsageRecord
from portal.core.outbox.models import OutboxMessage
from tests import builders
from tests.api.door import Answer, Door
from tests.contracts.test_accounting_logs import E, S
from tests.web.house import House

pytestmark = pytest.mark.django_db

HEADER = "JobIDRaw|JobID|Cluster|Account|User|State|Submit|Start|End|ElapsedRaw|AllocTRES|Partition|QOS"
ROW = (
    "{id}|{id}|gpu1|vision|ben|COMPLETED|2026-03-05T08:59:00|2026-03-05T09:00:00|2026-03-05T11:00:00|7200|"
    "billing=8,cpu=8,gres/gpu:a100=1,gres/gpu=1,mem=64G,node=1|gpu|normal"
)
EXPORT = "\n".join([HEADER, *(ROW.format(id=number) for number in (501, 502, 503))]) + "\n"


def put(op: Door, name: str, content: bytes, query: str = "", **headers: str) -> Answer:
    sent = {"Content-Type": "application/octet-stream"} | headers
    return op.send("PUT", f"/clusters/gpu1/files/{name}{query}", content, **sent)


def now() -> datetime:
    return builders.at("2026-05-02")


def test_api_041_a_file_is_imported_by_a_worker_and_its_content_forgotten(house: House, op: Door) -> None:
    answer = put(op, "march.txt", EXPORT.encode())
    assert (answer.status, answer.body["state"]) == (202, "waiting"), answer.raw
    assert OutboxMessage.objects.filter(task="billing.tasks.files_due").count() == 1
    assert file_imports.import_file(UsageFile.objects.get().pk, clock=now)
    finished = op.reads(f"/operations/{answer.body['id']}")
    assert (finished["state"], finished["progress"]) == ("succeeded", {"done": 3, "total": 3})
    pull = op.reads(finished["result"].removeprefix("/api/v1"))
    assert (pull["source"], pull["new"], pull["quarantined"]) == ("march.txt", 3, 0)
    assert RatedJob.objects.filter(tenant=house.vision, job_id__in=["501", "502", "503"]).count() == 3
    assert not UsageFilePart.objects.exists()
    assert not file_imports.import_file(UsageFile.objects.get().pk, clock=now)


def test_api_031_the_same_file_again_is_the_same_operation(house: House, op: Door) -> None:
    first = put(op, "march.txt", EXPORT.encode()).body
    assert put(op, "march.txt", EXPORT.encode()).body == first
    file_imports.import_file(UsageFile.objects.get().pk, clock=now)
    assert put(op, "march.txt", EXPORT.encode()).body["id"] == first["id"]
    assert put(op, "march.txt", EXPORT.encode() + b"\n").body["id"] != first["id"]


def test_api_032_a_worker_that_died_is_followed_by_another(
    house: House, op: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = put(op, "march.txt.gz", gzip.compress(EXPORT.encode())).body
    row = UsageFile.objects.get()

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("billing.rating.file_imports.ingest.ingest", die)
        with pytest.raises(KeyboardInterrupt):
            file_imports.import_file(row.pk, clock=now)
    assert op.reads(f"/operations/{operation['id']}")["state"] == "running"
    assert file_imports.import_file(row.pk, clock=now)
    assert op.reads(f"/operations/{operation['id']}")["progress"]["done"] == 3
    gone = put(op, "april.txt", EXPORT.encode()).body
    UsageFile.objects.filter(name="april.txt").update(attempts=file_imports.ATTEMPTS)
    file_imports.import_file(UsageFile.objects.get(name="april.txt").pk, clock=now)
    assert "never ended" in op.reads(f"/operations/{gone['id']}")["problem"]["detail"]


def test_api_042_a_file_that_the_command_refuses_fails_with_the_same_sentence(
    house: House, op: Door, tmp_path: pytest.TempPathFactory
) -> None:
    text = "not|an|export\n1|2|3\n"
    path = tmp_path / "notes.txt"  # type: ignore[operator]
    path.write_text(text)
    with pytest.raises(CommandError) as by_command:
        call_command("import_usage", "gpu1", str(path))
    operation = put(op, "notes.txt", text.encode()).body
    file_imports.import_file(UsageFile.objects.get().pk, clock=now)
    failed = op.reads(f"/operations/{operation['id']}")
    assert (failed["state"], failed["problem"]["detail"]) == ("failed", str(by_command.value))
    assert put(op, "notes.txt", text.encode()).body["id"] != operation["id"]


def test_api_041_logs_of_other_schedulers_are_imported_as_their_format_says(house: House, op: Door) -> None:
    operation = put(op, "20260302", f"{S}\n{E}\n".encode(), "?format=pbs").body
    assert file_imports.import_file(UsageFile.objects.get().pk, clock=now)
    ended = op.reads(f"/operations/{operation['id']}")
    assert (ended["state"], UsageRecord.objects.get(job_id="7.pbs").job_id) == ("succeeded", "7.pbs")


def test_api_041_what_is_no_file_is_refused(house: House, op: Door) -> None:
    assert put(op, "a", b"x", **{"Content-Type": "application/json"}).problem[0] == 415
    assert put(op, "a", b"x", "?as_of=2199-01-01T00:00:00Z").problem == (409, "refused")
    assert put(op, "a", b"x", "?format=csv").problem == (400, "invalid-request")
    house.cluster.kind = ClusterKind.PUSH
    house.cluster.save()
    assert "fed by pushed usage" in put(op, "a", b"x").body["detail"]
    assert not UsageFile.objects.exists()


def test_api_041_a_file_is_never_held_whole(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("billing.rating.file_imports.LARGEST", 25)
    stream = io.BytesIO(b"x" * 30)
    with pytest.raises(FileRefusedError, match="larger than"):
        file_imports.store_file(
            cluster=house.cluster,
            name="large",
            kind=FileFormat.SACCT,
            pieces=iter(lambda: stream.read(10), b""),
            as_of=None,
            by="op",
            moment=now(),
        )
    assert not UsageFilePart.objects.exists()


def test_api_043_the_pull_of_a_file_has_the_fields_of_the_command(
    house: House, op: Door, capsys: pytest.CaptureFixture[str], tmp_path: pytest.TempPathFactory
) -> None:
    path = tmp_path / "march.txt"  # type: ignore[operator]
    path.write_text(EXPORT)
    call_command("import_usage", "gpu1", str(path), "--json")
    printed = json.loads(capsys.readouterr().out)
    pull = op.reads("/pulls")["data"][0]
    assert {*printed} - {"file"} <= {*pull}
    for name in ("cluster", "read", "new", "unchanged", "revised", "quarantined", "steps", "as_of"):
        assert pull[name] == printed[name], name


def test_api_063_the_addresses_load_neither_connectors_nor_stripe_nor_documents() -> None:
    code = "import django, sys; django.setup(); import portal.api.routes; print(*sys.modules)"
    loaded = {
        *subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
    }
    heavy = {"stripe", "typst", "httpx", "clusters.connectors.slurm", "clusters.connectors.prometheus"}
    assert "portal.api.routes" in loaded
    assert not heavy & loaded
