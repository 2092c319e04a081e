"""`set_waste_rule NAME …`: say which idle jobs are told of, or ended, or end such a rule."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from billing.models import WasteAction, WasteChoiceKind, WasteKind
from billing.waste import rules
from billing.waste.rules import WasteRuleError
from portal.config_file.entries import read
from portal.config_file.toml_table import Table
from portal.config_file.waste import TERMS, WasteRuleEntry
from portal.core.audit import acting_as
from portal.excerpt import quoted
from portal.ops.cli import Answer, BadInputError, OperatorCommand
from portal.ops.waste import rule_data, rule_line

LISTS = ("except_queues", "except_qoses", "except_names")


class Command(OperatorCommand):
    help = "Set a rule on jobs that do not use their GPUs, or end it. The same again changes nothing."
    refusals: ClassVar[tuple[type[Exception], ...]] = (WasteRuleError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME", help="such as idle-4-hours")
        parser.add_argument("--hours", type=int, help="so many whole hours without use")
        parser.add_argument("--kind", choices=WasteKind.values, help="default: idle")
        parser.add_argument("--cluster", help="only this one")
        parser.add_argument("--busy-at-most", type=int, metavar="PERCENT", help="of an hour; default: 1")
        parser.add_argument("--except-queue", dest="except_queues", action="append", metavar="QUEUE")
        parser.add_argument("--except-qos", dest="except_qoses", action="append", metavar="QOS")
        parser.add_argument(
            "--except-name", dest="except_names", action="append", metavar="NAME", help="of jobs; * is any"
        )
        parser.add_argument("--action", choices=WasteAction.values, help="default: notify")
        parser.add_argument(
            "--grace-minutes", type=int, help="from the announcement to the end; default: 120"
        )
        parser.add_argument("--act", action="store_true", help="do it; without, the rule is watched")
        parser.add_argument("--choice", choices=WasteChoiceKind.values, help="of tenants; default: opt-out")
        parser.add_argument("--end", action="store_true", help="end it")
        parser.add_argument("--why", default="", help="the reason, for the history")

    def answer(self, **options: Any) -> Answer:
        name, moment = options["name"], datetime.now(UTC).replace(microsecond=0)
        with acting_as("set_waste_rule", why=options["why"]):
            if options["end"]:
                if not rules.end_rule(name=name, moment=moment):
                    raise BadInputError(f"There is no waste rule {quoted(name)}.")
                return Answer({"name": name, "ended": True}, f"{name} is ended.")
            row = _entry(options).write(moment=moment)
        return Answer(rule_data(row), rule_line(row))


def _entry(options: dict[str, Any]) -> WasteRuleEntry:
    """What a file would say. Raises BadInputError with every sentence that a file would get."""
    values = {name: options[name] for name in ("name", *TERMS) if options.get(name) is not None}
    table = Table("waste_rule", values | {"watch": not options["act"]}, [])
    entry = read(table, WasteRuleEntry)
    if entry is None:
        raise BadInputError(*table.errors)
    return entry
