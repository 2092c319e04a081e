"""Op pastes a key into the wrong field, and Eve gets hold of Op's session: no secret is lost to either."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.test import Client

from clusters import connection_test
from clusters.models import ClusterKind, Connection
from tests.builders import a_cluster, an_operator
from tests.scenarios.configuring import Op
from tests.scenarios.test_connections import SLURM, all_rows
from tests.schedulers import PASSWORDS, a_connection

pytestmark = pytest.mark.django_db

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
KEYS = {
    kind: f"-----BEGIN {kind}PRIVATE KEY-----\nMC4CAQAwBQYDsecret\n-----END {kind}PRIVATE KEY-----\n"
    for kind in ("", "RSA ", "EC ", "ENCRYPTED ")
}
SENTENCE = (
    "holds a private key, which would rest in clear: leave only certificates in it, and put the key into "
    "client_key, which rests encrypted."
)


@pytest.fixture
def op(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Op:
    monkeypatch.setenv("BOREAS_JWT", PASSWORDS[0])
    return Op(tmp_path)


@pytest.fixture
def browser() -> Client:
    client = Client()
    client.force_login(an_operator())
    return client


def door(connection: Connection) -> str:
    return f"/operator/clusters/{connection.cluster.name}/connection/"


@pytest.mark.parametrize("field", ["ca", "client_certificate"])
@pytest.mark.parametrize("kind", KEYS)
def test_a_combined_pem_is_not_kept_in_clear(
    browser: Client, op: Op, tmp_path: Path, field: str, kind: str
) -> None:
    connection = a_connection()
    for combined in (CERTIFICATE + KEYS[kind], KEYS[kind] + CERTIFICATE):
        form = {"base_url": connection.base_url, "every": "300", "look_back": "48", field: combined}
        answered = browser.post(door(connection), form)
        assert f"This {SENTENCE}" in answered.content.decode()
        (tmp_path / "combined.pem").write_text(combined)
        (refused,) = op.is_refused(f'{SLURM}{field} = "file:{tmp_path}/combined.pem"\n')
        assert refused.endswith(f"connection: {field} {SENTENCE}")
    assert "MC4CAQAwBQYDsecret" not in all_rows()


def test_an_address_is_not_changed_from_under_its_secrets(browser: Client) -> None:
    connection = a_connection()
    for elsewhere in (
        {"base_url": "https://eve.example.org"},
        {"base_url": connection.base_url, "unix_socket": "/tmp/eve"},
    ):
        form = {**elsewhere, "every": "300", "look_back": "48", "new_token": "another"}
        answered = browser.post(door(connection), form).content.decode()
        assert "What is kept secret was entered for another address" in answered
        assert "(Extra headers, Signing key)" in answered
    assert Connection.objects.get().address == connection.base_url
    assert Connection.objects.get().token.reveal() == PASSWORDS[0]


def test_with_secrets_entered_again_or_taken_away_op_moves_it(browser: Client) -> None:
    connection = a_connection()
    form = {
        "base_url": "https://slurm.example.org:6820", "every": "300", "look_back": "48",
        "new_token": PASSWORDS[0], "forget": ["jwt_key", "headers"],
    }  # fmt: skip
    answered = browser.post(door(connection), form)
    assert answered.status_code == 302, answered.content.decode()
    moved = Connection.objects.get()
    assert (moved.address, moved.token.reveal()) == ("https://slurm.example.org:6820", PASSWORDS[0])
    assert not moved.jwt_key
    assert not moved.headers


def test_a_file_that_changes_the_address_gives_the_secrets_too(op: Op) -> None:
    op.applies(SLURM)
    moved = SLURM.replace("slurm.example.org:6820/api", "slurm2.example.org:6820")
    without = "\n".join(line for line in moved.splitlines() if not line.startswith("token"))
    (refused,) = op.is_refused(without)
    assert refused == (
        'cluster "boreas": its connection leads to another address, and what is kept secret was given for '
        'https://slurm.example.org:6820/api: give token again with it, or take it away with "".'
    )
    assert Connection.objects.get().address == "https://slurm.example.org:6820/api"
    op.applies(moved)
    assert Connection.objects.get().address == "https://slurm2.example.org:6820"
    op.applies(SLURM.replace("env:BOREAS_JWT", ""))
    assert (Connection.objects.get().address, bool(Connection.objects.get().token)) == (
        "https://slurm.example.org:6820/api",
        False,
    )


@pytest.mark.parametrize("kind", [ClusterKind.SLURM, ClusterKind.PROMETHEUS])
@pytest.mark.parametrize(
    ("address", "warned"),
    [
        ({"base_url": "http://slurm.invalid:1"}, True),
        ({"base_url": "https://slurm.invalid:1"}, False),
        ({"base_url": "http://127.0.0.1:1"}, False),
        ({"base_url": "http://[::1]:1"}, False),
        ({"base_url": "http://localhost:1"}, False),
        ({"base_url": "http://slurm.invalid:1", "unix_socket": "/nowhere"}, False),
    ],
)
def test_op_is_warned_of_a_token_that_travels_in_clear(
    kind: ClusterKind, address: dict[str, str], warned: bool
) -> None:
    cluster = a_connection(a_cluster(kind=kind), **address).cluster
    findings = {
        finding.subject: finding for finding in connection_test.examine(cluster=cluster, clock=lambda: 0)
    }
    assert len(findings) > 1 - warned
    if warned:
        assert findings["TLS"].level == "warn"
        assert findings["TLS"].sentence.startswith(
            f"What is said with {address['base_url']} travels in clear"
        )
    else:
        assert "TLS" not in findings
