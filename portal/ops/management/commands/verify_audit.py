"""`verify_audit FILE ...`: whether exported lines of the history are as they were signed, and none is missing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from billing.models import SigningKey
from portal.ops import audit_lines
from portal.ops.cli import Answer, OperatorCommand, RefusedError


class Command(OperatorCommand):
    help = "Check exported lines of the history: each signature, and that no change between them is missing."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help="in the order of their lines")

    def answer(self, **options: Any) -> Answer:
        keys = dict(SigningKey.objects.values_list("name", "public"))
        try:
            result = audit_lines.check(
                itertools.chain.from_iterable(map(_lines, options["files"])), keys=keys
            )
        except OSError as error:
            raise RefusedError(f"{error.filename} cannot be read: {error.strerror}.") from error
        first, last = result.first, result.last
        data = {
            "lines": result.lines,
            "first_commit": first.commit if first else None,
            "last_commit": last.commit if last else None,
            "wrong": result.wrong,
        }
        if result.wrong:
            return Answer(data, "\n".join(result.wrong), code=1)
        span = f", from commit {first.commit} to {last.commit}" if first and last else ""
        return Answer(data, f"{result.lines} lines{span}: signed, and none is missing between them.")


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while line := file.readline(audit_lines.LONGEST):
            yield line
