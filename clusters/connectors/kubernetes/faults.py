"""What each refusal of a Kubernetes API server means, in a sentence that says what to do."""

from __future__ import annotations

import msgspec

from clusters.connectors.acts import ActRefusedError, NoAccountError
from clusters.connectors.base import ConnectorError
from clusters.connectors.http import Answer
from clusters.connectors.kubernetes.objects import Status
from portal.excerpt import excerpt

_WORDS = 240  # characters of the server's own words: what refuses stands at their end
_STATUS = msgspec.json.Decoder(Status)


class NoObjectError(NoAccountError):
    """The server has no such object."""


class FieldOwnedError(ActRefusedError):
    """Another manager owns a field that we would change. It is never forced."""


def refusal(answer: Answer, *, what: str, address: str) -> ConnectorError:
    """The error for an answer that is no success. `what`: the object, in words.

    `retry` only where it is not known whether a write was done: what the server refuses it has not done.
    """
    status = _status(answer)
    words = excerpt(" ".join(status.message.split()), _WORDS) if status.message else f"HTTP {answer.status}"
    values = {"address": address, "what": what, "words": words}
    if answer.status == 401:
        return ActRefusedError("kubernetes-login-refused", retry=False, **values)
    if 'admission webhook "' in status.message:
        return ActRefusedError("kubernetes-webhook-refused", retry=False, **values)
    if "failed calling webhook" in status.message:
        return ActRefusedError("kubernetes-webhook-down", retry=False, **values)
    if answer.status == 409:
        return _conflict(status, values)
    if answer.status in _CODES:
        kind, code = _CODES[answer.status]
        return kind(code, retry=False, **values)
    return ConnectorError("kubernetes-trouble", retry=answer.status >= 500, **values)


_CODES: dict[int, tuple[type[ConnectorError], str]] = {
    400: (ActRefusedError, "kubernetes-question-refused"),
    403: (ActRefusedError, "kubernetes-forbidden"),
    404: (NoObjectError, "kubernetes-gone"),
    415: (ActRefusedError, "kubernetes-question-refused"),
    422: (ActRefusedError, "kubernetes-question-refused"),
    429: (ActRefusedError, "kubernetes-busy"),
}


def _conflict(status: Status, values: dict[str, str]) -> ConnectorError:
    causes = [one for one in (status.details and status.details.causes) or () if one.field]
    if any(one.reason == "FieldManagerConflict" for one in causes):
        words = excerpt("; ".join(f"{one.field} ({one.message})" for one in causes), _WORDS)
        return FieldOwnedError("kubernetes-field-owned", retry=False, **{**values, "words": words})
    return ActRefusedError("kubernetes-changed", retry=False, **values)


def _status(answer: Answer) -> Status:
    try:
        status = _STATUS.decode(answer.body)
    except msgspec.MsgspecError:  # a proxy before it may answer anything
        return Status()
    return status if status.kind == "Status" else Status()
