"""`export_focus MONTH [FILE]`: the charges of a month as a FOCUS 1.2 dataset."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from billing.reports import focus, focus_files
from billing.rules.errors import RuleError
from billing.rules.period import parse_month
from portal.core.tenants.models import Tenant
from portal.ops.cli import Answer, BadInputError, OperatorCommand
from portal.ops.lookups import the_tenant
from portal.ops.whole_files import whole_file
from portal.sentences import sentence


class Command(OperatorCommand):
    help = "Write the charges of a month as FOCUS 1.2, of all tenants or of one, as CSV or Parquet."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("month", metavar="MONTH", help="such as 2026-03: periods that begin in it")
        parser.add_argument(
            "file", metavar="FILE", nargs="?", help="default: named by tenant, month and status"
        )
        parser.add_argument(
            "--format", choices=[*focus_files.FORMATS], help="default: by the end of FILE's name, else csv"
        )
        parser.add_argument("--tenant", metavar="SLUG", help="this tenant alone")

    def answer(self, **options: Any) -> Answer:
        try:
            month = parse_month(options["month"])
        except RuleError as error:
            raise BadInputError(sentence(error)) from error
        path = Path(options["file"]) if options["file"] else None
        tenants = (
            [the_tenant(options["tenant"])] if options["tenant"] else list(Tenant.objects.order_by("slug"))
        )
        dataset = focus.make_dataset(tenants=tenants, month=month, moment=datetime.now(UTC))
        kind = options["format"] or ("parquet" if path and path.suffix == ".parquet" else "csv")
        path = path or Path(focus_files.file_name(dataset, of=options["tenant"] or "all", extension=kind))
        with whole_file(path) as file:
            size = sum(file.write(piece) for piece in focus_files.AS[kind](dataset.charges))
        data = {"month": options["month"], "status": dataset.status.value, "file": path.name, "bytes": size}
        return Answer(data, f"{path}: {options['month']}, {dataset.status}.")
