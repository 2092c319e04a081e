"""A token is renewed in its file, and the next pass reads the new one; nobody enters anything."""

from __future__ import annotations

import os
from pathlib import Path

import jwt
import pytest
from django.test import Client

from billing.rating import pulls
from clusters import sources
from clusters.models import Connection
from tests.builders import an_operator, at
from tests.scenarios.configuring import Op
from tests.scenarios.test_connections import SLURM, all_rows
from tests.schedulers import PASSWORDS

pytestmark = pytest.mark.django_db

OLD_KEY, NEW_KEY = b"\x00\xff" * 20, b"\x01\xfe" * 20


@pytest.fixture
def op(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Op:
    monkeypatch.setenv("BOREAS_JWT", PASSWORDS[0])
    return Op(tmp_path)


def certificate(text: str) -> str:
    return f"-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n"


def token() -> str:
    return sources.login(Connection.objects.get()).token(now=0).reveal()


def test_what_a_file_holds_is_read_again_at_each_pass(op: Op, tmp_path: Path) -> None:
    file, ca, header = (tmp_path / name for name in ("token", "ca.pem", "header"))
    file.write_text("first.token\n")
    ca.write_text(certificate("old"))
    header.write_text("Basic old")
    named = SLURM.replace("env:BOREAS_JWT", f"file:{file}")
    config = f'{named}ca = "file:{ca}"\nheaders = {{ Proxy-Authorization = "file:{header}" }}\n'
    op.applies(config)
    assert op.applies(config) == ["Nothing to change."]
    assert "first.token" not in all_rows()

    def endpoint() -> tuple[str, str]:
        end = sources.endpoint(Connection.objects.get())
        return end.headers["Proxy-Authorization"].reveal(), end.ca.splitlines()[1]

    assert (token(), endpoint()) == ("first.token", ("Basic old", "old"))
    file.write_text("SLURM_JWT=renewed.token\n")
    header.write_text("Basic new\n")
    ca.write_text(certificate("new"))
    assert (token(), endpoint()) == ("renewed.token", ("Basic new", "new"))


def test_a_renewed_signing_key_is_read_again(op: Op, tmp_path: Path) -> None:
    key = tmp_path / "jwt_hs256.key"
    key.write_bytes(OLD_KEY)
    op.applies(f'{SLURM}jwt_key = "file:{key}"\n')
    for content in (OLD_KEY, NEW_KEY):
        key.write_bytes(content)
        claims = jwt.decode(token(), content, ["HS256"], options={"verify_exp": False})
        assert claims["sun"] == "clustertab"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            None,
            "which cannot be read: No such file or directory. It is read at each pass, where the workers run",
        ),
        (b"\xff\xfe", "which holds no text."),
        (b"x" * (2 << 20), "which is too large for it."),
        (b"\n", "which is empty: is it being written?"),
    ],
)
def test_a_file_that_cannot_be_read_any_more_fails_the_pass_with_a_sentence(
    op: Op, tmp_path: Path, content: bytes | None, sentence: str
) -> None:
    file = tmp_path / "token"
    file.write_text("first.token")
    op.applies(SLURM.replace("env:BOREAS_JWT", f"file:{file}"))
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    pulled = pulls.pull(Connection.objects.get().cluster, moment=at("2026-03-01 12:00"))
    assert pulled.outcome.value == "failed"
    assert f"The token names '{str(file)[:60]}" in pulled.error  # sentences shorten what they repeat
    assert sentence in pulled.error


def test_a_file_that_is_being_written_is_not_taken_for_no_login_at_all(op: Op, tmp_path: Path) -> None:
    """Whoever renews a token empties its file first; asked without any, a Prometheus may answer all the same."""
    file = tmp_path / "token"
    file.write_text("first.token")
    op.applies(
        '[[cluster]]\nname = "kube"\nkind = "prometheus"\n[cluster.connection]\n'
        f'url = "http://127.0.0.1:9"\ntoken = "file:{file}"\n'
    )
    file.write_text("")
    pulled = pulls.pull(Connection.objects.get().cluster, moment=at("2026-03-01 12:00"))
    assert "which is empty: is it being written?" in pulled.error
    assert Connection.objects.get().next_pull_at == at("2026-03-01 12:00:30")  # not in an hour


def test_what_is_no_file_is_refused_and_never_waited_for(op: Op, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        refused = op.is_refused(SLURM.replace("env:BOREAS_JWT", f"file:{path}"))
        assert any("which is not a file." in sentence for sentence in refused), path


def test_a_form_names_no_file_since_it_could_be_any_of_the_host(op: Op, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(certificate("MIIB"))
    op.applies(f'{SLURM}ca = "file:{tmp_path}/ca.pem"\n')
    browser = Client()
    browser.force_login(an_operator())
    connection = Connection.objects.get()
    form = {
        "base_url": connection.base_url,
        "every": "300",
        "look_back": "48",
        "ca": connection.ca,
        "user": "clustertab",
    }
    page = "/operator/clusters/boreas/connection/"
    for field, text in (
        ("new_token", "file:/etc/shadow"),
        ("new_headers", "X-A: file:/etc/shadow"),
        ("ca", "file:/etc/shadow"),
    ):
        answered = browser.post(page, form | {field: text}).content.decode()
        assert "A file is named in a configuration file, for `apply` at the shell" in answered, field
    assert browser.post(page, form).status_code == 302  # what `apply` named stays
    assert Connection.objects.get().ca == f"file:{tmp_path}/ca.pem"
