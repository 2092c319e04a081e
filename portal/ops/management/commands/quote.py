"""`quote TENANT`: what a job of this shape and length would cost the tenant now."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from billing.simulation.quotes import QuoteError, quote
from portal.ops import quotes
from portal.ops.cli import Answer, BadInputError, OperatorCommand, moment
from portal.ops.lookups import the_cluster, the_tenant
from portal.sentences import sentence

SHAPE = (
    *("gpus", "gpu_share", "gpu_model", "mig_profile", "cpus", "memory_gib"),
    *("hours", "account", "queue", "qos", "priority_class"),
)


class Command(OperatorCommand):
    help = "Say what a job of this shape and length would cost a tenant, tiers and allowances included."
    refusals: ClassVar[tuple[type[Exception], ...]] = ()

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tenant", metavar="TENANT")
        parser.add_argument("--cluster", required=True)
        parser.add_argument("--hours", required=True, help="that it runs; decimals are fine")
        parser.add_argument("--gpus", default="", help="GPUs, or slices of --gpu-share each")
        parser.add_argument(
            "--gpu-share", default="", metavar="N/D", help="what one of them is of a GPU: 1/7"
        )
        parser.add_argument("--gpu-model", default="")
        parser.add_argument("--mig-profile", default="")
        parser.add_argument("--cpus", default="", help="cores; decimals are fine")
        parser.add_argument("--memory-gib", default="")
        parser.add_argument("--account", default="", help="any account of the tenant without it")
        parser.add_argument("--queue", default="", help="partition or queue")
        parser.add_argument("--qos", default="")
        parser.add_argument("--priority-class", default="")
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
