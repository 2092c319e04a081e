"""`import_costs FILE`: what a GPU-hour of capacity costs to run, by model, from a CSV."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from billing.reports import operating_costs
from billing.reports.operating_costs import OperatingCostError
from portal.core.audit import acting_as
from portal.ops.cli import Answer, BadInputError, OperatorCommand


class Command(OperatorCommand):
    help = "Take in what GPUs cost to run, by model and day, from a CSV; all of it or none."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "file",
            type=Path,
            metavar="FILE",
            help=f"columns {', '.join(operating_costs.COLUMNS)} and cluster",
        )

    def answer(self, **options: Any) -> Answer:
        try:
            text = options["file"].read_text(encoding="utf-8-sig")
        except OSError as error:
            raise BadInputError(f"{options['file']} cannot be read: {error.strerror}.") from error
        except UnicodeDecodeError as error:
            raise BadInputError(f"{options['file']} is no text in UTF-8.") from error
        try:
            with acting_as("import_costs"):
                counts = operating_costs.set_costs(operating_costs.read_csv(text.splitlines()))
        except OperatingCostError as error:
            raise BadInputError(*error.sentences) from error
        return Answer(
            {"new": counts.new, "changed": counts.changed, "same": counts.same},
            f"{counts.new} new, {counts.changed} changed, {counts.same} as before.",
        )
