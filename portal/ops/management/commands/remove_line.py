"""`remove_line ID --why TEXT`: take a line by hand off again, before it is billed."""

from __future__ import annotations

from typing import Any, ClassVar

from django.core.management.base import CommandParser

from billing.invoicing import manual_lines
from billing.models import ManualLine
from portal.core.audit import acting_as
from portal.ops.cli import Answer, BadInputError, OperatorCommand


class Command(OperatorCommand):
    help = "Remove a line that was added by hand and is not billed yet."
    refusals: ClassVar[tuple[type[Exception], ...]] = (manual_lines.ManualLineError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("line", metavar="ID", type=int, help="as add_line said")
        parser.add_argument("--why", metavar="TEXT", default="", help="kept in the history")

    def answer(self, **options: Any) -> Answer:
        line = ManualLine.objects.select_related("tenant").filter(pk=options["line"]).first()
        if line is None:
            raise BadInputError(f"There is no line {options['line']}.")
        data = {"line": line.pk, "tenant": line.tenant.slug, "removed": True}
        with acting_as("remove_line", why=options["why"]):
            manual_lines.remove_manual_line(line=line)
        return Answer(data, f"Line {data['line']} of {data['tenant']} is removed.")
