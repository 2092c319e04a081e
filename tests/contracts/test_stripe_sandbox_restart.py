"""The stand-in for Stripe is a process whose state outlives it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import stripe

from portal.dev.stripe_sandbox import Sandbox
from portal.dev.stripe_sandbox.__main__ import main
from portal.env import ROOT
from tests.contracts.stripe_client import NOON, SECRET, ann, charge, client

ONE: stripe.RequestOptions = {"idempotency_key": "ct:d1:customer:7"}


def test_what_was_made_is_there_after_a_restart(tmp_path: Path) -> None:
    with Sandbox(home=tmp_path, secret=SECRET, now=NOON) as sandbox:
        api = client(sandbox)
        customer = api.v1.customers.create({"name": "Ann"}, ONE).id
        charge(api, customer, sandbox.dashboard.save_card(customer))
        sandbox.clock.advance(days=1)
    with Sandbox(home=tmp_path, secret=SECRET, now=NOON) as sandbox:
        api = client(sandbox)
        assert api.v1.payment_intents.list({"customer": customer}).data[0].status == "succeeded"
        assert sandbox.clock.now() == int(NOON.timestamp()) + 86_400
        assert len(api.v1.webhook_endpoints.list().data) == 1
        assert sandbox.webhooks.take()[0].type == "customer.created"
        sandbox.clock.advance(days=2)
        assert len(api.v1.payouts.list().data) == 1
    assert (tmp_path / "stripe-sandbox.json").stat().st_mode & 0o777 == 0o600


def test_a_key_is_remembered_over_a_restart(tmp_path: Path) -> None:
    customer_ids = []
    for _ in range(2):
        with Sandbox(home=tmp_path) as sandbox:
            customer_ids.append(client(sandbox).v1.customers.create({"name": "Ann"}, ONE).id)
    assert customer_ids[0] == customer_ids[1]


def test_a_state_that_is_none_is_refused_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "stripe-sandbox.json").write_text('{"objects": ')
    with pytest.raises(SystemExit, match="is not a state of the sandbox: move it away"):
        Sandbox(home=tmp_path)


@contextmanager
def process(home: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "portal.dev.stripe_sandbox", "--port", "0", "--home", str(home)]
    started = subprocess.Popen(
        [*command, "--webhook", "http://127.0.0.1:9/hook", "--secret", SECRET],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin"},
    )
    try:
        assert started.stdout is not None
        line = started.stdout.readline()
        assert "No money moves" in line
        yield started, line.split()[3].rstrip(",")
    finally:
        started.kill()
        started.wait()
        if started.stdout is not None:
            started.stdout.close()


def test_killed_in_the_middle_of_its_work_it_has_all_that_it_answered(tmp_path: Path) -> None:
    with process(tmp_path) as (started, url):
        api = stripe.StripeClient("sk_test_sandbox", base_addresses={"api": url}, max_network_retries=0)
        customer_ids = [ann(api) for _ in range(5)]
        started.kill()
        with pytest.raises(stripe.APIConnectionError):
            ann(api)
    json.loads((tmp_path / "stripe-sandbox.json").read_text())
    with process(tmp_path) as (started, url):
        api = stripe.StripeClient("sk_test_sandbox", base_addresses={"api": url})
        assert [one.id for one in api.v1.customers.list().data] == customer_ids[::-1]
        assert api.v1.webhook_endpoints.list().data[0].url == "http://127.0.0.1:9/hook"
        started.terminate()
        assert started.wait(timeout=20) == 0


def test_a_port_that_is_taken_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Sandbox() as sandbox:
        port = sandbox.url.rpartition(":")[2]
        assert main(["--port", port, "--home", str(tmp_path)]) == 1
    assert (
        f"cannot start on port {port}: Address already in use. Give another --port."
        in capsys.readouterr().err
    )
    with pytest.raises(SystemExit):
        main(["--port", "0", "--home", str(tmp_path), "--secret", SECRET])
    assert "give --webhook and --secret together" in capsys.readouterr().err
