"""Who asks: the key in `Authorization: Bearer`. Sessions of the portal do not count here."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address

from django.conf import settings
from django.http import HttpRequest

from portal.api import keys, limits
from portal.api.models import ApiKey
from portal.api.problems import ProblemError, missing_scope
from portal.api.scopes import CLUSTER_SCOPES, OPERATOR_SCOPES, READING, TENANT_SCOPES
from portal.core.tenants.access import narrow, rights_of
from portal.core.tenants.models import Tenant, User

CHALLENGE = {"WWW-Authenticate": 'Bearer realm="ClusterTab"'}


@dataclass(frozen=True, slots=True)
class Client:
    """The key that came with a request, and what it may do at this moment."""

    key: ApiKey
    scopes: frozenset[str]

    @property
    def tenant(self) -> Tenant | None:
        """Whose key it is; None for an operator's."""
        return self.key.tenant

    @property
    def owner(self) -> str:
        """By whom idempotency keys and cursors are told apart: users of a cluster know its key."""
        if self.key.cluster_id:
            return f"cluster:{self.key.cluster_id}"
        return f"tenant:{self.key.tenant_id}" if self.key.tenant_id else "operator"

    @property
    def name(self) -> str:
        """In the history of changes."""
        return f"{self.key.maker.email} (API key {self.key.prefix})"

    def require(self, scope: str) -> None:
        """Raises ProblemError 403 that names the scope. An operator's `ops:read` reads what tenants read."""
        if scope in self.scopes or (scope in READING and "ops:read" in self.scopes):
            return
        raise missing_scope(scope)


def client_of(request: HttpRequest) -> Client:
    """The client of a request, whose use is remembered. Raises ProblemError 401, or 429 after many wrong keys."""
    moment, address = datetime.now(UTC), _address(request)
    text = _bearer(request)
    key = keys.find(text, moment=moment)
    if key is None:
        attempts = limits.count("wrong-keys", str(address), most=limits.WRONG_KEYS, moment=moment)
        raise limits.refuse(attempts) if attempts.is_exceeded else _unauthenticated(text)
    scopes = _scopes(key)
    if not scopes:
        raise _unauthenticated("")
    keys.record_use(key, text=text, address=address, moment=moment)
    return Client(key, scopes)


def _address(request: HttpRequest) -> str | None:
    """Whoever asks: behind proxies of our own, the address that the outermost of them saw."""
    hops = [hop.strip() for hop in request.headers.get("X-Forwarded-For", "").split(",")]
    count = settings.ALLAUTH_TRUSTED_PROXY_COUNT
    candidate = hops[-count] if 0 < count <= len(hops) else request.META.get("REMOTE_ADDR", "")
    try:
        return str(ip_address(candidate))
    except ValueError:
        return None


def _bearer(request: HttpRequest) -> str:
    scheme, _, text = request.headers.get("Authorization", "").partition(" ")
    return text.strip() if scheme.lower() == "bearer" else ""


def _unauthenticated(text: str) -> ProblemError:
    if text and not keys.is_wellformed(text):
        detail = "This is no key of ClusterTab: its checksum is wrong, so it was cut or mistyped."
    elif text:
        detail = "The key is not valid: it was revoked, has expired, or never was one."
    else:
        detail = "Send a key: Authorization: Bearer ct_live_…"
    return ProblemError(401, "unauthenticated", "A valid key is needed", detail, headers=CHALLENGE)


def _scopes(key: ApiKey) -> frozenset[str]:
    """What the key says and its maker may still do: who left or was demoted takes the rights along. No query."""
    maker: User = key.maker
    if key.tenant is None:
        rights = rights_of(maker)
        valid = OPERATOR_SCOPES if key.cluster_id is None else CLUSTER_SCOPES
        return frozenset(scope for scope in key.scopes if valid.get(scope) in rights)
    if key.is_service:
        return frozenset(key.scopes)
    if not maker.is_active:
        return frozenset()
    allowed = narrow(key.tenant, maker, role=key.maker_role, names=key.maker_users)
    return frozenset(scope for scope in key.scopes if TENANT_SCOPES.get(scope) in allowed)
