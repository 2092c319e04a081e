"""Who we are to a Prometheus, and that nobody else gets to know it."""

from __future__ import annotations

from base64 import b64decode

import pytest

from clusters.connectors.base import ConnectorError, Secret
from clusters.connectors.http import Endpoint
from clusters.connectors.prometheus import AwsKeys, PrometheusLogin
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.login import signed
from tests.fakes.prometheus import Request, StandIn, success

NOW = 1_740_700_000
SIGNED_AT = 1_440_938_160  # 2015-08-30T12:36:00Z, as in AWS's published test suite
SUITE = AwsKeys(
    region="us-east-1",
    access_key="AKIDEXAMPLE",
    secret_key=Secret("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
    service="service",
)


def _request(login: PrometheusLogin) -> Request:
    with StandIn(lambda _: success()) as prometheus:
        with PrometheusClient(Endpoint(base_url=prometheus.url), login, clock=lambda: NOW) as client:
            client.instant("up", NOW)
        (request,) = prometheus.requests
        return request


def test_nobody_a_user_or_a_bearer() -> None:
    assert "authorization" not in _request(PrometheusLogin()).headers
    header = _request(PrometheusLogin(user="42", password=Secret("geheim:ü"))).headers["authorization"]
    assert b64decode(header.removeprefix("Basic ")).decode() == "42:geheim:ü"
    assert _request(PrometheusLogin(bearer=Secret("t0ken"))).headers["authorization"] == "Bearer t0ken"


def test_two_ways_at_once_are_refused() -> None:
    with pytest.raises(ConnectorError, match="more than one of user, bearer token and AWS key"):
        _request(PrometheusLogin(user="u", bearer=Secret("t")))


def test_no_secret_is_shown() -> None:
    login = PrometheusLogin(user="u", password=Secret("hidden"), bearer=Secret("hidden"), aws=SUITE)
    assert "hidden" not in repr(login)
    assert "EXAMPLEKEY" not in repr(login)


@pytest.mark.parametrize(
    ("method", "headers", "body", "names", "signature"),
    [
        ("GET", {}, b"", "host;x-amz-date", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("POST", {}, b"", "host;x-amz-date", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
        ("POST", {"content-type": "application/x-www-form-urlencoded"}, b"Param1=value1",
         "content-type;host;x-amz-date", "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"),
    ],
)  # fmt: skip
def test_signatures_are_those_of_the_published_suite(
    method: str, headers: dict[str, str], body: bytes, names: str, signature: str
) -> None:
    signed_headers = signed(
        method, "https://example.amazonaws.com/", body, headers, keys=SUITE, now=SIGNED_AT
    )
    assert signed_headers["x-amz-date"] == "20150830T123600Z"
    assert signed_headers["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        f"SignedHeaders={names}, Signature={signature}"
    )


@pytest.mark.parametrize(
    ("token", "signature"),
    [
        ("", "73347d315eb3f095235993dfdd240bf21a08d1af08eaf92dd7f45a347895bab1"),
        ("session/token==", "53c537bcacab43dbb71cc7f44821a37743d1825fb89e172cb63786fc8062fc0c"),
    ],
)
def test_a_query_to_amazon_is_signed_as_its_own_library_signs_it(token: str, signature: str) -> None:
    """The expected signatures were made with botocore 1.44.5."""
    keys = AwsKeys(
        region="eu-central-1",
        access_key="AKIDEXAMPLE",
        secret_key=SUITE.secret_key,
        session_token=Secret(token),
    )
    url = "https://aps-workspaces.eu-central-1.amazonaws.com:443/workspaces/ws-12%2034/api/v1/query"
    signed_headers = signed("POST", url, b"query=up&time=1", {"content-type": "application/x-www-form-urlencoded"},
                  keys=keys, now=SIGNED_AT)  # fmt: skip
    assert signed_headers["authorization"].rpartition("Signature=")[2] == signature
    assert signed_headers.get("x-amz-security-token", "") == token


def test_a_signed_query_reaches_the_server_as_it_was_signed() -> None:
    keys = AwsKeys(region="eu-central-1", access_key="AKIDEXAMPLE", secret_key=Secret("s"))
    with StandIn(lambda _: success(), prefix="/workspaces/ws-1") as prometheus:
        login = PrometheusLogin(aws=keys)
        with PrometheusClient(Endpoint(base_url=prometheus.url), login, clock=lambda: NOW) as client:
            client.instant("up", NOW)
        (request,) = prometheus.requests
        again = signed(
            "POST", f"http://{request.headers['host']}/workspaces/ws-1/api/v1/query", request.body,
            {"content-type": request.headers["content-type"]}, keys=keys, now=NOW,
        )  # fmt: skip
    assert request.headers["authorization"] == again["authorization"]
    assert "/eu-central-1/aps/aws4_request" in request.headers["authorization"]
