"""`import_bill CLUSTER FILE...`: what a provider's bill says that a rented cluster costs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from billing.reports import bills
from billing.reports.bill_rows import BillError
from clusters.models import Cluster
from portal.core.audit import acting_as
from portal.ops.cli import Answer, BadInputError, OperatorCommand


class Command(OperatorCommand):
    help = "Have a provider's bill (FOCUS or AWS Cost and Usage Report) be what a cluster costs; all of it or none."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("cluster", metavar="CLUSTER")
        parser.add_argument(
            "files",
            metavar="FILE",
            type=Path,
            nargs="+",
            help="CSV, plain or gzip, or Parquet; all of a delivery",
        )
        parser.add_argument(
            "--gpu-model", default="", help="the rows pay for this model alone, as the scheduler calls it"
        )
        parser.add_argument(
            "--where",
            metavar="COLUMN=VALUE",
            action="append",
            default=[],
            help="only rows with this value, such as SubAccountId=123 or Tags.cluster=lab; may be repeated",
        )
        parser.add_argument("--preview", action="store_true", help="say what it would do, and keep nothing")

    def answer(self, **options: Any) -> Answer:
        cluster = Cluster.objects.filter(name=options["cluster"]).first()
        if cluster is None:
            raise BadInputError(f"There is no cluster {options['cluster']}.")
        try:
            with acting_as("import_bill", why=cluster.name):
                imported = bills.import_bills(
                    cluster=cluster,
                    files=options["files"],
                    gpu_model=options["gpu_model"].strip(),
                    selection=bills.parse_selection(options["where"]),
                    moment=datetime.now(UTC),
                    keep=not options["preview"],
                )
        except BillError as error:
            raise BadInputError(*error.sentences) from error
        data = {
            "preview": options["preview"],
            "bills": [bill.as_data() for bill in imported.bills],
            "taxes": imported.taxes,
            "others": imported.others,
        }
        return Answer(data, _text(imported, cluster.name, preview=options["preview"]))


def _text(imported: bills.Imported, cluster: str, *, preview: bool) -> str:
    lines = [
        f"{bill.provider}, account {bill.account or 'without a name'}, from {bill.period}: {bill.amount_text} "
        f"{bill.currency} in {bill.charges:,} charges for {cluster}, {bill.new:,} new, {bill.gone:,} gone."
        for bill in imported.bills
    ]
    lines.append(f"Left out: taxes {imported.taxes:,}, rows that were not selected {imported.others:,}.")
    return "\n".join([*lines, "Nothing is kept: this was a preview."] if preview else lines)
