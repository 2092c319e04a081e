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
    answer: Answer, faults: Sequence[Fault], *, path: str, address: str, user: str, expired: str
) -> ConnectorError:
    """The error for an answer that is no success. `expired`: that the stored token is past its end, else ""."""
    numbers = {fault.error_number for fault in faults}
    if 300 <= answer.status < 400:
        return ConnectorError(
            f"{address} sends us on to {excerpt(answer.location) or 'another address'}: give that as the base URL.",
            retry=False,
        )
    if answer.status in {401, 403, 407, 511} or _NO_AUTH in numbers:
        return LoginRefusedError(expired or _login(answer, faults, address, user), retry=False)
    if numbers and numbers <= {EMPTY_RESULT, _NO_JOB}:
        return MissingError(f"Slurm has nothing at {path}.", retry=False)
    if _DATABASE in numbers:
        if expired:
            return LoginRefusedError(expired, retry=False)
        return DatabaseDownError(_database(answer, address, user), retry=True)
    if numbers & _DENIED:
        return LoginRefusedError(
            f"Slurm does not let {user} do this: `sacctmgr modify user {user} set adminlevel=Operator`. Where it has "
            f"that level, the hosts of slurmctld and slurmdbd did not know a user {user} when it was added: make it "
            f"there (`useradd --system {user}`), then `scontrol reconfigure` and `sacctmgr reconfigure`.",
            retry=False,
        )
    if answer.status in {400, 422} or numbers & _NOT_UNDERSTOOD:
        return ConnectorError(
            f"{address} does not understand the question {path}{_words(faults)}: its version is not one that "
            "this release was tried with.",
            retry=False,
        )
    return _by_place(answer, faults, path=path, address=address, expired=expired)


def _by_place(
    answer: Answer, faults: Sequence[Fault], *, path: str, address: str, expired: str
) -> ConnectorError:
    if answer.status == 404 and not faults:
        if path.startswith("/openapi"):
            return NoSuchPathError(
                f"There is no slurmrestd at {address}, only something that answers 404: check the base URL and "
                "its path prefix.",
                retry=False,
            )
        return NoSuchPathError(
            f"{address} has no {path}: Slurm was changed, or slurmrestd runs without that plugin "
            "(slurmrestd -s openapi/slurmctld,openapi/slurmdbd).",
            retry=True,
        )
    if "/job/" in path and any(fault.error_number in _JOB_REFUSALS for fault in faults):
        return ConnectorError(f"Slurm refuses it{_words(faults, _REASON)}.", retry=False)
    if path.startswith("/slurm/") and answer.status >= 500 and faults:
        if expired:
            return LoginRefusedError(expired, retry=False)
        return ControllerDownError(
            f"slurmctld behind {address} does not answer{_words(faults)}: check it with `scontrol ping`; older "
            "versions say the same of an expired token.",
            retry=True,
        )
    if answer.status >= 500 and not faults:
        return ConnectorError(
            f"{address} answered HTTP {answer.status} without a word from Slurm: slurmrestd, or the proxy before "
            "it, is in trouble.",
            retry=True,
        )
    return ConnectorError(
        f"{address} answered {path} with HTTP {answer.status}{_words(faults)}.",
        retry=answer.status >= 500 or answer.status in {200, 408, 425, 429},
    )


def _login(answer: Answer, faults: Sequence[Fault], address: str, user: str) -> str:
    if answer.status in {403, 407}:
        return f"{address} refuses us (HTTP {answer.status}): check what the proxy wants as extra headers."
    return (
        f"Slurm behind {address} does not accept the token of {user}{_words(faults)}: it is expired, made with "
        f"another key or for another user. Make a new one with `scontrol token username={user} lifespan=31536000`."
    )


def _database(answer: Answer, address: str, user: str) -> str:
    if answer.status == 200:
        return f"slurmrestd at {address} cannot reach slurmdbd, or slurmdbd its database: check both."
    return (
        f"slurmrestd at {address} cannot open the accounting database: slurmdbd or its database is down, or the "
        f"token of {user} is not valid (Slurm says the same of both)."
    )


def not_json(answer: Answer, address: str) -> ConnectorError:
    """The error for an answer of status 200 whose body is no whole JSON."""
    if "json" in answer.content_type:
        return ConnectorError(f"{address} sent an answer that breaks off in the middle.", retry=True)
    kind = excerpt(answer.content_type) or "nothing readable"
    return ConnectorError(
        f"{address} answers with {kind} where JSON is expected: a proxy's login page? Check the base URL and "
        "the extra headers.",
        retry=False,
    )


def other_form(why: str, path: str, address: str) -> UnreadableFormError:
    """The error for JSON that is built otherwise."""
    return UnreadableFormError(
        f"{address} answered {path} in a form that is not known ({excerpt(' '.join(why.split()))}): update ClusterTab.",
        retry=False,
    )


def _words(faults: Sequence[Fault], most: int = MOST) -> str:
    """What Slurm said, on one line: ` ("Unable to query jobs", 1007)`."""
    if not faults:
        return ""
    text = excerpt(" ".join((faults[0].description or faults[0].error or "no reason").split()), most)
    return f' ("{text}", {faults[0].error_number})'
