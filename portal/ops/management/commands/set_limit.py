"""`set_limit TENANT NAME …`: say what each account of a tenant may hold at once, or end that."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from billing.limits import limits, status
from billing.limits.limits import LimitTermsError
from portal.config_file.entries import read
from portal.config_file.limits import LimitEntry
from portal.config_file.toml_table import Table
from portal.core.audit import acting_as
from portal.excerpt import quoted
from portal.ops.cli import Answer, BadInputError, OperatorCommand
from portal.ops.limits import limit_data, limit_lines
from portal.ops.lookups import the_tenant

NAMES = ("name", "gpus", "jobs", "gpu_model", "project", "account", "cluster")


class Command(OperatorCommand):
    help = "Set what each account of a tenant may hold at once, or end that. The same again changes nothing."
    refusals: ClassVar[tuple[type[Exception], ...]] = (LimitTermsError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", metavar="TENANT", help="the tenant's slug")
        parser.add_argument("name", metavar="NAME", help="such as h100-at-once")
        parser.add_argument("--gpus", type=int, help="how many GPUs")
        parser.add_argument("--jobs", type=int, help="how many running jobs")
        for name in ("gpu-model", "project", "account", "cluster"):
            parser.add_argument(f"--{name}", help="only this one")
        parser.add_argument("--end", action="store_true", help="end it")
        parser.add_argument("--why", default="", help="the reason, for the history")

    def answer(self, **options: Any) -> Answer:
        tenant, name = the_tenant(options["tenant"]), options["name"]
        moment = datetime.now(UTC).replace(microsecond=0)
        with acting_as("set_limit", why=options["why"]):
            if options["end"]:
                if not limits.end_limit(tenant=tenant, name=name, moment=moment):
                    raise BadInputError(f"{tenant.slug} has no limit {quoted(name)}.")
                data = {"tenant": tenant.slug, "name": name, "ended": True}
                return Answer(data, f"{tenant.slug}/{name} is ended.")
            row = _entry(options).write(tenant, moment=moment)
        (one,) = status.load_statuses(list(limits.list_limits(tenant).filter(pk=row.pk)), moment=moment)
        return Answer(limit_data(one), "\n".join(limit_lines(one)))


def _entry(options: dict[str, Any]) -> LimitEntry:
    """What a file would say. Raises BadInputError with every sentence that a file would get."""
    table = Table("limit", {name: options[name] for name in NAMES if options[name] is not None}, [])
    entry = read(table, LimitEntry)
    if entry is None:
        raise BadInputError(*table.errors)
    return entry
