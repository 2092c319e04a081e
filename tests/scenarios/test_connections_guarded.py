"""Op pastes a key into the wrong field, and Eve gets hold of Op's session: no secret is lost to either."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.test import Client

from clusters.models import Connection
from tests.builders import an_operator
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


def doors(kept: Connection) -> tuple[str, str]:
    """The operator's form and the admin's."""
    return (
        f"/operator/clusters/{kept.cluster.name}/connection/",
        f"/admin/clusters/connection/{kept.pk}/change/",
    )


@pytest.mark.parametrize("field", ["ca", "client_certificate"])
@pytest.mark.parametrize("kind", KEYS)
def test_a_combined_pem_is_not_kept_in_clear(
    browser: Client, op: Op, tmp_path: Path, field: str, kind: str
) -> None:
    kept = a_connection()
    for combined in (CERTIFICATE + KEYS[kind], KEYS[kind] + CERTIFICATE):
        for door in doors(kept):
            form = {"base_url": kept.base_url, "every": "300", "look_back": "48", field: combined}
            answered = browser.post(door, form)
            assert f"This {SENTENCE}" in answered.content.decode()
        (tmp_path / "combined.pem").write_text(combined)
        (refused,) = op.is_refused(f'{SLURM}{field} = "file:{tmp_path}/combined.pem"\n')
        assert refused.endswith(f"connection: {field} {SENTENCE}")
    assert "MC4CAQAwBQYDsecret" not in all_rows()
