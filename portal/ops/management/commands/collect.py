"""`collect`: a round of collecting now, as the worker does it every minute."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from billing.payments import collection_run, gateway_access
from portal.ops.cli import Answer, OperatorCommand


class Command(OperatorCommand):
    help = "Charge what is due, and take in what the payment service tells. Again at once, nothing twice."
    refusals: ClassVar[tuple[type[Exception], ...]] = (gateway_access.CollectionError,)

    def arguments(self, parser: CommandParser) -> None:
        del parser

    def answer(self, **_: Any) -> Answer:
        done = collection_run.run_collection(
            gateway=gateway_access.get_gateway(), clock=lambda: datetime.now(UTC)
        )
        summary = (
            f"{done.charged} charged, {done.not_chargeable} held back, "
            f"{done.followed} followed, {done.applied} told of."
        )
        return Answer(
            {
                "charged": done.charged,
                "held": done.not_chargeable,
                "followed": done.followed,
                "applied": done.applied,
                "troubles": done.troubles,
            },
            "\n".join([summary, *done.troubles]),
            1 if done.troubles else 0,
        )
