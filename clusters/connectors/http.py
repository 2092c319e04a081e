"""How a live source is reached: one kind of call, with its time-out, TLS and size limit."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from time import monotonic_ns
from typing import Any
from urllib.parse import urlsplit

import httpx

from clusters.connectors.base import Connected, ConnectorError, Secret

TIMEOUT = 300  # seconds for one answer: a scheduler builds all of it before it sends the first byte
CONNECT_TIMEOUT = 10  # seconds
LARGEST = 256 * 2**20  # bytes of one answer that is held, uncompressed
LARGEST_POURED = 2**32  # bytes of one answer that is taken piece by piece


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a source listens, and what it wants to see of us."""

    base_url: str  # "https://login.example.org/slurm": scheme, host, port and path prefix
    unix_socket: str = ""  # path; base_url then only gives the Host header and the prefix, and may be ""
    ca: str = ""  # PEM of the authorities to trust; "": the system's
    client_certificate: str = ""  # PEM
    client_key: Secret = field(default_factory=lambda: Secret(""))  # PEM
    headers: Mapping[str, Secret] = field(default_factory=dict)  # for an authenticating proxy
    timeout: int = TIMEOUT


class TooLargeError(ConnectorError):
    """The answer is larger than we hold. Asking for less helps."""


class TooSlowError(ConnectorError):
    """No whole answer came in time. Asking for less helps."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, whatever its status. `spent` is in milliseconds, from sending to the last byte."""

    status: int
    content_type: str  # without parameters, in small letters: "application/json"
    body: bytes = field(repr=False)
    spent: int = 0
    location: str = ""  # host and path that a redirect names, without its query
    date: int | None = None  # epoch second of its Date header: the clock of whoever answered


class Http(Connected):
    """Calls to one endpoint over connections that are kept and used again.

    Redirects are not followed and no proxy is taken from the environment, since a secret goes with each call.
    Every failure is a `ConnectorError` whose sentence names the address. Secrets live in frames that have
    ended when an error is raised, so that no traceback can show them, even one that prints variables.
    """

    def __init__(self, endpoint: Endpoint, *, largest: int = LARGEST) -> None:
        self.endpoint = endpoint
        self.largest = largest
        self.largest_poured = LARGEST_POURED
        parts = _checked(endpoint)
        self.address = f"unix:{endpoint.unix_socket}" if endpoint.unix_socket else f"{parts[0]}{parts[1]}"
        self._base = f"{parts[0]}{parts[1]}"
        self._client: httpx.Client | None = None

    def call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        json: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, Secret] | None = None,
        timeout: int | None = None,
        into: Callable[[bytes], bool] | None = None,
    ) -> Answer:
        """One request, one whole answer. `path` begins with "/" and follows the prefix of the endpoint.

        `json` is written as JSON; `content` goes out as it is, under the content type that `headers` name.
        `timeout` is in seconds and holds for the whole answer. With `into` the body of an answer of status 200 is
        given to it piece by piece, until it says False, and not held; it must not raise. Raises `TooLargeError`,
        `TooSlowError` or another `ConnectorError`; an answer of any status is none.
        """
        answer = self._attempt(
            method, path, params, json, headers, timeout or self.endpoint.timeout, content=content, into=into
        )
        if isinstance(answer, ConnectorError):
            raise answer
        return answer

    def close(self) -> None:
        """Closes what is kept open. The next call opens it anew."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _attempt(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        json: Any,
        headers: Mapping[str, Secret] | None,
        timeout: int,
        *,
        content: bytes | None = None,
        into: Callable[[bytes], bool] | None = None,
    ) -> Answer | ConnectorError:
        """The failure is returned, for `call` to raise once the frame that held the headers has ended."""
        secrets = {**self.endpoint.headers, **(headers or {})}
        answered = False
        try:
            if self._client is None:
                self._client = _client(self.endpoint)
            limits = httpx.Timeout(timeout, connect=min(CONNECT_TIMEOUT, timeout))
            begun = monotonic_ns()
            with self._client.stream(
                method,
                self._base + path,
                params=dict(params) if params else None,
                json=json,
                content=content,
                headers={name: secret.reveal() for name, secret in secrets.items()},
                timeout=limits,
            ) as response:
                answered = True
                if "," in response.headers.get("content-encoding", ""):  # a thousandfold each time
                    return ConnectorError("compressed-twice", retry=True, address=self.address)
                body = self._body(response, begun + timeout * 10**9, timeout, into)
                if isinstance(body, ConnectorError):
                    return body
                return Answer(
                    response.status_code,
                    response.headers.get("content-type", "").partition(";")[0].strip().lower(),
                    body,
                    (monotonic_ns() - begun) // 10**6,
                    _place(response.headers.get("location", "")),
                    _date(response.headers.get("date", "")),
                )
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError, ValueError) as error:
            self.close()
            return _failure(error, self.address, timeout, answered=answered)

    def _body(
        self,
        response: httpx.Response,
        deadline: int,
        timeout: int,
        into: Callable[[bytes], bool] | None,
    ) -> bytes | ConnectorError:
        poured = into if response.status_code == 200 else None
        largest = self.largest if poured is None else self.largest_poured
        pieces, size = [], 0
        try:
            for piece in response.iter_bytes():
                size += len(piece)
                if size > largest:
                    return TooLargeError(
                        "answer-too-large", retry=True, address=self.address, mebibytes=largest // 2**20
                    )
                if monotonic_ns() > deadline:
                    return _too_slow(self.address, timeout)
                if poured is None:
                    pieces.append(piece)
                elif not poured(piece):
                    break
        except (httpx.NetworkError, httpx.RemoteProtocolError):
            # A refusal is known by its status: a server of https resets a connection in clear behind its 400.
            if response.status_code < 400:
                raise
        return b"".join(pieces)


def _checked(endpoint: Endpoint) -> tuple[str, str]:
    """Scheme with host and port, and the path prefix without a slash at its end."""
    try:
        parts = urlsplit(endpoint.base_url.strip() or ("http://localhost" if endpoint.unix_socket else ""))
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise ConnectorError("base-url-unreadable", retry=False) from None
    if parts.scheme not in {"http", "https"} or not host:
        raise ConnectorError("base-url-without-host", retry=False)
    if parts.username or parts.password:
        raise ConnectorError("base-url-with-password", retry=False)
    if parts.query or parts.fragment:
        raise ConnectorError("base-url-with-query", retry=False)
    if ":" in host:
        host = f"[{host}]"
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}", parts.path.rstrip("/")


def _client(endpoint: Endpoint) -> httpx.Client:
    secure = endpoint.base_url.strip().lower().startswith("https:")
    verify = _tls(endpoint) if secure else False  # plain http has nothing to verify
    return httpx.Client(
        transport=httpx.HTTPTransport(
            verify=verify,
            uds=endpoint.unix_socket or None,
            trust_env=False,
            limits=httpx.Limits(max_connections=1),
        ),
        trust_env=False,
        follow_redirects=False,
    )


class _TlsError(ValueError):
    """What the endpoint gives for TLS cannot be used; the message is the code of the `ConnectorError`."""


def _tls(endpoint: Endpoint) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=endpoint.ca or None)
    except (ssl.SSLError, ValueError):
        raise _TlsError("ca-unreadable") from None
    if endpoint.client_certificate:
        # OpenSSL reads a key from a file only; nobody else may, and it is gone before the first byte is sent.
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".pem") as file:
            Path(file.name).chmod(0o600)
            file.write(f"{endpoint.client_certificate.strip()}\n{endpoint.client_key.reveal().strip()}\n")
            file.flush()
            try:
                context.load_cert_chain(file.name, password=lambda: "")
            except (ssl.SSLError, ValueError):
                raise _TlsError("client-certificate-unusable") from None
    return context


def _place(location: str) -> str:
    parts = urlsplit(location)
    return f"{parts.scheme}://{parts.hostname}{parts.path}" if parts.hostname else parts.path


def _date(header: str) -> int | None:
    try:
        return int(parsedate_to_datetime(header).timestamp())
    except (ValueError, OverflowError):
        return None


def _too_slow(address: str, timeout: int) -> TooSlowError:
    return TooSlowError("answer-too-slow", retry=True, address=address, seconds=timeout)


def _failure(error: Exception, address: str, timeout: int, *, answered: bool) -> ConnectorError:
    """A sentence for what the libraries raised. Their own words may hold headers and are not repeated."""
    if isinstance(error, _TlsError):
        return ConnectorError(str(error), retry=False)
    if isinstance(error, httpx.ConnectTimeout):
        return ConnectorError(
            "connect-timeout", retry=True, address=address, seconds=min(CONNECT_TIMEOUT, timeout)
        )
    if isinstance(error, httpx.TimeoutException):
        return _too_slow(address, timeout)
    if isinstance(error, httpx.ConnectError):
        return _no_connection(error, address)
    if isinstance(error, httpx.DecodingError):
        return ConnectorError("broken-compression", retry=True, address=address)
    if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError | httpx.WriteError | httpx.CloseError):
        # A server of https resets a connection in clear, sometimes before its own words about it were read.
        in_clear = address.startswith("http:") and not answered
        return ConnectorError("broke-off-in-clear" if in_clear else "broke-off", retry=True, address=address)
    if isinstance(error, OSError):
        return ConnectorError(
            "unreachable", retry=True, address=address, reason=error.strerror or type(error).__name__
        )
    return ConnectorError("request-impossible", retry=False, address=address)


def _no_connection(error: httpx.ConnectError, address: str) -> ConnectorError:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return ConnectorError(
                "certificate-untrusted", retry=False, address=address, reason=cause.verify_message
            )
        if isinstance(cause, ssl.SSLError):
            return ConnectorError(
                "tls-failed", retry=False, address=address, reason=cause.reason or "handshake failed"
            )
        if isinstance(cause, FileNotFoundError | PermissionError):
            return ConnectorError("socket-unreachable", retry=True, address=address)
        cause = cause.__cause__ or cause.__context__
    return ConnectorError("connection-refused", retry=True, address=address)
