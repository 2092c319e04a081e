"""`check_job TENANT`: whether a job of this shape and length may run now, by the tenant's quotas."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from billing.admission.check import check_job
from billing.admission.wording import answer_text
from billing.simulation.quotes import QuoteError
from portal.ops import quotes
from portal.ops.cli import Answer, BadInputError, OperatorCommand
from portal.ops.lookups import the_cluster, the_tenant
from portal.ops.quotas import check_data
from portal.ops.shapes import SHAPE, add_shape
from portal.sentences import sentence


class Command(OperatorCommand):
    help = "Say whether a job may run now, by the tenant's quotas. Exit code 1 where it may not. Nothing is reserved."
    refusals: ClassVar[tuple[type[Exception], ...]] = ()

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", metavar="TENANT", help="the tenant's slug")
        add_shape(parser)
        parser.add_argument("--user", default="", help="of the scheduler")

    def answer(self, **options: Any) -> Answer:
        tenant = the_tenant(options["tenant"])
        cluster = the_cluster(options["cluster"])
        now = datetime.now(UTC).replace(microsecond=0)
        try:
            job = quotes.job_of({name: options[name] for name in (*SHAPE, "user")}, started=now)
            check = check_job(tenant=tenant, cluster=cluster.name, job=job, now=now)
        except QuoteError as error:
            raise BadInputError(sentence(error)) from error
        data = {"tenant": tenant.slug, "cluster": cluster.name, **check_data(check)}
        return Answer(data, answer_text(check), 0 if check.may_run else 1)
