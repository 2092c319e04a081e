"""The identity that AWS gives a pod signs the questions to its Prometheus, and is renewed before it ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clusters.connectors.base import ConnectorError
from clusters.connectors.http import Endpoint
from clusters.connectors.prometheus import AwsIdentity, PrometheusLogin, aws_identity
from clusters.connectors.prometheus.client import PrometheusClient
from tests.fakes import prometheus
from tests.fakes.aws_identity import ROLE, TOKEN, StandIn
from tests.fakes.prometheus import Request, success

NOW = 1_740_700_000
VARIABLES = (
    *("AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ENDPOINT_URL_STS", "AWS_ROLE_SESSION_NAME"),
    *("AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
)


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(aws_identity, "_cache", {})
    with StandIn(ends=NOW + 3600) as aws:
        yield aws


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    return path


@pytest.fixture
def role(aws: StandIn, token: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As the webhook of EKS writes it into a pod."""
    monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", aws.url)
    return token


def request_at(at: int = NOW) -> Request:
    """How a question came to a Prometheus."""
    login = PrometheusLogin(aws=AwsIdentity("eu-central-1"))
    with prometheus.StandIn(lambda _: success()) as server:
        with PrometheusClient(Endpoint(base_url=server.url), login, clock=lambda: at) as client:
            client.instant("up", NOW)
        return server.requests[-1]


@pytest.mark.usefixtures("role")
def test_a_role_of_a_service_account_signs_and_is_asked_for_once(aws: StandIn) -> None:
    headers = request_at().headers
    assert "Credential=ASIA1/20250227/eu-central-1/aps/aws4_request" in headers["authorization"]
    assert headers["x-amz-security-token"] == "session1"
    request_at(NOW + 3000)
    assert aws.count == 1


@pytest.mark.usefixtures("role")
def test_keys_are_renewed_before_they_end(aws: StandIn) -> None:
    request_at()
    aws.ends = NOW + 7200
    assert request_at(NOW + 3300).headers["x-amz-security-token"] == "session2"


def test_the_agent_of_pod_identity_gives_keys_too(
    aws: StandIn, token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{aws.url}/v1/credentials")
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(token))
    assert request_at().headers["x-amz-security-token"] == "session1"
    aws_identity._cache.clear()
    token.write_text("old")
    with pytest.raises(ConnectorError, match="gives no AWS keys to this process: 401: The token is invalid"):
        request_at()


def test_a_process_without_an_identity_says_what_is_missing() -> None:
    with pytest.raises(ConnectorError, match="neither AWS_ROLE_ARN and AWS_WEB_IDENTITY_TOKEN_FILE nor"):
        request_at()


def test_what_aws_refuses_is_said_in_its_words_and_without_the_token(
    role: Path, aws: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    role.write_text("expired-token")
    with pytest.raises(ConnectorError, match="InvalidIdentityToken: The token is expired") as failure:
        request_at()
    assert "expired-token" not in str(failure.value)
    role.unlink()
    with pytest.raises(ConnectorError, match="cannot be read"):
        request_at()
    role.write_text(TOKEN)
    monkeypatch.setenv("AWS_ROLE_ARN", ROLE + "-2")
    with pytest.raises(ConnectorError, match="AccessDenied: Not authorized"):
        request_at()
    aws.broken = True
    with pytest.raises(ConnectorError, match="gives no AWS keys to this process: 503") as failure:
        request_at()
    assert failure.value.retry


@pytest.mark.parametrize(
    "region", ["evil.example:443/a", "x@evil.example", "eu-central-1.evil.example", "", "EU-1"]
)
def test_a_region_sends_the_token_nowhere_else(role: Path, region: str) -> None:
    assert role.exists()
    with pytest.raises(ConnectorError, match="is no region of AWS"):
        AwsIdentity(region)
