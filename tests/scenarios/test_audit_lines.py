"""The history of changes as signed lines: a SIEM misses nothing, goes on where it stopped, and sees who forged."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from base64 import b64decode
from contextlib import suppress
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from django.core.management import call_command
from django.db import transaction
from django.test import Client

from billing.documents import signing
from billing.models import SigningKey, TaxRate
from portal.api.resources import exports
from portal.core.audit import acting_as
from portal.core.audit.models import AuditEntry, as_exact_json
from portal.core.tenants.models import Tenant
from portal.env import ROOT
from portal.ops import audit_lines
from portal.ops.cli import BadInputError, RefusedError
from tests.api.door import door
from tests.builders import an_operator

pytestmark = pytest.mark.django_db(transaction=True)


def rate(percent: str, *categories: str) -> None:
    """Op enters rates, all in one transaction."""
    with acting_as("op@cluster.example", through="page /admin/", why="Asked by tax"), transaction.atomic():
        for category in categories:
            TaxRate.objects.create(
                country="DE", category=category, rate=Decimal(percent), since=date(2026, 3, 1)
            )


def run(command: str, *words: object) -> dict[str, Any]:
    out = io.StringIO()
    call_command(command, *map(str, words), "--json", stdout=out)
    answer: dict[str, Any] = json.loads(out.getvalue())
    return answer


def verified(*files: Path) -> dict[str, Any]:
    out = io.StringIO()
    with suppress(SystemExit):  # where something is wrong
        call_command("verify_audit", *map(str, files), "--json", stdout=out)
    answer: dict[str, Any] = json.loads(out.getvalue())
    return answer


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_bytes().splitlines()]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    run(
        "export_audit", tmp_path / "start.jsonl"
    )  # which makes the key that signs, and so a change of its own
    rate("19.00", "a", "b", "c")
    rate("7.5", "d")
    rate("7.25", "e", "f")
    return tmp_path / "audit.jsonl"


def test_each_change_is_one_line_that_says_who_what_when_and_why(file: Path) -> None:
    answer = run("export_audit", file)
    lines = read(file)
    assert answer["lines"] == len(lines) == AuditEntry.objects.count()
    last = [line for line in lines if line["table"] == "billing_taxrate"]
    assert [line["after"]["category"] for line in last] == ["a", "b", "c", "d", "e", "f"]
    assert [(line["place"], line["of"]) for line in last] == [(1, 3), (2, 3), (3, 3), (1, 1), (1, 2), (2, 2)]
    first = last[0]
    assert (first["who"], first["through"], first["why"]) == (
        "op@cluster.example",
        "page /admin/",
        "Asked by tax",
    )
    assert (first["operation"], first["before"], first["tenant"]) == ("insert", None, None)
    assert first["after"]["rate"] == "19.000"  # an amount has all its digits, and is no float
    assert answer["commit"] == last[-1]["commit"]
    assert verified(file) == {
        "lines": len(lines),
        "first_commit": lines[0]["commit"],
        "last_commit": last[-1]["commit"],
        "wrong": [],
    }


def test_an_export_goes_on_behind_its_last_line(file: Path) -> None:
    run("export_audit", file)
    before = file.read_bytes()
    assert run("export_audit", file)["lines"] == 0
    rate("5", "g")
    assert run("export_audit", file)["lines"] == 1
    assert file.read_bytes().startswith(before)
    assert read(file)[-1]["after"]["category"] == "g"
    assert verified(file)["wrong"] == []


@pytest.mark.parametrize("cut", [1, 40, 700, 1500, 2600])
def test_what_a_kill_left_of_a_line_is_written_again(file: Path, cut: int) -> None:
    run("export_audit", file)
    whole = file.read_bytes()
    file.write_bytes(whole[:-cut])
    run("export_audit", file)
    assert file.read_bytes() == whole  # the same key gives the same line the same signature


def test_a_new_file_begins_behind_the_number_that_is_given_and_fits_to_the_one_before(file: Path) -> None:
    upto = run("export_audit", file)["commit"]
    new = file.with_name("next.jsonl")
    assert run("export_audit", new, "--after", upto)["lines"] == 0  # nothing has changed yet
    rate("5", "g", "h")
    new = file.with_name("next.jsonl")
    assert run("export_audit", new, "--after", upto)["lines"] == 2
    assert run("export_audit", new, "--after", upto)["lines"] == 0  # which may stay in the line of cron
    assert verified(file, new)["wrong"] == []
    assert verified(new, file)["wrong"] == [
        "Line 3: changes before it are missing, or it stands in another place."
    ]


def test_what_is_left_out_moved_changed_or_forged_is_named(file: Path) -> None:
    run("export_audit", file)
    lines = file.read_bytes().splitlines(keepends=True)

    def wrong(*parts: bytes) -> list[str]:
        file.write_bytes(b"".join(parts))
        return list(verified(file)["wrong"])

    end = len(lines)
    gap = "changes before it are missing, or it stands in another place."
    assert wrong(*lines[:-4], *lines[-3:]) == [f"Line {end - 3}: {gap}"]  # one of three changes of a commit
    assert wrong(*lines[:-3], *lines[-2:]) == [f"Line {end - 2}: {gap}"]  # a whole commit
    assert wrong(*lines[:-2], lines[-1], lines[-2]) != []
    assert wrong(*lines[:-1], lines[-1].replace(b"7.250", b"0.250")) == [
        f"Line {end}: it is not what was signed."
    ]
    assert wrong(*lines[:-1], lines[-1].replace(b'"signature":"', b'"signature":"AA')) == [
        f"Line {end}: it is not what was signed."
    ]
    assert wrong(*lines, b"{}\n") == [f"Line {end + 1}: its key or a part of it is not there: 'signature'."]
    assert wrong(*lines, b"[]\n", b"\xff\n") == [
        f"Line {end + 1}: it is no line of this history.",
        f"Line {end + 2}: it is no line of this history.",
    ]
    twice = b'{"who":"mallory@evil.example",' + lines[-1][1:]
    assert wrong(*lines[:-1], twice) == [
        f"Line {end}: it is not what was signed."
    ]  # a reader may keep the first
    assert wrong(*lines, b"[" * 200_000 + b"\n") == [f"Line {end + 1}: it is no line of this history."]
    stranger = lines[-1].replace(SigningKey.objects.get().name.encode(), b"0123456789abcdef")
    assert wrong(*lines[:-1], stranger) == [
        f"Line {end}: its key or a part of it is not there: '0123456789abcdef'."
    ]


def test_a_rotated_key_goes_on_verifying(file: Path) -> None:
    run("export_audit", file)
    call_command("rotate_signing_key", "--json", stdout=io.StringIO(), why="It is a year old")
    run("export_audit", file)
    assert len({line["key"] for line in read(file)}) == 2
    assert verified(file)["wrong"] == []


def test_anybody_verifies_a_line_with_the_published_keys(file: Path) -> None:
    """The program that docs/how-to/collect-the-history.md shows, as it stands there."""
    run("export_audit", file)
    keys = file.with_name("keys.json")
    keys.write_bytes(Client().get("/.well-known/clustertab-signing-keys.json").content)
    page = (ROOT / "docs" / "how-to" / "collect-the-history.md").read_text()
    program = page.split("```python\n")[1].split("```")[0]
    words = [sys.executable, "-c", program, str(keys), str(file)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"{len(read(file))} lines are as they were signed.\n", "")
    file.write_bytes(file.read_bytes().replace(b"7.250", b"0.250"))
    assert subprocess.run(words, capture_output=True, check=False).returncode == 1


def test_a_line_is_canonical_json_whatever_people_write_into_it(file: Path) -> None:
    Tenant.objects.create(slug="lab", name='Lab "Ö" \\ \u20ac \U0001f600 \t \x7f')
    run("export_audit", file)
    line = file.read_bytes().splitlines()[-1]
    change = json.loads(line)
    assert change["after"]["name"] == 'Lab "Ö" \\ \u20ac \U0001f600 \t \x7f'
    assert change["tenant"] == "lab"
    signature = b64decode(change.pop("signature"))
    signed = json.dumps(change, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
    public = b64decode(SigningKey.objects.get().public)
    Ed25519PublicKey.from_public_bytes(public).verify(signature, signed)


def test_after_an_older_backup_was_restored_nothing_is_exported_as_if_it_fitted(file: Path) -> None:
    run("export_audit", file)
    change = read(file)[-1] | {
        "at": "2026-03-01T10:00:00.000001Z"
    }  # another one had this number before the restore
    del change["signature"]
    signature = signing.sign(audit_lines.canonical(change), key=SigningKey.objects.get())
    content = audit_lines.canonical(change | {"signature": signature}) + b"\n"
    file.write_bytes(content)
    rate("5", "g")
    with pytest.raises(RefusedError, match="which this history does not have: an older backup was restored"):
        run("export_audit", file)
    assert file.read_bytes() == content
    answer = door(an_operator(), None, "audit:read").get(f"/exports/audit?after={change['commit'] + 90}")
    assert answer.status == 409
    assert "an older backup may have been restored" in answer.body["detail"]


def test_files_that_are_no_history_are_left_as_they_are(file: Path) -> None:
    file.write_text("Dear diary,\n")
    with pytest.raises(RefusedError, match="does not end with a line of the history: name another file"):
        run("export_audit", file)
    assert file.read_text() == "Dear diary,\n"
    for other in (b'{"access_key":"secret"}', b"one\ntwo", b"\n", b"[" * 100_000 + b"\n"):
        file.write_bytes(other)
        with pytest.raises(RefusedError, match="does not end with a line of the history: name another file"):
            run("export_audit", file)
        assert file.read_bytes() == other
    file.unlink()
    last = run("export_audit", file)["commit"]
    with pytest.raises(
        BadInputError, match=f"ends with commit {last}, so nothing can begin after {last + 1}"
    ):
        run("export_audit", file, "--after", last + 1)
    with pytest.raises(BadInputError, match=f"has no commit {last + 1} yet"):
        run("export_audit", file.with_name("new.jsonl"), "--after", last + 1)
    with pytest.raises(BadInputError, match="0 or more"):
        run("export_audit", file, "--after", -1)
    assert file.stat().st_mode & 0o777 == 0o640
    with pytest.raises(RefusedError, match="cannot be written"):
        run("export_audit", file.parent)
    with pytest.raises(RefusedError, match="cannot be read"):
        run("verify_audit", file.with_name("none.jsonl"))


def test_a_siem_fetches_them_over_http(file: Path) -> None:
    run("export_audit", file)
    lines = file.read_bytes().splitlines(keepends=True)
    siem = door(an_operator(), None, "audit:read")
    lines += siem.get(f"/exports/audit?after={read(file)[-1]['commit']}").raw.splitlines(keepends=True)
    whole = siem.get("/exports/audit")
    assert whole.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert whole.raw.splitlines(keepends=True) == lines
    place = next(place for place, line in enumerate(lines) if json.loads(line)["place"] == 2)
    middle = json.loads(lines[place])
    assert siem.get(f"/exports/audit?after={middle['commit']}.2").raw == b"".join(lines[place + 1 :])
    assert siem.get(f"/exports/audit?after={json.loads(lines[-1])['commit']}").raw == b""
    assert siem.get("/exports/audit?after=soon").status == 400


def test_an_answer_is_bounded_and_the_next_goes_on(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "LINES", 2)
    siem, content, behind = door(an_operator(), None, "audit:read"), b"", "0"
    while answer := siem.get(f"/exports/audit?after={behind}").raw:
        assert len(answer.splitlines()) <= 2
        content += answer
        last = json.loads(answer.splitlines()[-1])
        behind = f"{last['commit']}" if last["place"] == last["of"] else f"{last['commit']}.{last['place']}"
    monkeypatch.setattr(exports, "LINES", 1000)
    assert content == siem.get("/exports/audit").raw


def test_before_any_key_signs_that_is_said() -> None:
    answer = door(an_operator(), None, "audit:read").get("/exports/audit")
    assert answer.status == 409
    assert "No key signs yet" in answer.body["detail"]


def test_numbers_that_readers_of_json_would_round_are_text_with_all_their_digits() -> None:
    value = {
        "rate": Decimal("0.0000001"),
        "cents": 2**53 - 1,
        "record": 2**53,
        "is": True,
        "of": [Decimal("1E+3"), None],
    }
    assert as_exact_json(value) == {
        "rate": "0.0000001",
        "cents": 9007199254740991,
        "record": "9007199254740992",
        "is": True,
        "of": ["1000", None],
    }
