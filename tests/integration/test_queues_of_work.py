"""Four pulls hang, and an invoice is charged all the same: the workers of docker-compose.yml over a real Redis."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis as redis_client
import yaml
from django.db import transaction
from kombu import Connection

from billing.models import Payment
from billing.payments import customers, gateway_access, saved_methods
from clusters.models import Pull
from portal.celery import app
from portal.core.outbox import outbox
from portal.dev.embedded.redis import Redis
from portal.dev.stripe_sandbox.sandbox import Sandbox
from portal.env import ROOT, broker
from tests.builders import a_cluster, a_job, a_plan, a_seller, a_tenant, ingest
from tests.fakes.scheduler_port import a_world, connected
from tests.fakes.slurmrestd import StandIn
from tests.integration.test_outbox_worker import eventually, started
from tests.stories import close

pytestmark = pytest.mark.usefixtures("transactional_db")

PLACES = 3  # of the worker that pulls
PULLS = PLACES + 2
SERVICES = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]


@contextmanager
def worker(kind: str, environ: dict[str, str], log: Path) -> Iterator[None]:
    """Started by the words of docker-compose.yml."""
    command = SERVICES[f"worker-{kind}"]["command"]
    with started([sys.executable, *command[1:], "--without-gossip", "--without-mingle"], environ, log):
        yield


@contextmanager
def hanging(slurm: StandIn) -> Iterator[None]:
    """Every question waits until the block ends."""
    free = threading.Event()

    def wait(_: str) -> None:
        free.wait(120)

    slurm.before = wait
    try:
        yield
    finally:
        free.set()


def an_invoice_that_is_due(stripe: Sandbox) -> None:
    """Of 4.00, and a card that is charged for it."""
    cluster = a_cluster("files")
    a_seller()
    lab = a_tenant("vision-lab", plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(started="2026-03-02 10:00", ended="2026-03-02 12:00"), as_of="2026-04-20")
    close("2026-03", on="2026-04-01")
    now = datetime.now(UTC)
    customer = customers.get_customer(lab, gateway=gateway_access.get_gateway(), moment=now)
    card = stripe.dashboard.save_card(customer, "4242424242424242")
    assert (
        saved_methods.save_method(
            tenant=lab, method=gateway_access.get_gateway().find_method(card), moment=now
        )
        is not None
    )


@pytest.mark.sample
def test_a_long_pull_delays_no_charge_and_no_effect(
    database_url: str, tmp_path: Path, settings: Any, effects: Callable[[], list[str]]
) -> None:
    log = tmp_path / "workers.log"
    with ExitStack() as stack:
        stripe = stack.enter_context(Sandbox())
        slurm = stack.enter_context(StandIn(44, world=a_world()))
        redis = stack.enter_context(Redis(tmp_path))
        settings.STRIPE_SECRET_KEY, settings.STRIPE_API_BASE = stripe.key, stripe.url
        an_invoice_that_is_due(stripe)
        clusters = [connected(slurm, name=f"gpu{n}") for n in range(PULLS)]
        environ = os.environ | {
            "DJANGO_SETTINGS_MODULE": "portal.settings",
            "CLUSTERTAB_HOME": str(tmp_path),
            "DATABASE_URL": database_url,
            "REDIS_URL": redis.url(),
            "CLUSTERTAB_SECRET_KEYS": ",".join(settings.CLUSTERTAB_SECRET_KEYS),
            "STRIPE_SECRET_KEY": stripe.key,
            "STRIPE_API_BASE": stripe.url,
            "STRIPE_MODE": "test",
        }
        stack.enter_context(hanging(slurm))
        broker_connection = stack.enter_context(Connection(broker(redis.url())))
        stack.enter_context(worker("pull", environ, log))
        stack.enter_context(worker("collect", environ, log))
        for cluster in clusters:
            app.send_task(
                "billing.tasks.pull_usage", kwargs={"cluster_id": cluster.pk}, connection=broker_connection
            )
        eventually(lambda: len(slurm.requests) >= PLACES, log)  # all of its places are taken
        with transaction.atomic():
            outbox.add("tests.integration.effects.record", mark="told")
        for task in ("billing.tasks.collect", "portal.core.outbox.tasks.dispatch"):
            app.send_task(task, connection=broker_connection)
        eventually(lambda: Payment.objects.filter(amount=400).exists(), log)
        eventually(lambda: effects() == ["told"], log)
        assert len(slurm.requests) == PLACES  # they hang still
        assert not Pull.objects.filter(cluster__in=clusters, outcome=Pull.Outcome.DONE).exists()
        with redis_client.Redis.from_url(redis.url()) as client:
            assert int(client.llen("wake")) == 0
