"""Filling an empty instance with the demonstration, step by step, so that a kill at any point is made good."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from billing import closing, collection, intake
from billing.models import Invoice
from billing.rules.money import Money
from clusters.connectors.base import Reading, Row
from clusters.models import Cluster, Pull
from portal.ops.config.apply import apply
from portal.ops.config.shape import parse
from portal.ops.demo_data.generator import atlas
from portal.ops.demo_data.kubernetes import nimbus
from portal.outbox import outbox
from portal.tenants.models import Tenant, User

CONFIG = Path(__file__).with_name("demo.toml")
SOURCE = "demonstration"  # of the passes that read it
SEED = 2026
PASSWORD = "clustertab-demo"  # noqa: S105 - of made-up people on one machine, printed for whoever looks
OPERATOR = "op@demo.example"
LOGINS = (
    (OPERATOR, "operator: the clusters, and everything under /admin/"),
    ("ann@demo.example", "owner of Halcyon Labs, billing for Lakeside University"),
    ("ben@demo.example", "member of Halcyon Labs"),
    ("eve@demo.example", "owner of the Institut für Biophysik"),
)

Say = Callable[[str], None]


def is_foreign() -> bool:
    """Whether the instance holds something else: the demonstration only goes into an empty one."""
    others = User.objects.exclude(email__in=[email for email, _ in LOGINS])
    clusters = Cluster.objects.exclude(name__in=("atlas", "nimbus"))
    tenants = Tenant.objects.exclude(slug__in=[entry.slug for entry in parse(CONFIG.read_text()).tenants])
    return others.exists() or clusters.exists() or tenants.exists()


def is_seeded() -> bool:
    """The operator's login is the last thing that is made."""
    return User.objects.filter(email=OPERATOR).exists()


def seed(*, moment: datetime, say: Say) -> None:
    """Two months that end at `moment`: the first closed and one invoice of it paid, the second open.

    Asked again after a kill it goes on where it stood, with the moment that it began with.
    """
    apply(file=parse(CONFIG.read_text()))
    first = Pull.objects.filter(source=SOURCE).order_by("pk").first()
    moment = first.started_at if first is not None else moment
    month = _previous_month(moment)
    since, until = int(month.timestamp()), int(moment.timestamp())
    _read("atlas", atlas(seed=SEED, since=since, until=until), moment, say)
    _read("nimbus", nimbus(seed=SEED, since=since, until=until), moment, say)
    say(f"Closing {month:%Y-%m} ...")
    _close(month, moment)
    outbox.drain()  # the PDFs of the invoices
    for email, _ in LOGINS[1:]:
        person = User.objects.get(email=email)
        person.set_password(PASSWORD)
        person.save(update_fields=["password"])
    User.objects.create_superuser(OPERATOR, PASSWORD)


def logins() -> str:
    """For whoever looks at the demonstration."""
    width = max(len(email) for email, _ in LOGINS)
    lines = [f"  {email:<{width}}  {what}" for email, what in LOGINS]
    return "\n".join([f"Sign in with the password {PASSWORD} as", *lines])


def _previous_month(moment: datetime) -> datetime:
    this = moment.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return (this - timedelta(days=1)).replace(day=1)


def _read(name: str, rows: Iterable[Row], moment: datetime, say: Say) -> None:
    cluster = Cluster.objects.get(name=name)
    if Pull.objects.filter(cluster=cluster, source=SOURCE, outcome=Pull.Outcome.DONE).exists():
        return
    say(f"Reading the usage of {name} ...")
    intake.take_in(cluster=cluster, rows=rows, reading=Reading(), source=SOURCE, moment=moment, as_of=moment)


def _close(month: datetime, moment: datetime) -> None:
    """On the morning of the 2nd, or now where that is still to come; the first invoice is paid a week later."""
    following = (month + timedelta(days=32)).replace(day=1)
    on = min(moment, following + timedelta(days=1, hours=9))
    tenants = Tenant.objects.order_by("pk")
    for closed in closing.close(tenants=tenants, year=month.year, month=month.month, moment=on):
        if closed.outcome not in {closing.Outcome.ISSUED, closing.Outcome.ALREADY}:
            raise RuntimeError(f"{closed.tenant}: {closed.outcome}: {closed.reason}")
    invoice = Invoice.objects.issued().order_by("pk").first()
    if invoice is not None:
        collection.record_payment(
            invoice=invoice,
            amount=Money.from_minor(invoice.total, invoice.currency),
            received_on=min(moment, on + timedelta(days=7)).date(),
            reference=f"SEPA {invoice.number}",
            recorded_by="demonstration",
        )
