"""Filling an empty instance with the demonstration, step by step, so that a kill at any point is made good."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from django.contrib.auth.hashers import make_password

from billing.bank_transfers import statement_import
from billing.bank_transfers.entities import ReadOptions
from billing.invoicing import manual_lines, month_close
from billing.models import Invoice, ManualLine, Wallet
from billing.payments import automatic
from billing.rating import ingest
from billing.receivables import settlement
from billing.rules.money import Money
from clusters.connectors.base import Reading, Row
from clusters.models import Cluster, Pull
from portal.config_file.apply import apply
from portal.config_file.schema import parse
from portal.core.outbox import outbox
from portal.core.tenants.models import OperatorRole, Tenant, User
from portal.dev.demo_data.generator import atlas
from portal.dev.demo_data.kubernetes import nimbus
from portal.dev.demo_data.telemetry import declare_nodes, observe_nodes, with_telemetry

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

MANUAL_LINES = (
    ("lakeside", "Move of 40 TB from the old cluster", "480.00"),
    ("halcyon-labs", "Reservation of 48 h100 for next year", "264000.00"),
)
"""By tenant what is on the invoice of the month before the first one with usage, in USD."""

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
    declare_nodes(since=month)
    observe_nodes(since=month)
    _read("atlas", atlas(seed=SEED, since=since, until=until), moment, say)
    pods = nimbus(seed=SEED, since=since, until=until)
    _read("nimbus", with_telemetry(pods, since=since), moment, say)
    say(f"Closing {month:%Y-%m} ...")
    _close(month, moment)
    _close_earlier(month, moment)
    _wallet(moment)
    _statement(moment)
    outbox.drain()  # the PDFs of the invoices
    _set_passwords()


def _set_passwords() -> None:
    """One slow hash serves all: the password is printed, so no salt of its own would protect a login."""
    password = make_password(PASSWORD)
    for email, _ in LOGINS[1:]:
        User.objects.filter(email=email).update(password=password)
    User.objects.create(email=OPERATOR, password=password, operator_role=OperatorRole.ADMIN)


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
    ingest.ingest(cluster=cluster, rows=rows, reading=Reading(), source=SOURCE, moment=moment, as_of=moment)


def _close(month: datetime, moment: datetime) -> None:
    """On the morning of the 2nd, or now where that is still to come; the first invoice is paid a week later."""
    following = (month + timedelta(days=32)).replace(day=1)
    on = min(moment, following + timedelta(days=1, hours=9))
    tenants = Tenant.objects.order_by("pk")
    for closed in month_close.close_month(
        tenants=tenants, year=month.year, month=month.month, moment=on, now=moment
    ):
        if closed.outcome not in {month_close.Outcome.ISSUED, month_close.Outcome.ALREADY}:
            raise RuntimeError(f"{closed.tenant}: {closed.outcome}: {closed.reason}")
    invoice = Invoice.objects.issued().order_by("pk").first()
    if invoice is not None:
        settlement.record_payment(
            invoice=invoice,
            amount=Money.from_minor(invoice.total, invoice.currency),
            received_on=min(moment, on + timedelta(days=7)).date(),
            reference=f"SEPA {invoice.number}",
            recorded_by="demonstration",
        )


def _close_earlier(month: datetime, moment: datetime) -> None:
    """The month before: Lakeside gets a second open invoice, that of Halcyon Labs waits for approval."""
    earlier = _previous_month(month)
    for slug, description, net in MANUAL_LINES:
        tenant = Tenant.objects.get(slug=slug)
        if not ManualLine.objects.filter(tenant=tenant).exists():
            manual_lines.add_manual_line(
                tenant=tenant,
                description=description,
                net=Money.of(net, "USD"),
                reason="agreed by contract",
                by=SOURCE,
                on=earlier.date(),
            )
    tenants = Tenant.objects.filter(slug__in=[slug for slug, _, _ in MANUAL_LINES])
    for closed in month_close.close_month(
        tenants=tenants, year=earlier.year, month=earlier.month, moment=moment, now=moment
    ):
        if closed.outcome not in {
            month_close.Outcome.ISSUED,
            month_close.Outcome.ALREADY,
            month_close.Outcome.PENDING_APPROVAL,
        }:
            raise RuntimeError(f"{closed.tenant}: {closed.outcome}: {closed.reason}")


def _wallet(moment: datetime) -> None:
    """Of Halcyon Labs: tops itself up once somebody has saved a card."""
    wallet = Wallet.objects.get(tenant__slug="halcyon-labs")
    automatic.set_rule(
        wallet=wallet, active=True, below=1_000_00, amount=5_000_00, most=20_000_00, by=LOGINS[1][0], moment=moment
    )  # fmt: skip


def _statement(moment: datetime) -> None:
    """A transfer that names no invoice waits for the operator; rent that was paid is none of ours."""
    invoice = Invoice.objects.issued().filter(tenant__slug="biophysik").order_by("pk").first()
    if invoice is None or invoice.issued_on is None:
        return
    on = min(moment.date(), invoice.issued_on + timedelta(days=5))
    total = Money.from_minor(invoice.total, invoice.currency).text
    rows = [
        "booked_on;amount;currency;payer;payer_iban;text;bank_reference",
        f"{on};{total};EUR;INSTITUT FUER BIOPHYSIK POTSDAM;DE75512108001245126199;GPU letzter Monat;1107-88",
        f"{on};-2400.00;EUR;Hafenlager Verwaltung;DE02500105170137075030;Miete;1107-91",
    ]
    statement_import.import_statement(
        data="\n".join(rows).encode(),
        name="account.csv",
        by="demonstration",
        moment=moment,
        options=ReadOptions(decimal="."),
    )
