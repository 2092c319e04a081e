"""`set_quota TENANT NAME …`: have a tenant's quota be so, or end it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from billing.models import QuotaAction, QuotaCredits, QuotaEvery, QuotaMeasure
from billing.quotas import quotas, status
from billing.quotas.quotas import Setter
from billing.quotas.terms import QuotaError
from billing.rules.errors import RuleError
from portal.config_file.entries import read
from portal.config_file.quotas import QuotaEntry
from portal.config_file.toml_table import Table
from portal.core.audit import acting_as
from portal.core.tenants.models import Tenant
from portal.excerpt import quoted
from portal.ops.cli import Answer, BadInputError, OperatorCommand
from portal.ops.lookups import the_tenant
from portal.ops.quotas import quota_data, quota_line

TEXTS = (
    "borrows_from",
    "unit",
    "project",
    "user",
    "account",
    "cluster",
    "queue",
    "qos",
    "gpu_model",
    "credits",
    "action",
)
LISTS = ("thresholds", "forecast_thresholds", "recipients")


class Command(OperatorCommand):
    help = "Set a tenant's quota, or end it. The same again changes nothing."
    refusals: ClassVar[tuple[type[Exception], ...]] = (QuotaError, RuleError)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", metavar="TENANT", help="the tenant's slug")
        parser.add_argument("name", metavar="NAME", help="such as monthly-gpu")
        parser.add_argument("--amount", help="in whole units, such as 1000.00; 0: nothing may be used")
        parser.add_argument("--measure", choices=QuotaMeasure.values, default=QuotaMeasure.MONEY.value)
        parser.add_argument("--every", choices=QuotaEvery.values, default=QuotaEvery.MONTH.value)
        parser.add_argument("--from", dest="begins", metavar="DATE", help="first day of a fixed term")
        parser.add_argument("--until", dest="ends", metavar="DATE", help="first day behind a fixed term")
        parser.add_argument("--hours", type=int, help="of a rolling window")
        parser.add_argument("--unit", help="currency, or unit of the wallet; default: the tenant's")
        for name in ("project", "user", "account", "cluster", "queue", "qos", "gpu-model"):
            parser.add_argument(f"--{name}", help="count only this one")
        parser.add_argument(
            "--credits", choices=QuotaCredits.values, help="whether given credit lowers what is used"
        )
        parser.add_argument(
            "--with-paid", action="store_true", help="count what it pays for other tenants, too"
        )
        parser.add_argument(
            "--threshold", dest="thresholds", action="append", help="such as 80%% or 800.00; repeatable"
        )
        parser.add_argument(
            "--forecast", dest="forecast_thresholds", action="append", help="of the forecast; repeatable"
        )
        parser.add_argument(
            "--repeat-every", metavar="AMOUNT", help="beyond the last threshold, again at each so much"
        )
        parser.add_argument(
            "--carry-over",
            type=int,
            metavar="PERCENT",
            help="of the amount, what a period leaves to the next",
        )
        parser.add_argument(
            "--carry-overdraft", action="store_true", help="what a period overdraws the next has less"
        )
        parser.add_argument(
            "--recipient", dest="recipients", action="append", help="a member's e-mail; repeatable"
        )
        parser.add_argument("--cap", metavar="AMOUNT", help="owners may set the amount up to this")
        parser.add_argument(
            "--action", choices=QuotaAction.values, help="while all of it is used; default: notify"
        )
        parser.add_argument(
            "--grace-minutes", type=int, metavar="MINUTES", help="of end-jobs: from the warning; default: 120"
        )
        parser.add_argument(
            "--ends-older", action="store_true", help="end jobs, too, that began before the quota was made"
        )
        parser.add_argument("--watch", action="store_true", help="only say what the action would have done")
        parser.add_argument(
            "--reservation-cap", metavar="AMOUNT", help="one reservation holds at most so much of it"
        )
        _add_pool(parser)
        parser.add_argument("--end", action="store_true", help="end it")
        parser.add_argument("--why", default="", help="the reason, for the history")

    def answer(self, **options: Any) -> Answer:
        tenant = the_tenant(options["tenant"])
        moment = datetime.now(UTC).replace(microsecond=0)
        with acting_as("set_quota", why=options["why"]):
            if options["end"]:
                return _end(tenant, options["name"], moment)
            row = _entry(options).write(tenant, by=Setter.OPERATOR, moment=moment)
        (one,) = status.load_statuses(list(quotas.list_quotas(tenant).filter(pk=row.pk)), moment=moment)
        return Answer(quota_data(one), quota_line(one))


def _add_pool(parser: CommandParser) -> None:
    parser.add_argument("--lends", action="store_true", help="a pool, which quotas of projects borrow from")
    parser.add_argument(
        "--borrows-from", metavar="NAME", help="the pool of which it may use more once its own is used"
    )


def _end(tenant: Tenant, name: str, moment: datetime) -> Answer:
    if not quotas.end_quota(tenant=tenant, name=name, by=Setter.OPERATOR, moment=moment):
        raise BadInputError(f"{tenant.slug} has no quota {quoted(name)}.")
    return Answer({"tenant": tenant.slug, "name": name, "ended": True}, f"{tenant.slug}/{name} is ended.")


def _entry(options: dict[str, Any]) -> QuotaEntry:
    """What a file would say. Raises BadInputError with every sentence that a file would get."""
    if options["amount"] is None:
        raise BadInputError("Say with --amount how much, or with --end that it ends.")
    values: dict[str, Any] = {name: options[name] for name in ("name", "amount", "measure", "every")}
    values |= {name: options[name] for name in (*TEXTS, *LISTS) if options[name]}
    values |= {
        name: options[name]
        for name in ("hours", "cap", "repeat_every", "carry_over", "reservation_cap", "grace_minutes")
        if options[name] is not None
    }
    values |= {
        name: True
        for name in ("with_paid", "watch", "carry_overdraft", "ends_older", "lends")
        if options[name]
    }
    for key, name in (("from", "begins"), ("until", "ends")):
        if options[name]:
            values[key] = _day(options[name])
    table = Table("quota", values, [])
    entry = read(table, QuotaEntry)
    if entry is None:
        raise BadInputError(*table.errors)
    return entry


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise BadInputError(f"{quoted(text)} is not a day; write it like 2026-03-01.") from None
