"""Where a webhook may point to: the public internet, and networks that a setting allows.

A name is resolved once, all its addresses are checked, and whoever sends connects to one of these and to nothing else:
a name that resolves to something else a moment later gains nothing by it.
"""

from __future__ import annotations

import socket
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from threading import Semaphore
from urllib.parse import urlsplit

from django.conf import settings

from portal.core.webhooks.messages import SENTENCES
from portal.errors import CodedError

LONGEST_URL = 500
PATIENCE = 5.0  # seconds
_RESOLVERS = ThreadPoolExecutor(16, thread_name_prefix="resolver")  # starts none before it is used
_LINES: defaultdict[int | None, Semaphore] = defaultdict(Semaphore)
"""By tenant: of each, one name at a time is asked for, so that nobody's name servers delay others."""
NAT64 = IPv6Network("64:ff9b::/96")
"""In which a network without IPv4 shows IPv4 addresses (RFC 6052)."""
GLOBAL_UNICAST = IPv6Network("2000::/3")
"""All that IANA has given out of IPv6."""

_NOT_PUBLIC = tuple(
    ip_network(text)
    for text in (
        # IANA's special-purpose addresses of IPv4, multicast, and what is reserved.
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24"),
        *("192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
        *("224.0.0.0/4", "240.0.0.0/4"),
        "168.63.129.16/32",  # Azure's metadata and its like, at a public address
        # Those of IPv6 within the global unicast: protocols (Teredo among them), documentation, 6to4.
        *("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20"),
    )
)


class WebhookError(CodedError):
    """The webhook cannot be so; the message says why and what to do."""

    sentences = SENTENCES


@dataclass(frozen=True, slots=True)
class Target:
    """An address that was resolved and checked: where to connect to, and under which name."""

    url: str
    host: str  # as certificates name it: in ASCII, without brackets
    addresses: tuple[str, ...]  # in the order of the resolver; not empty


def parse(url: str) -> str:
    """The address as it is kept. No name is resolved. Raises WebhookError for what is no address to post to."""
    import httpx  # read by the parser that sends; pages do without it

    try:
        parts, parsed = urlsplit(url), httpx.URL(url)
        port = parts.port
    except (ValueError, httpx.InvalidURL, UnicodeError):
        raise WebhookError("address-invalid", url=url[:80]) from None
    is_plain = url.isascii() and url.isprintable() and not {" ", "\\"} & {*url}
    if parts.scheme not in {"http", "https"} or not parsed.host or not is_plain or port == 0:
        raise WebhookError("address-invalid", url=url[:80])
    if len(url) > LONGEST_URL:
        raise WebhookError("address-invalid", url=url[:80] + "…")
    if parts.scheme == "http" and not settings.WEBHOOK_ALLOW_HTTP:
        raise WebhookError("address-http")
    if parsed.userinfo or "@" in parts.netloc:
        raise WebhookError("address-credentials")
    if "#" in url:
        raise WebhookError("address-fragment")
    return url


def resolve(url: str) -> Target:
    """Where the address leads now. It asks the name server, so call it in no transaction.

    Raises WebhookError where the name leads nowhere or one of its addresses is not allowed: the same sentence for
    both, so that nobody learns the names of an inner network.
    """
    import httpx

    parsed = httpx.URL(parse(url))
    host = parsed.raw_host.decode("ascii")
    try:
        rows = socket.getaddrinfo(
            host, parsed.port or (443 if parsed.scheme == "https" else 80), type=socket.SOCK_STREAM
        )
    except (OSError, UnicodeError):
        raise WebhookError("address-refused", host=host) from None
    addresses = tuple(dict.fromkeys(str(row[4][0]) for row in rows))
    if not addresses or not all(is_allowed(address, settings.WEBHOOK_NETWORKS) for address in addresses):
        raise WebhookError("address-refused", host=host)
    return Target(url, host, addresses)


def resolve_in_time(url: str, *, tenant: int | None) -> Target:
    """As `resolve`, for whoever waits for a page: what takes longer than 5 seconds has no address.

    These include the turn: of one tenant one name is asked for at a time, until its name server has answered.
    """
    parse(url)
    end, line = time.monotonic() + PATIENCE, _LINES[tenant]
    if line.acquire(timeout=PATIENCE):
        future = _RESOLVERS.submit(resolve, url)
        future.add_done_callback(lambda _: line.release())
        with suppress(TimeoutError):
            return future.result(timeout=end - time.monotonic())
    raise WebhookError("address-refused", host=urlsplit(url).hostname)


def is_allowed(text: str, networks: Sequence[IPv4Network | IPv6Network] = ()) -> bool:
    """Whether the address is public, or in one of the networks. What is no address is not."""
    try:
        address = _plain(ip_address(text))
    except ValueError:
        return False
    if any(address in network for network in networks):
        return True
    if isinstance(address, IPv6Address) and address not in GLOBAL_UNICAST:
        return False
    return not any(address in network for network in _NOT_PUBLIC)


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address that an IPv6 address stands for, mapped or behind NAT64; any other as it is."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return IPv4Address(int(address) & 0xFFFFFFFF) if address in NAT64 else address
