"""One attempt: a request to the checked address, in its time, without redirects, and the start of the answer."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import structlog
from django.conf import settings

from portal.core.webhooks.addresses import Target, WebhookError
from portal.core.webhooks.resolvers import Resolvers

if TYPE_CHECKING:
    import httpx

PATIENCE = 15.0  # seconds for all of it: name, connection, request, answer
LARGEST_ANSWER = 4096  # bytes that are read
STORED_ANSWER = 1024  # bytes of these that are stored
MOST_ADDRESSES = 3  # of one name that are tried
AGENT = "ClusterTab-Webhooks"

log = structlog.get_logger("portal.webhooks")


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of an attempt: a status of HTTP, or the code of what kept it from one (`messages.ERRORS`)."""

    status: int | None
    milliseconds: int
    text: str = ""  # the first 1,024 bytes
    retry_after: str = ""
    error: str = ""

    @property
    def is_success(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class _Response:
    status: int
    text: str
    retry_after: str


async def send(
    *,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    resolvers: Resolvers,
    tenant: int | None,
    is_failing: bool,
) -> Answer | None:
    """Post it. It raises nothing: whatever goes wrong is an answer.

    None where nothing was tried, since other names of the tenant, or of too many, are still being asked for: that says
    nothing of the endpoint. Its 15 seconds begin when its own name is asked for.
    """
    ask = await resolvers.turn(tenant=tenant, is_failing=is_failing)
    if ask is None:
        return None
    began = time.perf_counter()
    try:
        async with asyncio.timeout(PATIENCE):
            target = await ask(url)
            response = await _post(target, headers, body)
    except WebhookError:
        return Answer(None, _since(began), error="refused")
    except Exception as error:  # noqa: BLE001 - the answer is foreign: one endpoint must not end the work for others
        return Answer(None, _since(began), error=_code(error))
    is_redirect = 300 <= response.status < 400
    return Answer(
        response.status,
        _since(began),
        response.text,
        response.retry_after,
        "redirect" if is_redirect else "",
    )


def _since(began: float) -> int:
    return round((time.perf_counter() - began) * 1000)


def _code(error: Exception) -> str:
    import httpx

    if isinstance(error, TimeoutError | httpx.TimeoutException):
        return "timeout"
    if isinstance(error, httpx.ConnectError):
        return "tls" if isinstance(_root(error), ssl.SSLError) else "not-reached"
    if isinstance(error, httpx.NetworkError):
        return "not-reached"
    if not isinstance(error, httpx.HTTPError | httpx.InvalidURL):
        log.warning("a webhook could not be sent", error=repr(error))
    return "invalid-answer"


def _root(error: BaseException) -> BaseException:
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return error


async def _post(target: Target, headers: Mapping[str, str], body: bytes) -> _Response:
    """To the first of the checked addresses that takes a connection; the name stays in Host and in TLS."""
    import httpx

    url = httpx.URL(target.url)
    host = url.netloc.decode("ascii")
    async with httpx.AsyncClient(
        verify=_trust(), trust_env=False, follow_redirects=False, timeout=PATIENCE
    ) as client:
        for place, address in enumerate(target.addresses[:MOST_ADDRESSES], 1):
            request = client.build_request(
                "POST",
                url.copy_with(host=address),
                content=body,
                headers={
                    **headers,
                    "Host": host,
                    "Content-Type": "application/json",
                    "Accept-Encoding": "identity",
                    "User-Agent": AGENT,
                },
                extensions={"sni_hostname": target.host},
            )
            try:
                response = await client.send(request, stream=True)
            except httpx.ConnectError:
                if place == min(len(target.addresses), MOST_ADDRESSES):
                    raise
                continue
            return await _read(response)
    raise AssertionError("a target has an address")


async def _read(response: httpx.Response) -> _Response:
    """The status and the start of the answer; the rest is not read, and nothing is unpacked."""
    start = b""
    try:
        async for piece in response.aiter_raw():
            start += piece[: LARGEST_ANSWER - len(start)]
            if len(start) >= LARGEST_ANSWER:
                break
    finally:
        await response.aclose()
    text = start[:STORED_ANSWER].decode("utf-8", "replace").replace("\x00", "\ufffd")
    return _Response(response.status_code, text, response.headers.get("Retry-After", "")[:100])


@cache
def _trust() -> ssl.SSLContext:
    """The public authorities, and those of the setting; made once, since it takes milliseconds and a megabyte."""
    context = ssl.create_default_context()
    if settings.WEBHOOK_CA_FILE:
        context.load_verify_locations(settings.WEBHOOK_CA_FILE)
    return context
