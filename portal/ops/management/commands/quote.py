"""`quote TENANT`: what a job of this shape and length would cost the tenant now."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from billing.simulation.quotes import QuoteError, quote
from portal.ops import quotes
from portal.ops.cli import Answer, BadInputError, OperatorCommand, moment
from portal.ops.lookups import the_cluster, the_tenant
from portal.ops.shapes import SHAPE, add_shape
from portal.sentences import sentence


class Command(OperatorCommand):
    help = "Say what a job of this shape and length would cost a tenant, tiers and allowances included."
    refusals: ClassVar[tuple[type[Exception], ...]] = ()

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", metavar="TENANT")
        add_shape(parser)
        parser.add_argument(
            "--at", metavar="MOMENT", help="when it starts, in the tenant's zone; now without it"
        )

    def answer(self, **options: Any) -> Answer:
        tenant = the_tenant(options["tenant"])
        cluster = the_cluster(options["cluster"])
        now = datetime.now(UTC).replace(microsecond=0)
        started = moment(options["at"], tenant.zone) if options["at"] else now
        try:
            job = quotes.job_of({name: options[name] for name in SHAPE}, started=started)
            price_quote = quote(tenant=tenant, cluster=cluster.name, job=job, now=now)
        except QuoteError as error:
            raise BadInputError(sentence(error)) from error
        data = {"tenant": tenant.slug, "cluster": cluster.name, **quotes.as_data(price_quote)}
        return Answer(data, quotes.text_of(price_quote))
