"""What each refusal of slurmrestd means, in a sentence that says what to do.

Versions differ: one answers HTTP 200 with an error inside where another answers 500, 502 or 511.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusters.connectors.base import ConnectorError
from portal.excerpt import MOST, excerpt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusters.connectors.http import Answer
    from clusters.connectors.slurm.decode import Fault

EMPTY_RESULT = 9003  # v0.0.38 says so of every window without jobs
_NO_AUTH, _DATABASE, _NO_JOB = 1007, 7000, 2017
_DENIED = frozenset({2002, 2010})  # not allowed; the job is somebody else's
_REASON = 160  # characters of why a job is refused something: the reason stands at the end of a long sentence
_JOB_REFUSALS = range(2000, 3000)  # slurmctld's own words on a job: it is there, and will not
_NOT_UNDERSTOOD = frozenset({9000, 9001, 9200, 9201, 9202})


class LoginRefusedError(ConnectorError):
    """The token or the user is not accepted. Waiting mends nothing."""


class DatabaseDownError(ConnectorError):
    """slurmdbd or its database does not answer; newer versions say the same of a bad token."""


class ControllerDownError(ConnectorError):
    """slurmctld does not answer; older versions say the same of a bad token."""


class MissingError(ConnectorError):
    """There is no such job, user or other thing."""


class NoSuchPathError(ConnectorError):
    """slurmrestd, or what answers in its place, has no such path."""


class UnreadableFormError(ConnectorError):
    """A success, and JSON, but not built like the answer of any version that we know."""


def refusal(
    answer: Answer,
    faults: Sequence[Fault],
    *,
    path: str,
    address: str,
    user: str,
    expired: ConnectorError | None,
) -> ConnectorError:
    """The error for an answer that is no success. `expired`: that the stored token is past its end."""
    numbers = {fault.error_number for fault in faults}
    if 300 <= answer.status < 400:
        return ConnectorError(
            "slurm-redirect",
            retry=False,
            address=address,
            location=excerpt(answer.location) or "another address",
        )
    if answer.status in {401, 403, 407, 511} or _NO_AUTH in numbers:
        return expired or _login(answer, faults, address, user)
    if numbers and numbers <= {EMPTY_RESULT, _NO_JOB}:
        return MissingError("slurm-nothing-there", retry=False, path=path)
    if _DATABASE in numbers:
        code = "slurm-database-down" if answer.status == 200 else "slurm-database-or-token"
        return expired or DatabaseDownError(code, retry=True, address=address, user=user)
    if numbers & _DENIED:
        return LoginRefusedError("slurm-denied", retry=False, user=user)
    if answer.status in {400, 422} or numbers & _NOT_UNDERSTOOD:
        return ConnectorError(
            "slurm-question-refused", retry=False, address=address, path=path, words=_words(faults)
        )
    return _by_place(answer, faults, path=path, address=address, expired=expired)


def _by_place(
    answer: Answer, faults: Sequence[Fault], *, path: str, address: str, expired: ConnectorError | None
) -> ConnectorError:
    if answer.status == 404 and not faults:
        if path.startswith("/openapi"):
            return NoSuchPathError("slurm-no-slurmrestd", retry=False, address=address)
        return NoSuchPathError("slurm-no-path", retry=True, address=address, path=path)
    if "/job/" in path and any(fault.error_number in _JOB_REFUSALS for fault in faults):
        return ConnectorError("slurm-job-refused", retry=False, words=_words(faults, _REASON))
    if path.startswith("/slurm/") and answer.status >= 500 and faults:
        return expired or ControllerDownError(
            "slurmctld-down", retry=True, address=address, words=_words(faults)
        )
    if answer.status >= 500 and not faults:
        return ConnectorError("slurm-wordless", retry=True, address=address, status=answer.status)
    return ConnectorError(
        "slurm-refused",
        retry=answer.status >= 500 or answer.status in {200, 408, 425, 429},
        address=address,
        path=path,
        status=answer.status,
        words=_words(faults),
    )


def _login(answer: Answer, faults: Sequence[Fault], address: str, user: str) -> LoginRefusedError:
    if answer.status in {403, 407}:
        return LoginRefusedError("slurm-proxy-refused", retry=False, address=address, status=answer.status)
    return LoginRefusedError(
        "slurm-login-refused", retry=False, address=address, user=user, words=_words(faults)
    )


def not_json(answer: Answer, address: str) -> ConnectorError:
    """The error for an answer of status 200 whose body is no whole JSON."""
    if "json" in answer.content_type:
        return ConnectorError("slurm-answer-cut", retry=True, address=address)
    kind = excerpt(answer.content_type) or "nothing readable"
    return ConnectorError("slurm-not-json", retry=False, address=address, content_type=kind)


def other_form(why: str, path: str, address: str) -> UnreadableFormError:
    """The error for JSON that is built otherwise."""
    return UnreadableFormError(
        "slurm-form-unknown", retry=False, address=address, path=path, reason=excerpt(" ".join(why.split()))
    )


def _words(faults: Sequence[Fault], most: int = MOST) -> str:
    """What Slurm said, on one line: ` ("Unable to query jobs", 1007)`."""
    if not faults:
        return ""
    text = excerpt(" ".join((faults[0].description or faults[0].error or "no reason").split()), most)
    return f' ("{text}", {faults[0].error_number})'
