"""Who we are to Slurm: a token that was stored, or one minted from Slurm's own key."""

from __future__ import annotations

import base64

import jwt
import pytest

from clusters.connectors.base import ConnectorError, Secret
from clusters.connectors.slurm.login import LIFE, RENEW, SlurmLogin
from tests.contracts.slurm_recorded import (
    NOW,
    Reply,
    Slurm,
    assert_no_secret,
    connector,
    refused,
    serving,
)

KEY = bytes(range(32))
STORED = Secret(base64.b64encode(KEY).decode())


def claims(token: Secret) -> dict[str, int | str]:
    payload: dict[str, int | str] = jwt.decode(
        token.reveal(), KEY, algorithms=["HS256"], options={"verify_exp": False, "verify_iat": False}
    )
    return payload


def a_token(**overrides: int | str) -> Secret:
    return Secret(jwt.encode({"sun": "portal", **overrides}, KEY, algorithm="HS256"))


def test_a_minted_token_says_who_since_when_and_until_when() -> None:
    token = SlurmLogin("portal", key=STORED).token(now=NOW)
    assert claims(token) == {"sun": "portal", "iat": NOW, "exp": NOW + LIFE}
    assert jwt.get_unverified_header(token.reveal()) == {"alg": "HS256", "typ": "JWT"}


def test_it_is_minted_anew_in_time_and_not_for_each_question() -> None:
    login = SlurmLogin("portal", key=STORED)
    first = login.token(now=NOW)
    assert login.token(now=NOW + LIFE - RENEW) == first
    later = login.token(now=NOW + LIFE - RENEW + 1)
    assert claims(later)["exp"] == NOW + LIFE - RENEW + 1 + LIFE
    assert login.expired(now=NOW + 10**9) is None


def test_a_clock_that_was_put_back_mints_anew() -> None:
    login = SlurmLogin("portal", key=STORED)
    login.token(now=NOW)
    assert claims(login.token(now=NOW - 10_000))["iat"] == NOW - 10_000


@pytest.mark.parametrize("pasted", ["{}", "SLURM_JWT={}", "  {}\n"])
def test_a_stored_token_may_be_pasted_as_scontrol_prints_it(pasted: str) -> None:
    bare = a_token(exp=NOW + 60).reveal()
    with serving(slurm := Slurm()) as address:
        source = connector(address, now=NOW, login=SlurmLogin(" portal ", Secret(pasted.format(bare))))
        list(source.usage(since=NOW - 60, until=NOW, open_keys=()))
    assert {headers["X-SLURM-USER-TOKEN"] for headers in slurm.headers} == {bare}
    assert {headers["X-SLURM-USER-NAME"] for headers in slurm.headers} == {"portal"}
    assert {headers["Accept"] for headers in slurm.headers} == {"application/json"}


@pytest.mark.parametrize(
    "reply",
    [
        Reply(401, b"Authentication failure", "text/plain"),
        Reply(502, b'{"errors":[{"error_number":7000,"error":"Unable to connect to database"}]}'),
    ],
)
def test_a_stored_token_that_is_past_its_end_is_said_to_be(reply: Reply) -> None:
    login = SlurmLogin("portal", a_token(exp=1_767_225_600))
    error = refused(Slurm(replies={"/slurmdb/v0.0.42/jobs": reply}), login=login)
    assert str(error) == (
        "The stored token expired on 2026-01-01 00:00 UTC: make a new one with "
        "`scontrol token username=portal lifespan=31536000` and store it."
    )
    assert not error.retry


@pytest.mark.parametrize("token", [Secret("no-token"), a_token(), a_token(exp=NOW + 1)])
def test_of_another_token_no_end_is_claimed(token: Secret) -> None:
    assert SlurmLogin("portal", token).expired(now=NOW) is None


def test_whose_token_it_is_can_be_told() -> None:
    assert SlurmLogin("portal", Secret(jwt.encode({"sun": "eve"}, KEY))).other_user() == "eve"
    assert SlurmLogin("portal", Secret(jwt.encode({"sun": "root"}, KEY))).other_user() == ""
    assert SlurmLogin("portal", a_token()).other_user() == ""


@pytest.mark.parametrize(
    ("login", "sentence"),
    [
        (SlurmLogin("portal"), "neither a token nor a JWT key"),
        (SlurmLogin("", Secret("x")), "has no Slurm user"),
        (SlurmLogin("portal", key=Secret("not base64 -SECRET!")), "The JWT key is not base64"),
    ],
)
def test_a_login_that_cannot_be(login: SlurmLogin, sentence: str) -> None:
    error = refused(Slurm(), login=login)
    assert sentence in str(error)
    assert not error.retry


def test_neither_token_nor_key_shows() -> None:
    login = SlurmLogin("portal", Secret("t-SECRET"), Secret("k-SECRET"))
    assert repr(login) == "SlurmLogin('portal')"
    assert "SECRET" not in f"{vars(login)}"
    with pytest.raises(ConnectorError) as caught:
        login.token(now=NOW)
    assert_no_secret(caught.value)
