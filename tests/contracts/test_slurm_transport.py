"""The ways to a slurmrestd: TCP behind a prefix, TLS with an own CA and a client's certificate, a socket."""

from __future__ import annotations

import socket
import ssl
import struct
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from clusters.connectors.base import ConnectorError, Reading, Secret
from tests.contracts.slurm_recorded import NOW, Slurm, a_job, assert_no_secret, connector, serving


@dataclass
class Signed:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def key_pem(self) -> str:
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()


def signed(name: str, by: Signed | None = None) -> Signed:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by.certificate.subject if by else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    )
    return Signed(builder.sign(by.key if by else key, hashes.SHA256()), key)


@pytest.fixture(scope="module")
def authority() -> Signed:
    return signed("Test CA")


def listening(authority: Signed, folder: Path, *, wants_client: bool = False) -> ssl.SSLContext:
    server = signed("localhost", by=authority)
    (folder / "server.pem").write_text(server.pem + server.key_pem)
    (folder / "ca.pem").write_text(authority.pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    if wants_client:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(folder / "ca.pem")
    return context


def pulled(address: str, **endpoint: Any) -> Reading:
    source = connector(address, now=NOW, **endpoint)
    rows = list(source.usage(since=NOW - 3600, until=NOW, open_keys=()))
    assert [row.source_key for row in rows] == [f"1@{NOW - 900}"]
    return source.reading


def a_slurm(**more: Any) -> Slurm:
    return Slurm(jobs=[a_job(1, submit=NOW - 900, start=NOW - 800, end=NOW - 700)], **more)


def test_behind_a_prefix_with_the_headers_that_a_proxy_wants() -> None:
    with serving(slurm := a_slurm(prefix="/hpc/slurm")) as address:
        pulled(f"{address}/hpc/slurm/", headers={"X-Proxy-Key": Secret("opener")})
    assert {headers["X-Proxy-Key"] for headers in slurm.headers} == {"opener"}


def test_over_tls_with_the_operators_own_authority(authority: Signed, tmp_path: Path) -> None:
    with serving(a_slurm(), tls=listening(authority, tmp_path)) as address:
        assert pulled(address, ca=authority.pem).complete_through == NOW - 60


def test_over_tls_with_a_certificate_of_ours(
    authority: Signed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, seen, real = signed("clustertab", by=authority), [], tempfile.NamedTemporaryFile

    def watched(*args: Any, **kwargs: Any) -> Any:
        file = real(*args, **kwargs)
        seen.append((file.name, Path(file.name).stat().st_mode & 0o777))
        return file

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", watched)
    with serving(a_slurm(), tls=listening(authority, tmp_path, wants_client=True)) as address:
        tls_options = {
            "ca": authority.pem,
            "client_certificate": ours.pem,
            "client_key": Secret(ours.key_pem),
        }
        assert pulled(address, **tls_options).complete_through == NOW - 60
    assert [mode for _, mode in seen] == [0o600]
    assert not any(Path(name).exists() for name, _ in seen)


def failing(address: str, **endpoint: Any) -> ConnectorError:
    with pytest.raises(ConnectorError) as caught:
        pulled(address, **endpoint)
    assert_no_secret(caught.value)
    return caught.value


def test_a_server_that_wants_a_certificate_and_gets_none(authority: Signed, tmp_path: Path) -> None:
    with serving(a_slurm(), tls=listening(authority, tmp_path, wants_client=True)) as address:
        error = failing(address, ca=authority.pem)
    assert "client certificate" in str(error) or "broke its answer off" in str(error)


def test_a_server_that_nobody_vouches_for(authority: Signed, tmp_path: Path) -> None:
    with serving(a_slurm(), tls=listening(authority, tmp_path)) as address:
        error = failing(address)
    assert f"The certificate of {address} is not trusted" in str(error)
    assert "give the CA that signed it" in str(error)
    assert not error.retry


def test_a_certificate_for_another_name(authority: Signed, tmp_path: Path) -> None:
    with serving(a_slurm(), tls=listening(authority, tmp_path)) as address:
        error = failing(address.replace("localhost", "127.0.0.1"), ca=authority.pem)
    assert "check the name in the base URL" in str(error)


def test_https_to_a_server_that_speaks_http() -> None:
    with serving(a_slurm()) as address:
        error = failing(address.replace("http:", "https:"))
    assert "check http against https" in str(error)
    assert not error.retry


def test_a_connection_in_clear_that_is_reset_before_an_answer_may_want_https() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as executor:

        def reset() -> None:
            client, _ = server.accept()
            client.recv(1)
            client.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )  # RST in place of FIN
            client.close()

        done = executor.submit(reset)
        error = failing(f"http://127.0.0.1:{server.getsockname()[1]}")
        done.result(timeout=10)
    assert str(error).endswith("was stopped or crashed, or it speaks https only.")
    assert error.retry


@pytest.mark.parametrize(
    ("tls_options", "sentence"),
    [
        ({"ca": "no PEM"}, "The CA certificate cannot be read"),
        (
            {"client_certificate": "no PEM", "client_key": Secret("k-SECRET")},
            "The client certificate and its key",
        ),
    ],
)
def test_certificates_that_are_none(tls_options: dict[str, Any], sentence: str) -> None:
    error = failing("https://127.0.0.1:1", **tls_options)
    assert sentence in str(error)
    assert not error.retry


def test_a_key_that_belongs_to_another_certificate(authority: Signed) -> None:
    one, other = signed("one", by=authority), signed("other", by=authority)
    error = failing("https://127.0.0.1:1", client_certificate=one.pem, client_key=Secret(other.key_pem))
    assert "check that they belong together" in str(error)
    assert other.key_pem not in str(error)


def test_through_a_socket_of_this_machine() -> None:
    with tempfile.TemporaryDirectory() as folder:  # a short path: sockets allow 107 bytes
        path = Path(folder) / "s"
        with serving(slurm := a_slurm(prefix="/p"), unix=path) as address:
            pulled(f"{address}/p", unix_socket=str(path))
        assert {headers["Host"] for headers in slurm.headers} == {"localhost"}
        with serving(a_slurm(), unix=path.with_name("t")):
            pulled("", unix_socket=str(path.with_name("t")))
        error = failing(address, unix_socket=str(path.with_name("gone")))
    assert "is not there or not ours to open" in str(error)
    assert error.retry


def test_no_proxy_of_the_environment_sees_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with serving(a_slurm()) as address:
        pulled(address)


def test_one_connection_serves_a_whole_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, real = [], httpx.HTTPTransport

    def counted(**options: Any) -> Any:
        opened.append(options)
        return real(**options)

    monkeypatch.setattr(httpx, "HTTPTransport", counted)
    with serving(slurm := a_slurm()) as address:
        pulled(address)
    assert len(opened) == 1
    assert len(slurm.requests) >= 5
