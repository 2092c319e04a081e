"""How a live source is reached: one kind of call, with its time-out, TLS and size limit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from clusters.connectors.base import Secret

TIMEOUT = 300  # seconds for one answer: a scheduler builds all of it before it sends the first byte


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a source listens, and what it wants to see of us."""

    base_url: str  # "https://login.example.org/slurm": scheme, host, port and path prefix
    unix_socket: str = ""  # path; base_url then only gives the Host header and the prefix
    ca: str = ""  # PEM of the authorities to trust; "": the system's
    client_certificate: str = ""  # PEM
    client_key: Secret = field(default_factory=lambda: Secret(""))  # PEM
    headers: Mapping[str, Secret] = field(default_factory=dict)  # for an authenticating proxy
    timeout: int = TIMEOUT
