"""Evidence in stories: a document's bundle, verified by the program in it, and changed by somebody else."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import zipfile
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from billing.documents import evidence, issued
from billing.models import Invoice
from tests.builders import at

Files = dict[str, bytes]
Row = dict[str, str]

DATA = ("invoice.json", "usage.csv")
SENT = ("invoice.pdf", "factur-x.xml")


def bundle(invoice: Invoice) -> bytes:
    """The document's bundle; a worker has rendered its PDF by then."""
    issued.keep(invoice, moment=at("2026-06-01"))
    return b"".join(evidence.bundle(invoice))


def files_of(content: bytes) -> Files:
    with zipfile.ZipFile(io.BytesIO(content)) as bundle:
        return {name: bundle.read(name) for name in bundle.namelist()}


def rows_of(content: bytes) -> list[Row]:
    """The rows of its usage.csv."""
    return list(csv.DictReader(io.StringIO(files_of(content)["usage.csv"].decode())))


def verified(content: bytes, at: Path, *arguments: str) -> tuple[int, str]:
    """Exit code and output of the program in the bundle, alone: no site packages, no environment, no project."""
    (at / "bundle.zip").write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "bundle.zip", *arguments], cwd=at, env={}, capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


def agrees(content: bytes, at: Path) -> str:
    """What the program says of a bundle with which nothing is wrong."""
    code, text = verified(content, at)
    assert code == 0, text
    return text


def packed(files: Files) -> bytes:
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w") as new:
        for name, body in files.items():
            new.writestr(name, body)
    return into.getvalue()


def changed(content: bytes, change: Callable[[Files], None], *, signed: bool = True) -> bytes:
    """The bundle with something changed, and signed anew by whoever changed it, unless said otherwise."""
    files = files_of(content)
    change(files)
    if signed:
        sign(files)
    return packed(files)


def sign(files: Files) -> None:
    """By a key of somebody else, over what the files are now."""
    manifest, documents = json.loads(files["manifest.json"]), json.loads(files["documents.json"])
    manifest["files"] = {name: sha256(files[name]).hexdigest() for name in DATA}
    files["manifest.json"] = json.dumps(manifest).encode()
    documents["manifest"] = sha256(files["manifest.json"]).hexdigest()
    documents["files"] = {name: sha256(files[name]).hexdigest() for name in SENT if name in files}
    files["documents.json"] = json.dumps(documents).encode()
    key = Ed25519PrivateKey.generate()
    public = b64encode(key.public_key().public_bytes_raw()).decode()
    files["signature.json"] = json.dumps(
        {
            name: {"public_key": public, "signature": b64encode(key.sign(files[f"{name}.json"])).decode()}
            for name in ("manifest", "documents")
        }
    ).encode()


def in_invoice(change: Callable[[dict[str, Any]], None]) -> Callable[[Files], None]:
    def do(files: Files) -> None:
        document = json.loads(files["invoice.json"])
        change(document)
        files["invoice.json"] = json.dumps(document).encode()

    return do


def in_usage(change: Callable[[list[Row]], object]) -> Callable[[Files], None]:
    def do(files: Files) -> None:
        rows = list(csv.DictReader(io.StringIO(files["usage.csv"].decode())))
        columns = list(rows[0])
        change(rows)
        text = io.StringIO()
        writer = csv.DictWriter(text, columns)
        writer.writeheader()
        writer.writerows(rows)
        files["usage.csv"] = text.getvalue().encode()

    return do
