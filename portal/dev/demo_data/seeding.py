"""Filling an empty instance with the demonstration, step by step, so that a kill at any point is made good."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path

from allauth.account.models import EmailAddress
from django.contrib.auth.hashers import make_password
from django.db import transaction

from billing.bank_transfers import statement_import
from billing.bank_transfers.entities import ReadOptions
from billing.models import Invoice
from billing.rating import ingest
from billing.rules.money import Money
from clusters.connectors.base import BusyHour, Reading, Row
from clusters.models import Cluster, Pull
from portal.config_file.apply import apply
from portal.config_file.schema import parse
from portal.core.tenants.models import OperatorRole, Tenant, User
from portal.dev.demo_data import year
from portal.dev.demo_data.months import months_before
from portal.dev.demo_data.nodes import declare_nodes, observe_nodes
from portal.dev.demo_data.rows import CLUSTERS, made_apart

CONFIG = Path(__file__).with_name("demo.toml")
SOURCE = "demonstration"  # of the passes that read it
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
    clusters = Cluster.objects.exclude(name__in=CLUSTERS)
    tenants = Tenant.objects.exclude(slug__in=[entry.slug for entry in parse(CONFIG.read_text()).tenants])
    return others.exists() or clusters.exists() or tenants.exists()


def is_seeded() -> bool:
    """The operator's login is the last thing that is made."""
    return User.objects.filter(email=OPERATOR).exists()


def seed(*, moment: datetime, say: Say) -> None:
    """Twelve months and what there is of a thirteenth, up to `moment`: all closed but the last two.

    The worker renders the documents afterwards, while people look around.

    Asked again after a kill it goes on where it stood, with the moment that it began with.
    """
    first = Pull.objects.filter(source=SOURCE).order_by("pk").first()
    moment = first.started_at if first is not None else moment
    with ExitStack() as stack:
        coming = (stack.enter_context(made_apart(name, moment)) for name in CLUSTERS)
        following = next(
            coming
        )  # is made while the tables of the file are written, each other while one is stored
        _configure(moment)
        for name in CLUSTERS:
            rows, following = following, next(coming, iter(()))
            _read(name, rows, moment, say)
    say("Closing the year ...")
    year.live(moment=moment)
    _statement(moment)
    _set_passwords()


def _configure(moment: datetime) -> None:
    apply(file=parse(CONFIG.read_text()))
    months = months_before(moment)
    grown, began = months[-2], months[-5]  # since when they are as busy as now; when nimbus came
    declare_nodes(since=months[0], drained_from=grown + timedelta(days=16))
    observe_nodes(since=began, drained_from=grown + timedelta(days=16, hours=7))


def _set_passwords() -> None:
    """One slow hash serves all: the password is printed, so no salt of its own would protect a login."""
    password = make_password(PASSWORD)
    for email, _ in LOGINS[1:]:
        User.objects.filter(email=email).update(password=password)
    with transaction.atomic():
        User.objects.create(email=OPERATOR, password=password, operator_role=OperatorRole.ADMIN)
        for person in User.objects.filter(email__in=[email for email, _ in LOGINS]):
            EmailAddress.objects.create(user=person, email=person.email, verified=True, primary=True)


def logins() -> str:
    """For whoever looks at the demonstration."""
    width = max(len(email) for email, _ in LOGINS)
    lines = [f"  {email:<{width}}  {what}" for email, what in LOGINS]
    return "\n".join([f"Sign in with the password {PASSWORD} as", *lines])


def _read(name: str, rows: Iterable[Row | BusyHour], moment: datetime, say: Say) -> None:
    cluster = Cluster.objects.get(name=name)
    if Pull.objects.filter(cluster=cluster, source=SOURCE, outcome=Pull.Outcome.DONE).exists():
        return
    say(f"Reading the usage of {name} ...")
    ingest.ingest(cluster=cluster, rows=rows, reading=Reading(), source=SOURCE, moment=moment, as_of=moment)


def _statement(moment: datetime) -> None:
    """A transfer that names no invoice waits for the operator; rent that was paid is none of ours."""
    invoice = Invoice.objects.issued().filter(tenant__slug="biophysik").order_by("pk").last()
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
