"""`declare_meter NAME`: say what programs may push sums of, and in which unit plans price it."""

from __future__ import annotations

from typing import Any, ClassVar

from django.core.management.base import CommandParser

from clusters import meters
from clusters.meters import MeterError
from portal.config_file.meters import meter_entry
from portal.core.audit import acting_as
from portal.ops.cli import Answer, OperatorCommand


class Command(OperatorCommand):
    help = "Declare a meter: what programs push sums of, such as tokens, stored bytes or kWh."
    refusals: ClassVar = (MeterError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME", help="as events, prices and plans name it: llm-tokens")
        parser.add_argument("--title", required=True, metavar="TEXT", help="as invoices call it")
        parser.add_argument(
            "--unit", required=True, metavar="TEXT", help="what a price is per: 'million tokens'"
        )
        parser.add_argument(
            "--counted", metavar="TEXT", default="", help="what a quantity counts: tokens; default: the unit"
        )
        parser.add_argument(
            "--per-unit", type=int, metavar="N", default=1, help="how many of those make one unit; default: 1"
        )
        parser.add_argument("--decimals", type=int, metavar="N", default=0, help="of a quantity; default: 0")
        parser.add_argument(
            "--dimension",
            metavar="NAME",
            action="append",
            default=[],
            help="by which sums are told apart; repeat it",
        )
        parser.add_argument(
            "--unit-code", metavar="CODE", default="C62", help="of UN/ECE recommendation 20; default: C62"
        )

    def answer(
        self,
        *,
        name: str,
        title: str,
        unit: str,
        counted: str,
        per_unit: int,
        decimals: int,
        dimension: list[str],
        unit_code: str,
        **_: Any,
    ) -> Answer:
        with acting_as(f"declare_meter {name}"):
            meter = meters.declare_meter(
                name=name,
                title=title,
                unit=unit,
                counted=counted,
                per_unit=per_unit,
                decimals=decimals,
                dimensions=dimension,
                unit_code=unit_code,
            )
        entry = meter_entry(meter)
        data = {field: getattr(entry, field) for field in _FIELDS}
        told = f", told apart by {', '.join(meter.dimensions)}" if meter.dimensions else ""
        text = (
            f"{meter.name}: {meter.title}, in {meter.unit} ({meter.per_unit:,} {meter.counted} each){told}."
        )
        return Answer(data, f"{text} A plan charges it when `charges` names it.")


_FIELDS = ("name", "title", "unit", "counted", "per_unit", "decimals", "dimensions", "unit_code")
