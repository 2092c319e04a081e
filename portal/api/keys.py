"""Making, checking, rotating and revoking keys.

`ct_live_` + 8 characters that are shown later, + 43 characters that carry 32 random bytes, + 6 of a checksum: a
scanner finds it in a repository, and a mistyped key is refused without a question to the database.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models import Q
from django.utils.translation import gettext

from clusters.models import Cluster
from portal.api.models import ApiKey
from portal.api.scopes import CLUSTER_SCOPES, OPERATOR_SCOPES, TENANT_SCOPES
from portal.core.tenants.access import ALLOWED, allowed_in, rights_of
from portal.core.tenants.models import Project, Role, Tenant, User
from portal.prepared import instances, prepared_cursor
from portal.sql_files import Statements

sql = Statements(__file__, "keys.sql")

MARK = "ct_live_"
ALPHABET = string.digits + string.ascii_letters
LONGEST_OVERLAP = timedelta(hours=168)
MOST = 100  # keys of one tenant, or of all operators, that are valid at a time
HOUR = timedelta(hours=1)
_SHAPE = re.compile(rf"{MARK}([0-9A-Za-z]{{8}})[0-9A-Za-z]{{43}}[0-9A-Za-z]{{6}}\Z")
IN_TEXT = re.compile(rf"{MARK}[0-9A-Za-z]{{8,}}")
_OF_MAKER = (
    "id",
    "is_active",
    "email",
    "operator_role",
)  # what a request needs of them; the rest is not read
_OF_PROJECT = ("id", "tenant_id", "name")
_NOBODY = hashlib.sha256(b"").digest()  # compared with where a prefix is of no key, so that both take as long


class KeyRefusedError(Exception):
    """The key cannot be made or changed so; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key with its secret, which nobody sees again."""

    key: ApiKey
    secret: str


def make(
    *,
    maker: User,
    tenant: Tenant | None,
    name: str,
    scopes: Collection[str],
    moment: datetime,
    expires_at: datetime | None = None,
    project: Project | None = None,
    cluster: Cluster | None = None,
    is_service: bool = False,
) -> NewKey:
    """A new key. Each call makes another one. One of a `cluster` only asks about its jobs, and is an operator's.

    Raises KeyRefusedError for a name that is none, for a scope that its maker could not use, for an end that is past,
    and for a service key of somebody who does not manage the tenant.
    """
    name = _one_line(name)
    if expires_at is not None and expires_at <= moment:
        raise KeyRefusedError(gettext("The key would have expired already: choose a later end."))
    if project is not None and (tenant is None or project.tenant_id != tenant.pk):
        raise KeyRefusedError("That project is not one of the tenant's.")
    if cluster is not None and (tenant is not None or is_service):
        raise KeyRefusedError("Only operators make a key of a cluster: leave the tenant out.")
    _check_scopes(maker, tenant, scopes, cluster, is_service)
    if ApiKey.objects.filter(tenant=tenant, revoked_at=None).count() >= MOST:
        raise KeyRefusedError(f"There are {MOST} keys already: revoke those that nothing uses.")
    secret, prefix = _secret()
    key = ApiKey.objects.create(
        tenant=tenant,
        project=project,
        cluster=cluster,
        name=name,
        maker=maker,
        is_service=is_service,
        scopes=sorted(scopes),
        prefix=prefix,
        digest=_digest(secret),
        created_at=moment,
        expires_at=expires_at,
    )
    return NewKey(key, secret)


def _one_line(name: str) -> str:
    """It stands in the subject of the mail to the owners."""
    name = name.strip()
    if not name:
        raise KeyRefusedError("Give the key a name that says what uses it.")
    if not name.isprintable():
        raise KeyRefusedError("Write the name of the key in one line, without control characters.")
    return name


def _check_scopes(
    maker: User, tenant: Tenant | None, scopes: Collection[str], cluster: Cluster | None, is_service: bool
) -> None:
    if not scopes:
        raise KeyRefusedError("Choose at least one scope.")
    operating = OPERATOR_SCOPES if cluster is None else CLUSTER_SCOPES
    valid = tuple(operating if tenant is None else TENANT_SCOPES)
    if cluster is None and not {*scopes}.isdisjoint(CLUSTER_SCOPES):
        raise KeyRefusedError(
            "A key with jobs:check or jobs:reserve is an operator's, and has no other scope: name its cluster."
        )
    if cluster is not None and {*scopes} - {*valid}:
        raise KeyRefusedError(
            "A key of a cluster has the scopes jobs:check and jobs:reserve alone: make another one for the others."
        )
    if unknown := sorted({*scopes} - {*valid}):
        raise KeyRefusedError(f"There is no scope {unknown[0]}; choose among {', '.join(valid)}.")
    if tenant is None:
        if not (rights := rights_of(maker)):
            raise KeyRefusedError("Only operators make keys without a tenant.")
        refused = sorted(scope for scope in scopes if operating[scope] not in rights)
    else:
        allowed = allowed_in(tenant, maker)
        refused = sorted(scope for scope in scopes if TENANT_SCOPES[scope] not in allowed)
    if refused:
        raise KeyRefusedError(_why_not(refused[0], maker, tenant))
    if tenant is None:
        return
    if is_service and not tenant.memberships.filter(user=maker, role=Role.OWNER).exists():
        raise KeyRefusedError("Only owners make service keys, which stay valid when their maker leaves.")


def _why_not(scope: str, maker: User, tenant: Tenant | None) -> str:
    """What keeps the scope from a key of the maker, who need not be whoever makes it."""
    role = tenant.memberships.filter(user=maker).values_list("role", flat=True).first() if tenant else None
    if tenant and role and TENANT_SCOPES[scope] in ALLOWED[Role(role)]:  # but for `members_see_own`
        why = f"Members of {tenant.name} see their own usage alone"
        return f"{why}, so a key of {maker.email} cannot have {scope}."
    return f"The role of {maker.email} does not allow {scope}, so a key of theirs cannot have it."


@transaction.atomic
def rotate(*, key: ApiKey, by: User, overlap: timedelta, moment: datetime) -> NewKey:
    """A new secret for the key; the present one stays valid for the overlap, an earlier one ends at once.

    Rotated again before the new secret was used, the one before stays: it is what is in use. Raises KeyRefusedError
    for somebody else's key, which would give its maker's rights away, unless it is a service key; for a revoked or
    expired one; and for an overlap outside of 0 to 168 hours.
    """
    if not timedelta(0) <= overlap <= LONGEST_OVERLAP:
        raise KeyRefusedError("The previous secret can stay valid for 0 to 168 hours.")
    row = ApiKey.objects.select_for_update().get(pk=key.pk)
    if not is_valid(row, moment):
        raise KeyRefusedError("The key was revoked or has expired: make a new one.")
    if row.maker_id != by.pk and not row.is_service:
        raise KeyRefusedError("Only its maker rotates a key: make your own, then revoke this one.")
    body = secrets_of(row.prefix)
    is_unused = row.used_at is None and row.previous_until is not None and moment < row.previous_until
    if not is_unused:
        row.previous_digest, row.previous_used_at = row.digest, row.used_at
    row.previous_until = moment + overlap
    row.digest, row.used_at = _digest(body), None
    row.save()
    return NewKey(row, body)


@transaction.atomic
def change(*, key: ApiKey, name: str, expires_at: datetime | None, moment: datetime) -> None:
    """Another name or end. Raises KeyRefusedError for a name that is none, an end that is past, and a key that has
    ended.
    """
    name = _one_line(name)
    row = ApiKey.objects.select_for_update().get(pk=key.pk)
    if not is_valid(row, moment):
        raise KeyRefusedError("The key was revoked or has expired: make a new one.")
    if expires_at is not None and expires_at <= moment:
        raise KeyRefusedError("The key would have expired already: choose a later end, or revoke it.")
    row.name, row.expires_at = name, expires_at
    row.save(update_fields=["name", "expires_at"])


def revoke(*, key: ApiKey, moment: datetime) -> None:
    """Refuse the key from now on, in every process. A second call changes nothing."""
    ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=moment)


def is_valid(key: ApiKey, moment: datetime) -> bool:
    return key.revoked_at is None and (key.expires_at is None or moment < key.expires_at)


def is_wellformed(text: str) -> bool:
    """Whether the checksum holds: whoever mistypes a key is told so without a look into the database."""
    return _SHAPE.match(text) is not None and hmac.compare_digest(text[-6:], _checksum(text[:-6]))


def find(text: str, *, moment: datetime) -> ApiKey | None:
    """The valid key with this secret; None for every other. One indexed read, and as long for a prefix of no key."""
    if not is_wellformed(text):
        return None
    key = _with_prefix(text[8:16])
    digest = _digest(text)
    current = hmac.compare_digest(digest, bytes(key.digest) if key else _NOBODY)
    previous = hmac.compare_digest(digest, bytes((key and key.previous_digest) or _NOBODY))
    if key is None or not is_valid(key, moment):
        return None
    in_overlap = key.previous_until is not None and moment < key.previous_until
    return key if current or (previous and in_overlap) else None


def _with_prefix(prefix: str) -> ApiKey | None:
    """With its maker, what they are in its tenant, and its project. Its statement is planned once a connection."""
    with prepared_cursor() as cursor:
        cursor.execute(sql.BY_PREFIX, {"prefix": prefix})
        row = next(instances(cursor, ApiKey, Tenant), None)
    if row is None:
        return None
    key: ApiKey = row[0]
    _, tenant, project, key.maker_role, names, *maker = row
    key.maker = User.from_db(connection.alias, _OF_MAKER, [key.maker_id, *maker])
    key.maker_users = tuple(names or ())
    key.tenant = tenant if key.tenant_id else None
    own = [key.project_id, key.tenant_id, project]
    key.project = Project.from_db(connection.alias, _OF_PROJECT, own) if key.project_id else None
    return key


def record_use(key: ApiKey, *, text: str, address: str | None, moment: datetime) -> None:
    """Remember the hour of the use, at most one write an hour."""
    hour = moment.replace(minute=0, second=0, microsecond=0)
    if hmac.compare_digest(_digest(text), bytes(key.digest)):
        unused = Q(used_at=None) | Q(used_at__lt=hour)
        if key.used_at is None or key.used_at < hour:
            ApiKey.objects.filter(unused, pk=key.pk).update(used_at=hour, used_from=address)
    elif key.previous_used_at is None or key.previous_used_at < hour:
        ApiKey.objects.filter(pk=key.pk).update(previous_used_at=hour)


def secrets_of(prefix: str) -> str:
    """A new secret under this prefix."""
    number = int.from_bytes(secrets.token_bytes(32))
    letters = []
    for _ in range(43):
        number, digit = divmod(number, len(ALPHABET))
        letters.append(ALPHABET[digit])
    body = MARK + prefix + "".join(letters)
    return body + _checksum(body)


def _secret() -> tuple[str, str]:
    prefix = "".join(secrets.choice(ALPHABET) for _ in range(8))
    return secrets_of(prefix), prefix


def _checksum(body: str) -> str:
    number, letters = zlib.crc32(body.encode()), []
    for _ in range(6):
        number, digit = divmod(number, len(ALPHABET))
        letters.append(ALPHABET[digit])
    return "".join(letters)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
