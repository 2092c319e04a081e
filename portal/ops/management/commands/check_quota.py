"""`check_quota TENANT NAME`: how much of one quota is used now. Exit code 1 where all of it is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandParser

from billing.quotas import quotas, status
from billing.quotas.status import counts_sentence
from billing.rules.quotas import QuotaState
from portal.excerpt import quoted
from portal.ops.cli import Answer, BadInputError, OperatorCommand, instant_text
from portal.ops.lookups import the_tenant
from portal.ops.quotas import quota_data, quota_line


class Command(OperatorCommand):
    help = "Say how much of a quota is used now. Exit code 1 where all of it is."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", metavar="TENANT", help="the tenant's slug")
        parser.add_argument("name", metavar="NAME", help="the quota's name")

    def answer(self, **options: Any) -> Answer:
        tenant = the_tenant(options["tenant"])
        rows = list(quotas.list_quotas(tenant).filter(name=options["name"]))
        if not rows:
            names = ", ".join(quotas.list_quotas(tenant).values_list("name", flat=True)) or "none yet"
            raise BadInputError(f"{tenant.slug} has no quota {quoted(options['name'])}; known: {names}.")
        (one,) = status.load_statuses(rows, moment=datetime.now(UTC).replace(microsecond=0))
        code = 1 if one.state is QuotaState.OVER else 0
        return Answer(quota_data(one), _text(one), code)


def _text(one: status.QuotaStatus) -> str:
    figure = one.figure
    lines = [quota_line(one), f"Left: {one.text(one.left)}.", counts_sentence(one.quota)]
    if figure.carried:
        lines.append(f"Carried over from the period before: {one.text(figure.carried)}.")
    if figure.counted_on:
        lines.append(
            f"Of it, running jobs have used {one.text(figure.counted_on)} since they were last rated."
        )
    if figure.forecast is not None:
        lines.append(f"Forecast: {one.text(figure.forecast)}.")
    if one.resets_at is not None:
        lines.append(f"The next period begins at {instant_text(one.resets_at)}.")
    if figure.as_of is not None:
        lines.append(f"All usage is read up to {instant_text(figure.as_of)}.")
    return "\n".join(lines)
