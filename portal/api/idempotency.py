"""A repeated POST does what it wants once, and is answered as the first time.

The stored answer is a row of the transaction that did the work: killed between both, neither is there. An answer of
500 and above is not stored, so that the same key may try again; a refusal is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse

from portal.api import problems
from portal.api.models import IdempotentRequest
from portal.api.problems import ProblemError, bad_request

LIFETIME = timedelta(hours=48)
PATIENCE = timedelta(seconds=60)
"""After so long whoever works beside a transaction has died: the same request may work again."""
UNDER_WAY = 0
"""The status of such a request while it works."""
_NAMESPACE = UUID("6d6c1f0e-6f0b-5f0e-9d52-3a1b1c7f4a53")
_PRINTABLE = re.compile(r"[\x21-\x7e]{1,255}\Z")


class ShownOnce(HttpResponse):
    """An answer with a secret: what is stored, and sent again, is `kept`, which has none."""

    kept: bytes = b""


def key_of(request: HttpRequest, *, required: bool) -> str:
    """The header's value; "" where none is sent, and none needed. Raises ProblemError 400."""
    key = request.headers.get("Idempotency-Key")
    if key is None and not required:
        return ""
    if key is None:
        raise bad_request(
            "This request needs an Idempotency-Key: 1 to 255 printable characters, another one for each intent."
        )
    if not _PRINTABLE.match(key):
        raise bad_request("An Idempotency-Key has 1 to 255 printable characters.")
    return key


def digest_of(request: HttpRequest, body: bytes) -> bytes:
    """What makes two requests the same: method, address and body."""
    head = f"{request.method} {request.get_full_path()}\n".encode()
    return hashlib.sha256(head + body).digest()


def answer_once(
    *, owner: str, key: str, digest: bytes, moment: datetime, work: Callable[[], HttpResponse]
) -> HttpResponse:
    """The answer of `work`, which is called once for each owner and key, inside a transaction.

    `work` answers or raises ProblemError, which undoes what it did and is stored as well. 409 is raised while the
    first request is under way, 422 for another request under the same key.
    """
    with transaction.atomic():
        if not _lock(owner, key):
            raise _in_progress()
        stored = IdempotentRequest.objects.filter(owner=owner, key=key).first()
        if stored is not None and stored.created_at > moment - LIFETIME:
            return _again(stored, digest)
        try:
            with transaction.atomic():
                response = work()
        except Exception as error:
            problem = problems.of_exception(error)
            if problem is None or problem.status >= 500:
                raise
            response = problems.as_response(problem)
        _store(stored, owner, key, digest, response, moment)
        return response


def answer_beside(
    *, owner: str, key: str, digest: bytes, moment: datetime, work: Callable[[], HttpResponse]
) -> HttpResponse:
    """As `answer_once`, for `work` that calls a gateway or a scheduler: no transaction is open while it does.

    It may be called again where a process died between effect and answer, or refused with 500 and above: so `work`
    has to be safe to repeat under a key of its own, which derives from this one (`uuid_of`).
    """
    with transaction.atomic():
        if not _lock(owner, key):
            raise _in_progress()
        stored = IdempotentRequest.objects.filter(owner=owner, key=key).first()
        if stored is not None and stored.created_at > moment - LIFETIME:
            if stored.status != UNDER_WAY or bytes(stored.digest) != digest:
                return _again(stored, digest)
            if stored.created_at > moment - PATIENCE:
                raise _in_progress()
        _store(stored, owner, key, digest, HttpResponse(status=200), moment)
        mine = IdempotentRequest.objects.filter(owner=owner, key=key, created_at=moment)
        mine.update(status=UNDER_WAY)
    try:
        response = work()
    except Exception as error:
        problem = problems.of_exception(error)
        if problem is None or problem.status >= 500:
            mine.delete()
            raise
        response = problems.as_response(problem)
    mine.update(**_values(digest, response, moment))
    return response


def uuid_of(owner: str, key: str) -> UUID:
    """The key under which a use case of ours knows the request again."""
    return uuid5(_NAMESPACE, f"{owner}\n{key}")


def _in_progress() -> ProblemError:
    detail = "The first request with this Idempotency-Key is under way."
    return ProblemError(409, "in-progress", "It is under way", detail, headers={"Retry-After": "1"})


def _lock(owner: str, key: str) -> bool:
    number = int.from_bytes(hashlib.sha256(f"{owner}\n{key}".encode()).digest()[:8], signed=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [number])
        return bool(cursor.fetchone()[0])


def _again(stored: IdempotentRequest, digest: bytes) -> HttpResponse:
    if bytes(stored.digest) != digest:
        detail = "This Idempotency-Key was sent with another request. Use a new key for a new request."
        raise ProblemError(422, "key-reused", "The key belongs to another request", detail)
    headers = {"Idempotent-Replayed": "true"}
    return HttpResponse(
        bytes(stored.body), status=stored.status, content_type=stored.content_type, headers=headers
    )


def _store(
    stored: IdempotentRequest | None,
    owner: str,
    key: str,
    digest: bytes,
    response: HttpResponse,
    moment: datetime,
) -> None:
    values = _values(digest, response, moment)
    if stored is None:
        IdempotentRequest.objects.create(owner=owner, key=key, **values)
    else:
        IdempotentRequest.objects.filter(pk=stored.pk).update(**values)


def _values(digest: bytes, response: HttpResponse, moment: datetime) -> dict[str, Any]:
    return {
        "digest": digest,
        "status": response.status_code,
        "content_type": response.headers.get("Content-Type", ""),
        "body": response.kept if isinstance(response, ShownOnce) else response.content,
        "created_at": moment,
    }


def forget_old(*, moment: datetime) -> int:
    """Delete answers older than 48 hours; how many."""
    return IdempotentRequest.objects.filter(created_at__lt=moment - LIFETIME).delete()[0]
