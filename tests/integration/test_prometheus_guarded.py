"""A real Prometheus that asks who is there, and shows a certificate of the site's own authority."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import pytest

from clusters.connectors.base import ConnectorError, Secret
from clusters.connectors.http import Endpoint
from clusters.connectors.prometheus import PrometheusLogin
from clusters.connectors.prometheus.client import PrometheusClient
from tests.contracts.prometheus_reading import ADMITTED
from tests.contracts.test_slurm_transport import Signed, signed
from tests.integration.prom_lab import Lab, bare

PASSWORD = "pass-word of op"
HASH = "$2y$05$abcdefghijklmnopqrstuu/VezZ4YaOodkoEB48uxA8.ZUbbRmHKy"  # of it, as htpasswd -B writes it
USERS = f"basic_auth_users:\n  op: {HASH}\n"
TLS = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n"


def _answers(url: str, ca: str = "") -> None:
    """Raises OSError while it starts, when it takes connections and answers 503 to each."""
    try:
        _now(url.replace("127.0.0.1", "localhost"), ca=ca)
    except ConnectorError as error:
        if error.retry:
            raise ConnectionError(str(error)) from error
        raise


@pytest.fixture(scope="module")
def authority() -> Signed:
    return signed("Test CA")


@pytest.fixture(scope="module")
def guarded(pushed_lab: Lab, authority: Signed) -> Iterator[str]:
    server = signed("localhost", by=authority)
    files = {"web.yml": USERS + TLS, "server.pem": server.pem, "server.key": server.key_pem}
    with bare(pushed_lab, files=files, scheme="https", ready=partial(_answers, ca=authority.pem)) as url:
        yield url.replace("127.0.0.1", "localhost")


def _now(url: str, user: str = "op", password: str = PASSWORD, ca: str = "") -> int:
    """The time that it tells, which needs no data."""
    login = PrometheusLogin(user=user, password=Secret(password))
    with PrometheusClient(Endpoint(base_url=url, ca=ca, timeout=20), login, clock=lambda: ADMITTED) as client:
        return client.now()


def test_who_knows_the_password_is_answered_and_who_does_not_reads_what_to_check(pushed_lab: Lab) -> None:
    with bare(pushed_lab, files={"web.yml": USERS}, ready=_answers) as url:
        assert _now(url) > pushed_lab.end
        for user, password in (("op", "guessed"), ("eve", PASSWORD), ("", "")):
            with pytest.raises(ConnectorError) as error:
                _now(url, user, password)
            assert str(error.value) == (
                f"{url} does not know us (HTTP 401): check the user and password, the token, the AWS key or the "
                "headers of the connection."
            )
            assert not error.value.retry


def test_the_same_over_tls_where_its_authority_is_given(guarded: str, authority: Signed) -> None:
    assert _now(guarded, ca=authority.pem) > ADMITTED - 10**9
    with pytest.raises(ConnectorError, match=re.escape("does not know us (HTTP 401)")):
        _now(guarded, password="guessed", ca=authority.pem)


def test_nobody_is_told_the_password_who_is_not_trusted(guarded: str) -> None:
    for ca in ("", signed("Some other CA").pem):
        with pytest.raises(ConnectorError) as error:
            _now(guarded, ca=ca)
        assert "is not trusted" in str(error.value)
        assert "give the CA that signed it, and check the name in the base URL." in str(error.value)


def test_http_where_https_is_spoken_is_one_sentence(guarded: str) -> None:
    with pytest.raises(ConnectorError) as error:
        _now(guarded.replace("https:", "http:"))
    assert str(error.value).startswith("http://localhost:")
    # Its own words about https come with a reset of the connection, which may overtake them.
    assert "HTTP 400" in str(error.value) or "or it speaks https only." in str(error.value)
