"""What sealing refuses: the sentence of each code, with its values filled in."""

from __future__ import annotations

from collections.abc import Mapping

SENTENCES: Mapping[str, str] = {
    "allowance-in-order": "Usage of {month} has an allowance, which is used in order of time: its rows stay.",
    "busy": "Another month is being sealed or unsealed right now: try again in a moment.",
    "changed-lately": "It was changed last on {day:%Y-%m-%d}: it may be sealed {months:,} months after that.",
    "changed-since": "{month} was changed since it was sealed: unseal it, and seal it again.",
    "close-differs": "The sums of {tenant} for {period} are not what its close proved, and nothing was rated since.",
    "damaged": "{place}: bring that file back from a copy, since nothing is loaded from others.",
    "detached": "Jobs of {months} are detached, which say whose users are named: attach them first.",
    "differs": "{place} does not hold what the ledger has: {month} is not sealed. That is a bug, please report it.",
    "dropped": "The rows of {month} are dropped already.",
    "earlier-first": "Jobs of {months} used something in it: drop these months first.",
    "given-up": "It was begun {times:,} times and never ended: the worker's log says why. Ask again.",
    "in-another-run": "{person} requested another action for {month}: wait until it ends.",
    "in-use": "Somebody reads or writes {month} right now, such as a backup: try again later.",
    "jobs-dropped": "Jobs of {months} are in files alone, which say whose users are named: load them back first.",
    "late-records": "Late records of {months} used something in it: load these months back first.",
    "loaded-differs": "{place} does not come to what was sealed, so nothing was loaded.",
    "many-readers": "Others read files of sealed months right now.",
    "neighbours-first": "It shares billing periods with {months}, which is not sealed: seal that first.",
    "no-directory": "SEALED_MONTHS_DIRECTORY is not set, so there are no sealed months.",
    "no-records": "{month} has no usage records: there is nothing to seal.",
    "not-dropped": "The rows of {month} are in the database.",
    "not-over": "It is not over.",
    "not-proved": "It is not proved yet, which sealing does first; or its sums do not close, see what prove says.",
    "not-sealed": "{month} is not sealed.",
    "old-processes": "Processes of release 1.0.0 that still run know no dropped months, and would bill usage again: "
    "replace all of them, on each machine, then confirm that.",
    "open-jobs": "{count:,} of its jobs have not ended.",
    "open-periods": "{count:,} billing periods with usage in it are not closed.",
    "pending": "Usage in it is not billed yet, or has no price.",
    "sealed": "{month} is sealed already.",
    "storage": "{store}, which has the files of sealed months, is away or refuses: {reason}",
    "stored-differs": "{place}, although it was just stored there: the month is not sealed.",
    "unwritable": "The files of {month} could not be written or read: {reason}",
    "written-to": "Something of {month} was written meanwhile: try again in a moment.",
}
