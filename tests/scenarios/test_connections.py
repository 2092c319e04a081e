"""Op tells how a cluster is reached; nobody, Op included, ever reads a secret of it again."""

from __future__ import annotations

import io
import json
import logging
import sys
from datetime import datetime
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from django.core.management import call_command
from django.db import IntegrityError, transaction
from django.db import connection as database
from django.test import Client
from django.views.debug import ExceptionReporter
from pytest_django.fixtures import Settings

from clusters import sources
from clusters.connectors.base import ConnectorError, Secret
from clusters.models import Connection, Pull
from portal.core.audit.models import AuditEntry
from portal.core.vault import Sealed, VaultError, seal
from portal.env import read, secret_keys
from portal.env_variables import SettingError
from portal.ops.cli import RefusedError
from tests.builders import a_cluster, an_operator
from tests.history import history
from tests.scenarios.configuring import Op, run_json
from tests.schedulers import PASSWORDS, Scheduler, a_connection

pytestmark = pytest.mark.django_db

SLURM = """
[[cluster]]
name = "boreas"
kind = "slurm"
timezone = "Europe/Berlin"
[cluster.connection]
url = "https://slurm.example.org:6820/api"
user = "clustertab"
token = "env:BOREAS_JWT"
first_usage_from = 2026-03-01
"""


@pytest.fixture
def op(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Op:
    monkeypatch.setenv("BOREAS_JWT", PASSWORDS[0])
    return Op(tmp_path)


def all_rows() -> str:
    """Everything that the database keeps, as text."""
    with database.cursor() as cursor:
        cursor.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")
        tables = [name for (name,) in cursor.fetchall()]
        texts = []
        for table in tables:
            cursor.execute(f'SELECT string_agg(t::text, chr(10)) FROM "{table}" t')
            texts.append(cursor.fetchone()[0] or "")
    return "\n".join(texts)


def test_a_file_says_how_a_cluster_is_reached(op: Op) -> None:
    changes = op.applies(SLURM)
    assert changes[0] == "cluster boreas: new (kind slurm, timezone Europe/Berlin)"
    assert changes[1].startswith(
        "connection of boreas: new (url https://slurm.example.org:6820/api, user clustertab, "
        "first_usage_from 2026-02-28 23:00:00 UTC, every 300 s, look_back 48 h, enabled yes, secrets entered 20"
    )
    assert Connection.objects.get().token.reveal() == PASSWORDS[0]
    assert op.applies(SLURM) == ["Nothing to change."]


def test_a_new_token_is_told_as_entered_and_asked_with_at_once(
    op: Op, monkeypatch: pytest.MonkeyPatch
) -> None:
    op.applies(SLURM)
    Scheduler(fails=ConnectorError("The token has expired.", retry=False)).pulled(
        Connection.objects.get().cluster, "2026-03-01 12:00"
    )
    monkeypatch.setenv("BOREAS_JWT", "another.token")
    (change,) = op.applies(SLURM)
    assert change.startswith("connection of boreas: secrets entered ")
    connection = Connection.objects.get()
    assert (connection.token.reveal(), connection.next_pull_at) == ("another.token", None)
    op.applies(SLURM.replace('"env:BOREAS_JWT"', '""'))
    assert not Connection.objects.get().token


def test_keys_certificates_and_headers_come_from_files(op: Op, tmp_path: Path) -> None:
    (tmp_path / "jwt_hs256.key").write_bytes(b"\x00\xffbytes")
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----")
    (tmp_path / "password").write_text(f"{PASSWORDS[2]}\n")
    op.applies(
        SLURM + f'jwt_key = "file:{tmp_path}/jwt_hs256.key"\nca = "file:{tmp_path}/ca.pem"\n'
        f'headers = {{ Proxy-Authorization = "file:{tmp_path}/password" }}\n'
    )
    end = sources.endpoint(Connection.objects.get())
    assert end.headers == {"Proxy-Authorization": Secret(PASSWORDS[2])}
    assert end.ca.startswith("-----BEGIN CERTIFICATE-----\nMIIB")
    assert Connection.objects.get().jwt_key.reveal() == f"file:{tmp_path}/jwt_hs256.key"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (f'token = "{PASSWORDS[0]}"', "token stands in the file itself"),
        ("token = 17", "token stands in the file itself"),
        ('token = "env:NOT_SET"', "token names the environment variable 'NOT_SET', which is not set."),
        ('token = "file:/nowhere/token"', "token names '/nowhere/token', which cannot be read: No such file"),
        ('jwt_key = "env:BOREAS_JWT"', "jwt_key names a variable whose value is not base64"),
        ('ca = "env:BOREAS_JWT"', "ca holds no certificate in PEM."),
        ('headers = { "a b" = "env:BOREAS_JWT" }', "connection, headers: a b is no name of a header."),
        ('url = "ftp://slurm"', "url is 'ftp://slurm': write scheme, host and port"),
        ('url = "https://u:p@slurm"', "leave the password out"),
        ("every = 5", "every has to be a whole number from 30 to 86400."),
        ('enabled = "no"', "enabled is text; write true or false, without quotes."),
    ],
)
def test_what_cannot_be_meant_is_refused_without_a_word_of_the_secret(
    op: Op, line: str, sentence: str
) -> None:
    key = line.partition(" =")[0]
    rest = "\n".join(setting for setting in SLURM.splitlines() if not setting.startswith(f"{key} ="))
    refused = " ".join(op.is_refused(f"{rest}\n{line}\n"))
    assert 'cluster "boreas", connection' in refused
    assert sentence in refused
    assert not any(secret in refused for secret in PASSWORDS)


def test_a_connection_belongs_to_a_live_cluster_and_has_an_address(op: Op) -> None:
    (refused,) = op.is_refused(SLURM.replace('kind = "slurm"\n', ""))
    kinds = "'slurm' or 'prometheus' or 'gpustack'"
    assert refused == f'cluster "boreas": it has a connection, so its kind has to be {kinds}.'
    (refused,) = op.is_refused("\n".join(line for line in SLURM.splitlines() if not line.startswith("url")))
    assert refused == (
        'cluster "boreas": its connection has neither url nor unix_socket; write where slurmrestd listens.'
    )


def test_a_socket_of_this_host_needs_no_address(op: Op) -> None:
    op.applies(SLURM.replace('url = "https://slurm.example.org:6820/api"', 'unix_socket = "/run/rest.sock"'))
    connection = Connection.objects.get()
    assert (connection.address, sources.endpoint(connection).unix_socket) == (
        "unix:/run/rest.sock",
        "/run/rest.sock",
    )
    connection.full_clean()
    with pytest.raises(IntegrityError, match="connection_leads_somewhere"), transaction.atomic():
        Connection.objects.update(unix_socket="")


def test_no_secret_is_in_the_database_nor_its_history_nor_in_any_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    connection = a_connection()
    connection.token = seal("a second " + PASSWORDS[0])
    connection.save()
    with caplog.at_level(logging.DEBUG):
        Scheduler(fails=ConnectorError("Away.", retry=True)).pulled(connection.cluster, "2026-03-01 12:00")
    for text in (
        all_rows(),
        caplog.text,
        repr(vars(connection)),
        str(connection),
        repr(sources.endpoint(connection)),
    ):
        assert not any(secret in text for secret in PASSWORDS)
    columns = {name for entry in AuditEntry.objects.of(connection) for name, _, _ in entry.changes}
    assert "credentials_changed_at" in columns
    assert {"client_key", "headers", "token", "jwt_key"}.isdisjoint(columns)


def test_the_history_says_who_changed_a_secret_and_when_whoever_did_it() -> None:
    connection = a_connection()
    with database.cursor() as cursor:
        cursor.execute("UPDATE clusters_connection SET last_error = 'x'")  # a pass's own doing: no history
        cursor.execute("UPDATE clusters_connection SET token = %s", [seal("new").token])
    (first, created_at), (second, changed) = history(connection, "credentials_changed_at")
    assert (first, second) == ("insert", "update")
    assert datetime.fromisoformat(changed) > datetime.fromisoformat(created_at)
    connection.refresh_from_db()
    assert connection.credentials_changed_at == datetime.fromisoformat(changed)


def test_op_sees_in_the_form_that_secrets_are_kept_and_enters_new_ones() -> None:
    connection = a_connection()
    client = Client()
    client.force_login(an_operator())
    path = f"/operator/clusters/{connection.cluster.name}/connection/"
    for page in (f"/admin/clusters/connection/{connection.pk}/change/", path):
        shown = client.get(page).content.decode()
        assert not any(secret in shown for secret in PASSWORDS)
        assert connection.token.token not in shown
    assert "One is kept; leave empty to keep it." in shown
    answered = client.post(
        path,
        {
            "base_url": connection.base_url, "every": "600", "look_back": "24", "new_token": "a.new.one",
            "new_headers": "X-Proxy: open sesame\n", "forget": ["jwt_key"], "enabled": "on",
        },
    )  # fmt: skip
    assert answered.status_code == 302, answered.content.decode()
    connection.refresh_from_db()
    assert (connection.every, connection.token.reveal(), connection.jwt_key.reveal()) == (
        600,
        "a.new.one",
        "",
    )
    assert json.loads(connection.headers.reveal()) == {"X-Proxy": "open sesame"}
    assert not any(secret in all_rows() for secret in ("a.new.one", "open sesame"))


def test_with_a_wrong_key_op_reads_a_sentence_and_the_right_one_heals_it(settings: Settings) -> None:
    connection = a_connection()
    right = settings.CLUSTERTAB_SECRET_KEYS
    settings.CLUSTERTAB_SECRET_KEYS = [Fernet.generate_key().decode()]
    with pytest.raises(ConnectorError, match=r"cannot be decrypted: none of CLUSTERTAB_SECRET_KEYS"):
        sources.connect(connection, clock=lambda: 0)
    out = io.StringIO()
    with pytest.raises(SystemExit):
        call_command("pull_usage", "gpu1", stdout=out)
    assert "It broke off: A stored secret cannot be decrypted" in out.getvalue()
    assert "none of CLUSTERTAB_SECRET_KEYS" in Connection.objects.get().last_error
    assert Pull.objects.get().outcome == Pull.Outcome.FAILED
    with pytest.raises(RefusedError, match="cannot be decrypted"):
        call_command("rotate_secrets")
    settings.CLUSTERTAB_SECRET_KEYS = right
    assert sources.endpoint(connection).headers


def test_without_any_key_no_secret_is_taken(op: Op, settings: Settings) -> None:
    settings.CLUSTERTAB_SECRET_KEYS = []
    (refused,) = op.is_refused(SLURM)
    assert "There is no key for stored secrets: put one into CLUSTERTAB_SECRET_KEYS" in refused


def test_keys_are_changed_without_a_gap(settings: Settings) -> None:
    connection = a_connection()
    old, new = settings.CLUSTERTAB_SECRET_KEYS, Fernet.generate_key().decode()
    settings.CLUSTERTAB_SECRET_KEYS = [new, *old]
    assert connection.token.reveal() == PASSWORDS[0]
    assert run_json("rotate_secrets") == {"secrets": 3}
    settings.CLUSTERTAB_SECRET_KEYS = [new]
    assert Connection.objects.get().token.reveal() == PASSWORDS[0]
    settings.CLUSTERTAB_SECRET_KEYS = old
    with pytest.raises(VaultError):
        Connection.objects.get().token.reveal()


def test_a_plain_text_is_never_stored() -> None:
    with pytest.raises(TypeError, match="never a plain text"):
        Connection.objects.create(cluster=a_cluster(), base_url="http://127.0.0.1", token="plain")  # type: ignore[misc]
    assert repr(seal("x")) == "Sealed(•••)"
    assert not Sealed("")


def test_an_embedded_instance_makes_its_key_once_for_its_owner_only(tmp_path: Path) -> None:
    assert secret_keys(tmp_path, make=False) == []
    keys = secret_keys(tmp_path, make=True)
    assert secret_keys(tmp_path, make=False) == keys
    assert (tmp_path / "secret_keys").stat().st_mode & 0o777 == 0o600
    Fernet(keys[0])


def test_what_is_no_key_is_refused_at_the_start_and_not_repeated() -> None:
    with pytest.raises(
        SettingError, match="CLUSTERTAB_SECRET_KEYS holds something that is no key"
    ) as refused:
        read({"CLUSTERTAB_SECRET_KEYS": "hunter2"})
    assert "hunter2" not in str(refused.value)


def test_no_report_of_an_error_holds_a_secret() -> None:
    connection = a_connection(headers=seal("no JSON but " + PASSWORDS[2]))
    try:
        sources.connect(connection, clock=lambda: 1 // 0)
        pytest.fail("Headers that are none were taken.")
    except ConnectorError:
        report = ExceptionReporter(None, *sys.exc_info())
    for text in (report.get_traceback_text(), report.get_traceback_html()):
        assert "enter them anew" in text
        assert not any(secret in text for secret in PASSWORDS)
