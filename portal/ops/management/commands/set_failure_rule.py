"""`set_failure_rule NAME …`: say which jobs are credited because their GPU or node failed, or end such a rule."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from billing.models import CreditedPart
from billing.service_credits import rules
from billing.service_credits.rules import FailureRuleError
from portal.config_file.entries import read
from portal.config_file.failures import TERMS, FailureRuleEntry
from portal.config_file.toml_table import Table
from portal.core.audit import acting_as
from portal.excerpt import quoted
from portal.ops.cli import Answer, BadInputError, OperatorCommand
from portal.ops.service_credits import rule_data, rule_line


class Command(OperatorCommand):
    help = "Set a rule on jobs whose hardware failed, or end it. The same again changes nothing."
    refusals: ClassVar[tuple[type[Exception], ...]] = (FailureRuleError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME", help="such as failed-hardware")
        parser.add_argument("--cluster", help="only this one")
        parser.add_argument("--xid", dest="xids", type=int, action="append", metavar="XID", help="of the GPU")
        parser.add_argument(
            "--memory", action="store_true", help="errors that the GPU's memory could not correct"
        )
        parser.add_argument("--state", dest="states", action="append", metavar="STATE", help="of the job")
        parser.add_argument("--part", choices=CreditedPart.values, help="that is credited; default: run")
        parser.add_argument("--percent", type=int, help="of what the part was billed; default: 100")
        parser.add_argument("--act", action="store_true", help="do it; without, the rule is watched")
        parser.add_argument("--end", action="store_true", help="end it")
        parser.add_argument("--why", default="", help="the reason, for the history")

    def answer(self, **options: Any) -> Answer:
        name, moment = options["name"], datetime.now(UTC).replace(microsecond=0)
        with acting_as("set_failure_rule", why=options["why"]):
            if options["end"]:
                if not rules.end_rule(name=name, moment=moment):
                    raise BadInputError(f"There is no failure rule {quoted(name)}.")
                return Answer({"name": name, "ended": True}, f"{name} is ended.")
            row = _entry(options).write(moment=moment)
        return Answer(rule_data(row), rule_line(row))


def _entry(options: dict[str, Any]) -> FailureRuleEntry:
    """What a file would say. Raises BadInputError with every sentence that a file would get."""
    values = {name: options[name] for name in ("name", *TERMS) if options.get(name) is not None}
    table = Table("failure_rule", values | {"watch": not options["act"]}, [])
    entry = read(table, FailureRuleEntry)
    if entry is None:
        raise BadInputError(*table.errors)
    return entry
