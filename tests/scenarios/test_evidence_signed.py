"""Evidence is signed by the operator: Ann pins the key, verifies offline, and finds whoever changed a byte."""

from __future__ import annotations

import ast
import io
import json
import shutil
import subprocess
from base64 import b64decode
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import IntegrityError, ProgrammingError, connection, transaction
from django.test import Client
from pypdf import PdfReader
from pytest_django.fixtures import Settings

from billing.documents import signing
from billing.documents.evidence import PROGRAM
from billing.documents.verify_invoice.ed25519 import verifies
from billing.models import Evidence, Invoice, SigningKey
from portal.core.audit.models import AuditEntry
from portal.core.outbox import outbox
from portal.core.tenants.models import Tenant
from tests import stories
from tests.builders import a_cluster, a_job, at, ingest
from tests.evidence import bundle, changed, files_of, in_invoice, verified
from tests.scenarios.test_evidence import a_lab
from tests.web.house import a_house, page

pytestmark = pytest.mark.django_db

URL = "/.well-known/clustertab-signing-keys.json"


@pytest.fixture
def lab() -> Tenant:
    tenant = a_lab()
    stories.close("2026-03")
    return tenant


@pytest.fixture
def march(lab: Tenant) -> Invoice:
    return stories.invoice_of(lab, "2026-03")


def published(into: Path) -> Path:
    """What anybody downloads, without a name and a password."""
    response = Client().get(URL)
    assert response.status_code == 200
    assert response["Content-Type"] == "application/json"
    (into / "keys.json").write_bytes(response.content)
    return into / "keys.json"


def rotate(**options: Any) -> dict[str, Any]:
    out = io.StringIO()
    call_command("rotate_signing_key", "--json", stdout=out, why="It is a year old", **options)
    rotation: dict[str, Any] = json.loads(out.getvalue())
    return rotation


def test_ann_verifies_with_a_pinned_key_and_nothing_else(march: Invoice, tmp_path: Path) -> None:
    content = bundle(march)
    key = SigningKey.objects.get()
    for pinned in (key.public, str(published(tmp_path))):
        code, text = verified(content, tmp_path, "--key", pinned)
        assert (code, text.endswith(f"; signed with the key {key.name}: agrees.\n")) == (0, True), text
    assert "which the bundle brings along: give --key" in verified(content, tmp_path)[1]


def test_the_program_of_a_bundle_that_she_trusts_verifies_another_one(march: Invoice, tmp_path: Path) -> None:
    content = bundle(march)
    forged = changed(
        content, in_invoice(lambda document: document.update(number="INV-2026-0099")), signed=False
    )
    (tmp_path / "other.zip").write_bytes(forged)
    code, text = verified(content, tmp_path, "other.zip")
    assert code == 1
    assert "DIFFERS  invoice.json is not what was signed" in text


def test_what_somebody_else_signed_is_found_with_a_pinned_key_though_every_figure_fits(
    march: Invoice, tmp_path: Path
) -> None:
    content = bundle(march)
    other = changed(content, in_invoice(lambda document: document["buyer"].update(name="Somebody else")))
    assert verified(other, tmp_path)[0] == 0
    code, text = verified(other, tmp_path, "--key", SigningKey.objects.get().public)
    assert code == 1
    assert text.count("which is none of those that you trust") == 2


@pytest.mark.parametrize("key", ["nonsense", "bm90IGEga2V5", "/nowhere/keys.json"])
def test_what_is_no_key_is_said(march: Invoice, tmp_path: Path, key: str) -> None:
    code, text = verified(bundle(march), tmp_path, "--key", key)
    assert (code, text.startswith("--key holds no public key: ")) == (2, True)


OLDEST = shutil.which("python3.9") or ""


@pytest.mark.skipif(
    not OLDEST or subprocess.run([OLDEST, "-V"], capture_output=True).returncode != 0,
    reason="no Python 3.9 is here",
)
def test_the_oldest_python_that_is_promised_will_do(march: Invoice, tmp_path: Path) -> None:
    (tmp_path / "bundle.zip").write_bytes(bundle(march))
    done = subprocess.run([OLDEST, "-I", "-S", "bundle.zip"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_program_asks_nothing_of_python_that_3_9_lacks() -> None:
    """Where there is no such Python: ours is newer, and what checks the code prefers what is new."""
    sources = {path.name: path.read_text() for path in PROGRAM.glob("*.py")}
    assert len(sources) >= 6
    for name, text in sources.items():
        ast.parse(text, feature_version=(3, 9))
        for newer in ("import UTC", "tomllib", "StrEnum", "pairwise", "strict=", "slots=", "Self"):
            assert newer not in text, f"{name}: {newer}"


def test_keys_rotate_and_what_an_old_one_signed_still_verifies(
    lab: Tenant, march: Invoice, tmp_path: Path
) -> None:
    before, old = bundle(march), SigningKey.objects.get()
    rotation = rotate()
    ingest(a_cluster(), a_job(started="2026-04-05 10:00", ended="2026-04-05 11:00"), as_of="2026-06-01")
    stories.close("2026-04")
    after = bundle(stories.invoice_of(lab, "2026-04"))

    assert bundle(march) == before
    rows = json.loads(published(tmp_path).read_text())["keys"]
    assert [(row["key"], row["until"] is None) for row in rows] == [
        (rotation["key"], True),
        (old.name, False),
    ]
    for content, name in ((before, old.name), (after, rotation["key"])):
        code, text = verified(content, tmp_path, "--key", str(tmp_path / "keys.json"))
        assert (code, f"signed with the key {name}" in text) == (0, True), text
    assert verified(after, tmp_path, "--key", old.public)[0] == 1
    old.refresh_from_db()
    assert not old.private


def test_a_key_rests_encrypted_and_its_rotation_is_in_the_history(march: Invoice) -> None:
    bundle(march)
    rotation = rotate()
    key = SigningKey.objects.get(name=rotation["key"])
    with connection.cursor() as cursor:
        cursor.execute("SELECT private FROM billing_signingkey WHERE until IS NULL")
        rests = cursor.fetchone()[0]
    assert rests
    assert key.private.reveal() not in rests
    assert sha256(b64decode(key.public)).hexdigest().startswith(key.name)
    entries = AuditEntry.objects.of(key)
    assert [(entry.through, entry.why) for entry in entries] == [
        ("command rotate_signing_key", "It is a year old")
    ]
    assert not any(rests in str(entry.after) for entry in entries)
    with (
        pytest.raises(ProgrammingError, match="Cannot delete rows from billing_signingkey"),
        transaction.atomic(),
    ):
        SigningKey.objects.filter(pk=key.pk).delete()
    with pytest.raises(IntegrityError, match="one_key_signs_at_a_time"), transaction.atomic():
        SigningKey.objects.create(name="other", public="x", since=at("2026-05-01"))


def test_two_that_ask_for_the_first_key_at_once_have_the_same() -> None:
    assert signing.current_key(moment=at("2026-05-01")) == signing.current_key(moment=at("2026-05-02"))
    assert SigningKey.objects.count() == 1


def test_the_digest_is_fixed_before_the_pdf_and_stands_on_both(
    lab: Tenant, march: Invoice, tmp_path: Path
) -> None:
    outbox.drain()
    fixed = Evidence.objects.get(invoice=march)
    files = files_of(bundle(march))
    assert sha256(files["manifest.json"]).hexdigest() == fixed.digest
    assert set(json.loads(files["manifest.json"])["files"]) == {"invoice.json", "usage.csv"}
    printed = "".join(page.extract_text() for page in PdfReader(io.BytesIO(files["invoice.pdf"])).pages)
    assert fixed.digest in "".join(printed.split())
    assert verified(bundle(march), tmp_path, "--digest", fixed.digest.upper())[0] == 0
    assert "does not have the digest that you gave" in verified(bundle(march), tmp_path, "--digest", "ab")[1]
    with (
        pytest.raises(ProgrammingError, match="Cannot update or delete rows from billing_evidence"),
        transaction.atomic(),
    ):
        Evidence.objects.update(digest="0" * 64)


def test_what_rfc_8032_says_of_ed25519_holds() -> None:
    """Section 7.1, tests 1 and 2; and a signature whose second half is not reduced is refused (5.1.7)."""
    order = 2**252 + 27742317777372353535851937790883648493
    for public, message, signature in (
        (
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            "",
            (
                "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b"
                "d25bf5f0595bbe24655141438e7a100b"
            ),
        ),
        (
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
            "72",
            (
                "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c"
                "387b2eaeb4302aeeb00d291612bb0c00"
            ),
        ),
    ):
        key, text, seal = bytes.fromhex(public), bytes.fromhex(message), bytes.fromhex(signature)
        assert verifies(key, text, seal)
        assert not verifies(key, text + b"!", seal)
        assert not verifies(key, text, seal[:-1] + bytes([seal[-1] ^ 1]))
        larger = (int.from_bytes(seal[32:], "little") + order).to_bytes(32, "little")
        assert not verifies(key, text, seal[:32] + larger)
        assert not verifies(b"\xff" * 32, text, seal)
        assert not verifies(key[:31], text, seal)


def test_nothing_is_issued_where_nothing_can_be_signed(settings: Settings) -> None:
    lab = a_lab()
    settings.CLUSTERTAB_SECRET_KEYS = []
    outcome = stories.closed("2026-03", lab)
    assert [block.code for block in outcome.blocks] == ["no-key"]
    assert "put one into CLUSTERTAB_SECRET_KEYS" in outcome.reason
    assert not Invoice.objects.exists()


def test_the_page_says_the_digest_and_leads_to_the_keys() -> None:
    house = a_house()
    address = f"/t/vision-lab/invoices/{house.invoice.number}/"
    assert "signing-keys" not in page(house.ann, address)
    bundle(house.invoice)
    text = page(house.ann, address)
    assert Evidence.objects.get().digest in text
    assert f'href="{URL}"' in text
    assert f'href="{address}evidence"' in text
