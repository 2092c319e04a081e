"""Whether the files of a bundle are those that the operator signed."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from . import ed25519
from .numbers import of_json

Files = Mapping[str, bytes]

DATA = ("invoice.json", "usage.csv")
SIGNED = ("manifest", "documents")  # each a file of JSON that says the digests of others
# Names that can be erased, and programs.
NOT_SIGNED = re.compile(r"signature\.json|people\.csv|__main__\.py|verify_invoice/[a-z0-9_]+\.py")


class Seal:
    """What signature.json says of one signed file."""

    def __init__(self, stated: Mapping[str, str]) -> None:
        self.public = base64.b64decode(stated["public_key"], validate=True)
        self.signature = base64.b64decode(stated["signature"], validate=True)

    @property
    def key(self) -> str:
        return hashlib.sha256(self.public).hexdigest()[:16]


def pinned(text: str) -> list[bytes]:
    """Public keys as a tenant keeps them: a key in base64, or a file with the operator's list of them."""
    path = Path(text)
    if len(text) < 200 and path.is_file():
        return [
            base64.b64decode(row["public_key"], validate=True) for row in json.loads(path.read_text())["keys"]
        ]
    key = base64.b64decode(text, validate=True)
    if len(key) != 32:
        raise ValueError(f"{text} is no public key, nor a file with some")
    return [key]


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def check(files: Files, keys: list[bytes] | None) -> tuple[str, list[str]]:
    """The name of the key that signed it, and sentences for all that is not as it was signed."""
    stated = of_json(files["signature.json"])
    seals: dict[str, Seal] = {name: Seal(stated[name]) for name in SIGNED}
    wrong = [sentence for name in SIGNED for sentence in of_seal(name, files, seals[name], keys)]
    return seals["manifest"].key, wrong + list(of_digests(files))


def of_seal(name: str, files: Files, seal: Seal, keys: list[bytes] | None) -> Iterator[str]:
    if not ed25519.verifies(seal.public, files[f"{name}.json"], seal.signature):
        yield f"{name}.json is not what was signed with the key {seal.key}"
    if keys is not None and seal.public not in keys:
        yield f"{name}.json is signed with the key {seal.key}, which is none of those that you trust"


def of_digests(files: Files) -> Iterator[str]:
    manifest, documents = (of_json(files[f"{name}.json"]) for name in SIGNED)
    number = of_json(files["invoice.json"])["number"]
    for name, value in (("manifest", manifest["document"]), ("documents", documents["document"])):
        if value != number:
            yield f"{name}.json is of {value}, the invoice is {number}"
    if documents["manifest"] != digest(files["manifest.json"]):
        yield "documents.json is of another manifest.json"
    if sorted(manifest["files"]) != sorted(DATA):
        yield f"manifest.json names {', '.join(sorted(manifest['files']))}, not {' and '.join(DATA)}"
    digests = {**manifest["files"], **documents["files"]}
    for name, value in sorted(digests.items()):
        if name not in files:
            yield f"{name} is missing"
        elif digest(files[name]) != value:
            yield f"{name} is not what was signed"
    rest = {*digests, *(f"{name}.json" for name in SIGNED)}
    for name in sorted(set(files) - rest):
        if not NOT_SIGNED.fullmatch(name):
            yield f"{name} was not signed"
