"""`openapi`: print the schema of the REST API."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandParser

from portal.api.openapi import document
from portal.ops.cli import Answer, OperatorCommand


class Command(OperatorCommand):
    """`./run manage openapi > docs/reference/openapi.json` after a change of an endpoint."""

    help = "Print the schema of the REST API, as OpenAPI 3.1."

    def arguments(self, parser: CommandParser) -> None:
        del parser

    def answer(self, **_: Any) -> Answer:
        return Answer(document(), json.dumps(document(), indent=1, ensure_ascii=False, sort_keys=True))
