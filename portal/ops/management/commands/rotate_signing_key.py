"""`rotate_signing_key --why REASON`: have a new key sign the evidence of documents from now on."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from billing.documents import signing
from portal.core.audit import acting_as
from portal.core.vault import VaultError
from portal.ops.cli import Answer, OperatorCommand


class Command(OperatorCommand):
    help = "Have a new Ed25519 key sign evidence. What was signed before still verifies with the key that signed it."
    refusals: ClassVar[tuple[type[Exception], ...]] = (VaultError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--why", metavar="REASON", required=True, help="kept in the history")

    def answer(self, **options: Any) -> Answer:
        with acting_as("rotate_signing_key", why=options["why"]):
            key = signing.rotate_key(moment=datetime.now(UTC).replace(microsecond=0))
        return Answer(
            {"key": key.name, "public_key": key.public, "from": key.since},
            f"{key.name} signs from now on: {key.public}\nTell tenants that have pinned a key; the list of all is at "
            "/.well-known/clustertab-signing-keys.json.",
        )
