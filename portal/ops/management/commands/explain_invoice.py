"""`explain_invoice NUMBER`: from each line to its jobs, its price version and its formula."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from django.core.management.base import CommandParser

from billing.catalog import line_descriptions
from billing.documents import line_jobs
from billing.models import Invoice, InvoiceLine, Price
from billing.proof.sums import seconds_text
from billing.rules.formatting import money_text, plain_price
from billing.rules.meters import SECONDS_PER_HOUR, is_built_in
from billing.rules.money import Money
from portal.core.tenants.scope import tenant_scope
from portal.ops.cli import Answer, BadInputError, OperatorCommand, instant_text
from portal.ops.lookups import the_invoice


class Command(OperatorCommand):
    help = "Explain every line of an invoice down to the jobs behind it."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("number", metavar="NUMBER")
        parser.add_argument("--line", type=int, metavar="N", help="only this line")

    def answer(self, **options: Any) -> Answer:
        invoice = the_invoice(options["number"])
        lines = invoice.lines.select_related("service_period__tenant", "original__invoice").order_by(
            "position"
        )
        if options["line"] is not None:
            lines = lines.filter(position=options["line"])
        explained = [_explain(invoice, line) for line in lines]
        if not explained:
            raise BadInputError(f"{invoice} has no line {options['line']}.")
        data = {
            "number": invoice.number,
            "tenant": invoice.tenant.slug,
            "currency": invoice.currency,
            "lines": explained,
        }
        return Answer(data, "\n".join(_text(data)))


def _explain(invoice: Invoice, line: InvoiceLine) -> dict[str, Any]:
    jobs = []
    if line.seconds_num and line.meter:
        cuts = line_jobs.cuts_of(line)
        with tenant_scope(line.service_period.tenant):  # whose jobs may stand in files
            jobs = list(line_jobs.jobs_in(cuts))
    seconds = Fraction(int(line.seconds_num), line.seconds_den)
    price = Price.objects.select_related("version__plan").filter(pk=line.price_id or 0).first()
    amount = Money.from_minor(line.amount, invoice.currency)
    return {
        "position": line.position,
        "kind": line.kind,
        "description": line.description,
        "project": line.project,
        "meter": line.meter,
        "resource_seconds": seconds_text(seconds),
        "jobs_resource_seconds": seconds_text(sum((job.resource_seconds for job in jobs), Fraction(0))),
        "unit_price": plain_price(line.unit_price, invoice.currency),
        "amount": amount.text,
        "plan": price.version.plan.name if price else None,
        "plan_version_from": price.version.effective_from if price else None,
        "price": _price(price) if price else None,
        "original": {"number": line.original.invoice.number, "position": line.original.position}
        if line.original
        else None,
        "formula": line_descriptions.computation(line, invoice.currency)
        if line.terms
        else _formula(line, seconds, amount),
        "terms": line.terms,
        "jobs": [
            {
                "job": job.job_id,
                "user": job.user,
                "from": job.service_from,
                "to": job.service_to,
                "units": str(job.units),
                "share": f"{job.share_num}/{job.share_den}",
                "resource_seconds": seconds_text(job.resource_seconds),
            }
            for job in jobs
        ],
    }


def _price(price: Price) -> dict[str, Any]:
    return {
        "id": price.pk,
        "from": price.valid_from,
        "until": price.valid_until,
        "where": price.selector,
    }


def _formula(line: InvoiceLine, seconds: Fraction, amount: Money) -> str:
    if not seconds:
        return f"{line.description} = {money_text(amount)}"
    price = plain_price(line.unit_price, amount.currency)
    quantity = f"{seconds_text(seconds)} s ÷ 3600"
    if not is_built_in(line.meter):
        quantity = f"{seconds_text(seconds / SECONDS_PER_HOUR)} {line.unit}"
    return f"{quantity} × {price} {amount.currency}, rounded once = {money_text(amount)}"


def _text(data: dict[str, Any]) -> Iterator[str]:
    yield f"{data['number']} of {data['tenant']}"
    for line in data["lines"]:
        what = ", ".join(word for word in (line["project"], line["meter"]) if word) or line["description"]
        yield f"\nLine {line['position']}: {what}: {line['formula']}"
        if line["original"]:
            yield f"  takes back from line {line['original']['position']} of {line['original']['number']}"
        if price := line["price"]:
            until = f" until {price['until']}" if price["until"] else ""
            yield (
                f"  plan {line['plan']}, version from {line['plan_version_from']}; "
                f"price for {price['where'] or 'any use'} from {price['from']}{until}"
            )
        if not line["jobs"]:
            continue
        for job in line["jobs"]:
            span = f"{instant_text(job['from'])} – {instant_text(job['to'])}"
            yield f"  job {job['job']:<20} {job['user']:<16} {span}  {job['resource_seconds']:>16} s"
        cuts = len(line["jobs"])
        yield f"  {cuts:,} {'cut of a job' if cuts == 1 else 'cuts of jobs'}: {line['jobs_resource_seconds']} s"
