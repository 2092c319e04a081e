#!/usr/bin/env python3
"""Pushes a scheduler's accounting to ClusterTab from a network that it cannot reach. docs/how-to/push-usage.md.

One file, for the Python 3.6 of old login nodes and newer, with nothing but its standard library: it is copied to a
host alone. Each row of sacct goes as it was printed: ClusterTab reads it, by the rules of imported files. What is to
be sent lies in a database on disk until ClusterTab has answered for it, so the agent can be killed at any moment, and
ClusterTab can be away for days. Files of other schedulers go as they are, whole.
"""

import argparse
import calendar
import collections
import configparser
import contextlib
import email.utils
import fcntl
import gzip
import hashlib
import http.client
import itertools
import json
import os
import random
import re
import shlex
import signal
import sqlite3
import ssl
import stat
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib

TYPE = "org.clustertab.usage."
FORMAT = (
    "JobIDRaw,JobID,Cluster,User,Account,Partition,QOS,State,ExitCode,Submit,Eligible,Start,End,ElapsedRaw,Suspended,"
    "TimelimitRaw,NNodes,NCPUS,ReqTRES,AllocTRES,JobName,NodeList"
)
NEEDED = ("jobidraw", "submit", "start", "end", "state", "account", "alloctres")
DEFAULTS = {
    "portal": {
        "url": "",
        "cluster": "",
        "key_file": "",
        "ca_file": "",
        "source": "",
        "timeout_seconds": "120",
    },
    "agent": {"state_dir": "/var/lib/clustertab-agent", "every_minutes": "5", "spool_mib": "1024"},
    "sacct": {
        "command": "sacct",
        "since": "",
        "overlap_hours": "72",
        "lag_seconds": "300",
        "timeout_seconds": "600",
    },
    "directory": {"path": "", "settle_seconds": "10"},
    "files": {"path": "", "format": "", "settle_seconds": "10"},
}
FORMATS = ("pbs", "lsf", "grid-engine", "grid-engine-per-slot", "opencost", "litellm", "sacct-json")
MOST_EVENTS, MOST_BYTES = 1000, 4 << 20  # of a request; ClusterTab takes 5 MiB
LARGEST_FILE = 1 << 30  # bytes that ClusterTab takes
LONGEST_ROW, MOST_LINES = 1 << 20, 100  # characters, and lines of one row
CHUNK = 1000  # rows a transaction
DAY = 86400
SLICE = 7 * DAY  # seconds that sacct is asked for at once
FORGET = 40 * DAY  # a row that did not come for so long may be sent again, which changes nothing
MOST_SKEW = 240  # seconds between both clocks; ClusterTab refuses what is 300 s ahead
LONGEST_PAUSE = 300  # seconds between two attempts
LONGEST_WAIT = 365 * DAY
UNFINISHED = (".part", ".partial", ".filepart", ".tmp", ".swp", "~")
UNSET = ("", "unknown", "none", "none assigned")
STEP = re.compile(r"\d+(\+\d+)?\.")
AS_OF = re.compile(r"as-of-(\d{4}-\d\d-\d\dT)(\d\d):?(\d\d):?(\d\d)Z")


class Trouble(Exception):
    """A sentence for the operator: what is wrong, and what to do."""


class HoldError(Exception):
    """Nothing can be sent now. `after`: seconds until the next attempt, None where nobody said."""

    def __init__(self, sentence, after=None):
        super().__init__(sentence)
        self.after = after


def say(text):
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def stamp(second, end=""):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)) + end


def as_of(name):
    """The second that a file's name says; None of others."""
    named = AS_OF.search(name)
    return named and calendar.timegm(time.strptime("{}{}{}{}".format(*named.groups()), "%Y-%m-%dT%H%M%S"))


def read_config(path):
    """The settings by section, each with its default. Raises Trouble."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        with open(path) as file:
            parser.read_file(file)
    except (OSError, UnicodeDecodeError, configparser.Error) as error:
        raise Trouble("The configuration cannot be read: {}".format(error))
    for section in parser.sections():
        for name in parser[section]:
            if name not in DEFAULTS.get(section, {}):
                raise Trouble("{}: [{}] has no setting {!r}.".format(path, section, name))
    config = {}
    for section, defaults in DEFAULTS.items():
        config[section] = dict(defaults, **(parser[section] if parser.has_section(section) else {}))
        for name, value in config[section].items():
            if name.endswith(("_minutes", "_mib", "_hours", "_seconds")):
                if not re.match(r"\d{1,6}$", value):
                    raise Trouble("{}: {} in [{}] is a whole number.".format(path, name, section))
                config[section][name] = int(value)
    modes = [name for name in ("sacct", "directory", "files") if parser.has_section(name)]
    if len(modes) != 1:
        raise Trouble("{}: say where usage comes from: [sacct], [directory] or [files].".format(path))
    config["mode"] = modes[0]
    if modes == ["files"] and config["files"]["format"] not in FORMATS:
        raise Trouble("{}: format in [files] is {}.".format(path, " or ".join(FORMATS)))
    check_portal(path, config["portal"])
    return config


def check_portal(path, settings):
    for name in ("url", "cluster", "key_file"):
        if not settings[name]:
            raise Trouble("{}: [portal] needs {}.".format(path, name))
    url = urllib.parse.urlsplit(settings["url"])
    if not url.hostname or url.scheme not in ("http", "https"):
        raise Trouble("{}: url is an address such as https://billing.example.".format(path))
    if url.scheme != "https" and url.hostname not in ("127.0.0.1", "localhost", "::1"):
        raise Trouble("{}: url begins with https://, or the key would be sent for all to read.".format(path))
    settings["source"] = settings["source"] or "slurm:" + settings["cluster"]
    if not re.match(r"[!-~]{1,120}$", settings["source"]):
        raise Trouble("{}: source is a short text without spaces, such as slurm:lab.".format(path))


def read_key(path):
    """The key, from a file that nobody else can read. Raises Trouble, which does not say the key."""
    try:
        with open(path) as file:
            mode = os.fstat(file.fileno()).st_mode
            key = file.read(4096).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Trouble("The key cannot be read: {}".format(error))
    if stat.S_IMODE(mode) & 0o077:
        raise Trouble(
            "Others can read {0}: chmod 600 {0}, and make another key if that was so for long.".format(path)
        )
    if not re.match(r"[!-~]{20,200}$", key):
        raise Trouble("{} holds no key: it is one line, ct_live_ and so on.".format(path))
    return key


def rows_of(lines, width):
    """Rows of `width` columns as texts; lines with fewer are joined while that helps, as ClusterTab does with files."""
    pending, count, number = "", 0, 0
    for line in lines:
        fields = line.count("|") + 1
        if fields >= width or (pending and (count + fields - 1 > width or number == MOST_LINES
                                            or len(pending) + len(line) > LONGEST_ROW)):  # fmt: skip
            if pending:
                yield pending
            pending, count, number = "", 0, 0
            if fields >= width:
                yield line
                continue
        if not pending and not line.strip():
            continue
        count += fields - 1 if pending else fields
        pending, number = pending + line, number + 1
        if count == width:
            yield pending
            pending, count, number = "", 0, 0
    if pending:
        yield pending


def lines_of(stream):
    """Lines of a file as text, however long: UTF-8, other bytes as \\xNN, ended by LF or CRLF."""
    while True:
        line = stream.readline(LONGEST_ROW + 1)
        if not line:
            return
        text = line.decode("utf-8", "backslashreplace").replace("\0", "\\x00")
        yield text[:-2] + "\n" if text.endswith("\r\n") else text


class Spool:
    """What is to be sent, and what was read already; each change is on disk before anything goes on."""

    def __init__(self, directory, mebibytes=1024):
        self.refused, self.most = os.path.join(directory, "rejected.jsonl"), mebibytes << 20
        self.db = sqlite3.connect(os.path.join(directory, "spool.db"), isolation_level=None, timeout=30)
        self.db.executescript(
            "PRAGMA synchronous = FULL;"
            "CREATE TABLE IF NOT EXISTS spool (n INTEGER PRIMARY KEY, event TEXT NOT NULL);"
            "CREATE TABLE IF NOT EXISTS row (key TEXT PRIMARY KEY, digest BLOB, open INT, refused INT, touched INT);"
            "CREATE TABLE IF NOT EXISTS file (name TEXT PRIMARY KEY, state TEXT);"
            "CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value INT);"
        )

    def close(self):
        self.db.close()

    @contextlib.contextmanager
    def saved(self):
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.db.execute("ROLLBACK")
            raise
        self.db.execute("COMMIT")

    def one(self, query, *values):
        return (self.db.execute(query, values).fetchone() or (None,))[0]

    def put(self, event):
        self.db.execute("INSERT INTO spool (event) VALUES (?)", (json.dumps(event, ensure_ascii=False),))

    def set(self, name, value):
        self.db.execute("REPLACE INTO meta VALUES (?, ?)", (name, value))

    def count(self):
        return self.one("SELECT count(*) FROM spool")

    def check_room(self):
        used = self.one("PRAGMA page_count") - self.one("PRAGMA freelist_count")
        if used * self.one("PRAGMA page_size") > self.most:
            raise Trouble(
                "The spool is full (spool_mib): reading goes on when ClusterTab has taken what waits."
            )

    def refuse(self, event, reason):
        """Keep an event that ClusterTab will not have, with the reason. Within `saved`."""
        say("Rejected {}: {}".format(event.get("id"), reason))
        with open(self.refused, "a") as file:
            file.write(json.dumps({"reason": reason, "event": event}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.db.execute("UPDATE row SET refused = 1 WHERE key = ?", (event.get("id"),))

    def retry_refused(self):
        """Spool what was rejected once more. Killed in between, some of it is sent twice, which changes nothing."""
        with contextlib.suppress(FileNotFoundError), open(self.refused) as file, self.saved():
            for line in file:
                event = json.loads(line)["event"]
                if "specversion" in event:
                    self.put(event)
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.refused, self.refused + ".sent-again")

    def batch(self, most):
        """Events by number, as many as a request takes."""
        batch, size = [], 0
        for n, event in self.db.execute("SELECT n, event FROM spool ORDER BY n LIMIT ?", (most,)):
            size += len(event.encode()) + 1
            if batch and size > MOST_BYTES:
                break
            batch.append((n, event))
        return batch


class Collector:
    """Puts rows that are new, changed or still open into the spool."""

    def __init__(self, config, spool, portal):
        self.config, self.spool, self.portal = config, spool, portal
        self.source = config["portal"]["source"]
        self.count, self.everything = 0, True

    def event(self, key, kind, second, data, sequence=0):
        return {
            "specversion": "1.0", "id": key, "source": self.source, "type": TYPE + kind, "time": stamp(second, "Z"),
            "sequence": "{:012d}".format(sequence), "data": data,
        }  # fmt: skip

    def complete(self, through, second):
        self.spool.put(self.event("complete", "complete", second, {"through": stamp(through, "Z")}))

    def collect(self):
        """True if all that there is was read. What hinders is said; the next attempt goes on from there."""
        self.count, self.everything = 0, True
        try:
            self.spool.check_room()
            if self.config["mode"] == "sacct":
                self.ask_sacct()
            elif self.config["mode"] == "files":
                self.read_directory(self.send_file)
            else:
                self.read_directory(self.read_file)
            self.spool.db.execute("DELETE FROM row WHERE touched < ?", (int(time.time()) - FORGET,))
        except (Trouble, HoldError, OSError, sqlite3.Error) as error:
            say("Reading stopped: {}".format(error))
            return False
        finally:
            if self.count:
                say("{} rows to send.".format(self.count))
        return self.everything

    def take(self, stream, second, only=None):
        """Spool the rows of an export, of these keys only. True if it ends with a whole row. Raises Trouble."""
        lines = lines_of(stream)
        header = next((line for line in lines if line.strip()), "").lstrip("\ufeff")
        names = [name.strip().lower().partition("%")[0] for name in header.split("|")]
        missing = [name for name in NEEDED if name not in names]
        if missing:
            raise Trouble(
                "these columns are missing: {}; see docs/reference/sacct.md.".format(", ".join(missing))
            )
        whole, before, rows = True, -1, rows_of(lines, len(names))
        # Through all looks, since of two in one second the later one is to count.
        number = self.spool.one("SELECT value FROM meta WHERE name = 'rows'") or 0
        while number != before:
            before = number
            with self.spool.saved():
                self.spool.check_room()
                for row in itertools.islice(rows, CHUNK):
                    number += 1
                    fields = row.rstrip("\n").split("|")
                    fits = len(fields) == len(names)
                    whole = fits and row.endswith("\n")
                    self.take_row(
                        row, header, dict(zip(names, fields)) if fits else {}, (second, number), only
                    )
                self.spool.set("rows", number)
        return whole

    def take_row(self, row, header, values, place, only):
        """`values` by column, none where the row is not whole; `place`: second of the look, and number of the row."""
        digest = hashlib.sha256((header + row).encode()).digest()[:16]
        key = "{}@{}".format(values.get("jobidraw"), values.get("submit"))
        if not values or len(key) > 120:
            key = "row-" + digest.hex()  # ClusterTab will not read it, and keeps it in quarantine
        if STEP.match(key) or (only is not None and key not in only):
            return
        ends = values.get("end", "").strip().lower()
        is_open = bool(values) and (ends in UNSET or values["state"] == "RUNNING")
        known = self.spool.db.execute(
            "SELECT digest, open, refused, touched FROM row WHERE key = ?", (key,)
        ).fetchone()
        now = int(time.time())
        is_recent = known is not None and known[3] > now - DAY
        is_same = known is not None and known[0] == digest and not is_open
        is_refused_again = is_recent and is_open and known[2]  # it grows at each look, and stays what it is
        if is_refused_again or (is_same and is_recent):
            return
        self.spool.db.execute("REPLACE INTO row VALUES (?, ?, ?, 0, ?)", (key, digest, is_open, now))
        if is_same:
            return
        self.count += 1
        if len(row) > LONGEST_ROW:
            self.spool.refuse(
                {"id": key, "row": row[:1000]}, "The row is longer than 1 MiB; its beginning is kept."
            )
            return
        data = {"header": header.rstrip("\n"), "row": row}
        self.spool.put(self.event(key, "sacct", place[0], data, place[1]))

    def ask_sacct(self):
        """All jobs since the last time and some hours before, then those that were open and did not come again."""
        settings, began = self.config["sacct"], int(time.time())
        overlap = settings["overlap_hours"] * 3600
        through = self.spool.one("SELECT value FROM meta WHERE name = 'through'")
        since = began - overlap if through is None else min(through, began) - overlap
        if through is None and settings["since"]:
            try:
                since = calendar.timegm(time.strptime(settings["since"], "%Y-%m-%d"))
            except ValueError:
                raise Trouble("since in [sacct] is a day such as 2026-01-31.")
        while since < began:
            until = min(since + SLICE, began)
            self.sacct("--starttime", stamp(since), "--endtime", stamp(until))
            self.spool.set("through", until)
            since = until
        query = "SELECT key FROM row WHERE open AND NOT refused AND touched < ? AND key LIKE '%@%'"
        keys = [key for (key,) in self.spool.db.execute(query, (began,))]
        for first in range(0, len(keys), 200):
            some = set(keys[first : first + 200])
            self.sacct("--jobs", ",".join(sorted({key.partition("@")[0] for key in some})), only=some)
        self.complete(began - settings["lag_seconds"], began)

    def sacct(self, *options, only=None):
        """Spool what sacct prints. Raises Trouble where it fails."""
        settings, second = self.config["sacct"], int(time.time())
        command = shlex.split(settings["command"])
        command += [
            "--allusers",
            "--allocations",
            "--duplicates",
            "--parsable2",
            "--format=" + FORMAT,
            *options,
        ]
        environ = {name: value for name, value in os.environ.items() if name != "SLURM_TIME_FORMAT"}
        environ["TZ"] = "UTC"
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=environ)
            watch = threading.Timer(settings["timeout_seconds"], process.kill)
            watch.start()
            try:
                self.take(process.stdout, second, only)
            finally:
                process.stdout.close()
                code = process.wait()
                watch.cancel()
            errors.seek(0)
            if code:
                raise Trouble(
                    "sacct ended with {}: {}".format(code, errors.read(500).decode(errors="replace").strip())
                )

    def read_directory(self, read):
        """Have each complete file that is new or has changed read, in the order of names."""
        settings, names = self.config[self.config["mode"]], set()
        for entry in sorted(os.scandir(settings["path"]), key=lambda entry: entry.name):
            is_final = not entry.name.startswith(".") and not entry.name.endswith(UNFINISHED)
            if not is_final or not entry.is_file(follow_symlinks=False):
                continue
            names.add(entry.name)
            seen = entry.stat(follow_symlinks=False)
            state = "{} {} {}".format(seen.st_ino, seen.st_size, seen.st_mtime_ns) + settings.get(
                "format", ""
            )
            is_known = self.spool.one("SELECT state FROM file WHERE name = ?", entry.name) == state
            still = time.time() - max(seen.st_mtime, seen.st_ctime)
            if is_known or not seen.st_size or still < settings["settle_seconds"]:
                continue
            try:
                read(entry, seen)
            except OSError as error:
                say("{} cannot be read now: {}.".format(entry.name, error))
                self.everything = False
                continue
            except Trouble as error:
                self.spool.check_room()
                say("{} is refused: {} Correct it; it is read again then.".format(entry.name, error))
            self.spool.db.execute("REPLACE INTO file VALUES (?, ?)", (entry.name, state))
        for (name,) in self.spool.db.execute("SELECT name FROM file").fetchall():
            if name not in names:
                self.spool.db.execute("DELETE FROM file WHERE name = ?", (name,))

    def send_file(self, entry, seen):
        """Whole, as it is: ClusterTab stores it before it answers, and a worker there imports it."""
        with open(entry.path, "rb") as file:
            if os.fstat(file.fileno()).st_size != seen.st_size:
                raise OSError("it has grown meanwhile")
            if seen.st_size > LARGEST_FILE:
                raise Trouble("it is larger than 1 GiB: let the scheduler begin a new one each day.")
            state = self.portal.put_file(entry.name, file, seen.st_size, self.config["files"]["format"])
        say("Sent {}: {}.".format(entry.name, state))

    def read_file(self, entry, seen):
        named = as_of(entry.name)
        second = named or int(seen.st_mtime)
        if second > time.time() + MOST_SKEW:
            raise Trouble("it is of the future, by its name or its time of writing.")
        with open(entry.path, "rb") as file:
            is_gzip = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            stream = gzip.GzipFile(fileobj=file) if is_gzip else file
            try:
                while is_gzip and stream.read(1 << 20):  # its sum stands at its end
                    pass
            except (EOFError, OSError, zlib.error) as error:
                raise Trouble("the archive is damaged: {}.".format(error))
            stream.seek(0)
            whole = self.take(stream, second)
        if named and whole:
            self.complete(second, second)
        elif named:
            raise Trouble("its last row is cut off, so it does not prove that all usage is there.")


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A key goes to the address that the operator wrote, and to no other."""

    def redirect_request(self, *_args, **_kwargs):
        return None


class Portal:
    """ClusterTab's API, with the key."""

    def __init__(self, settings):
        self.settings = settings
        try:
            context = ssl.create_default_context(cafile=settings["ca_file"] or None)
        except OSError as error:
            raise Trouble("ca_file cannot be read: {}".format(error))
        self.opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), NoRedirect)

    def ask(self, path, body=None, **more):
        """(status, value of the answer, headers). Raises HoldError where none came."""
        key = read_key(self.settings["key_file"])
        headers = {"Authorization": "Bearer " + key, "User-Agent": "clustertab-agent"}
        headers["Content-Type"] = "application/octet-stream" if more else "application/cloudevents-batch+json"
        headers.update(more.pop("headers", {}))
        address = self.settings["url"].rstrip("/") + "/api/v1/" + path
        request = urllib.request.Request(address, body, headers, **more)
        try:
            try:
                answer = self.opener.open(request, timeout=self.settings["timeout_seconds"])
            except urllib.error.HTTPError as error:
                answer = error
            with contextlib.closing(answer):
                text, status, headers = answer.read(16 << 20), answer.getcode(), answer.headers
        except (OSError, http.client.HTTPException, ssl.CertificateError) as error:
            reason = getattr(error, "reason", "") or error or type(error).__name__
            raise HoldError("ClusterTab does not answer: {}.".format(reason))
        try:
            value = json.loads(text.decode())
        except ValueError:
            value = {}
        return status, value if isinstance(value, dict) else {}, headers

    def greet(self):
        """Raises HoldError where the key is refused, or the clocks differ so far that events would be."""
        status, value, headers = self.ask("me")
        if status != 200:
            raise self.hold(status, value, headers)
        moment = email.utils.parsedate_tz(headers.get("Date") or "")
        skew = time.time() - email.utils.mktime_tz(moment) if moment else 0
        if abs(skew) > MOST_SKEW:
            raise HoldError("The clock here and ClusterTab's differ by {:.0f} s: correct it.".format(skew))
        return value

    def push(self, texts):
        """Status, answer and headers to a batch."""
        path = "usage-events?cluster=" + urllib.parse.quote(self.settings["cluster"], safe="")
        return self.ask(path, b"[" + b",".join(text.encode() for text in texts) + b"]")

    def put_file(self, name, file, size, form):
        """What becomes of it. Raises Trouble where ClusterTab will not have it, HoldError where it did not come."""
        query, moment = {"format": form}, as_of(name)
        if moment:
            query["as_of"] = stamp(moment, "Z")
        place = [urllib.parse.quote(word, safe="") for word in (self.settings["cluster"], name)]
        path = "clusters/{}/files/{}?{}".format(place[0], place[1], urllib.parse.urlencode(query))
        pieces = iter(lambda: file.read(1 << 20), b"")
        status, value, headers = self.ask(path, pieces, method="PUT", headers={"Content-Length": str(size)})
        if status in (400, 409, 413, 422):  # 409: not now, and the files after it are not to wait for it
            raise (OSError if status == 409 else Trouble)(str(value.get("detail")))
        if status != 202:
            raise self.hold(status, value, headers)
        return value.get("state")

    @staticmethod
    def hold(status, value, headers):
        after = headers.get("Retry-After") or ""
        if after.isdigit():
            seconds = int(after)
        else:
            moment = email.utils.parsedate_tz(after) if after else None
            seconds = max(0, email.utils.mktime_tz(moment) - time.time()) if moment else None
        detail = value.get("detail") or "is there another server in between, or is the url not ClusterTab's?"
        return HoldError("ClusterTab answers {}: {}".format(status, detail), seconds)


class Sender:
    """Sends what the spool holds, in its order."""

    def __init__(self, portal, spool):
        self.portal, self.spool = portal, spool
        self.size, self.failures = MOST_EVENTS, 0

    def send(self, until):
        """Seconds to wait before the next attempt; 0 if all was sent, or it is `until`, of the monotonic clock."""
        try:
            if self.spool.count():
                self.portal.greet()
            while time.monotonic() < until:
                batch = self.spool.batch(self.size)
                if not batch:
                    return 0
                self.send_batch(batch)
                self.failures = 0
            return 0
        except (HoldError, Trouble) as error:
            self.failures += 1
            pause = getattr(error, "after", None)
            if pause is None:
                pause = min(LONGEST_PAUSE, 2**self.failures) * random.uniform(0.5, 1)
            say("{} {} events wait; again in {:.0f} s.".format(error, self.spool.count(), pause))
            return max(pause, 0.1)

    def send_batch(self, batch):
        try:
            status, value, headers = self.portal.push([text for _, text in batch])
        except HoldError:
            self.size = max(1, self.size // 2)  # it may have been too much for its time limit
            raise
        results = value.get("results")
        if status in (200, 400) and isinstance(results, list) and len(results) == len(batch):
            self.settle(batch, results, value.get("warnings") or {})
            self.size = min(MOST_EVENTS, self.size + MOST_EVENTS // 10)
        elif self.is_about_an_event(status, value) and len(batch) > 1:
            self.size = len(batch) // 2
        elif self.is_about_an_event(status, value):
            self.settle(batch, [{"status": "rejected", "errors": [value]}], {})
        else:
            self.size = max(1, self.size // 2)
            raise self.portal.hold(status, value, headers)

    @staticmethod
    def is_about_an_event(status, value):
        """Whether the request is refused whole for what is in it: smaller ones find the event that is meant."""
        places = [error.get("pointer") for error in value.get("errors") or []]
        is_ours = str(value.get("type")).startswith("urn:clustertab:problem:")
        return status == 413 or (status == 400 and is_ours and "cluster" not in places)

    def settle(self, batch, results, warnings):
        """Keep what was rejected, and forget the batch."""
        counts = collections.Counter(str(result.get("status")) for result in results)
        with self.spool.saved():
            for (_, text), result in zip(batch, results):
                if result.get("status") == "rejected":
                    errors = result.get("errors") or [{}]
                    self.spool.refuse(json.loads(text), str(errors[0].get("detail")))
            self.spool.db.executemany("DELETE FROM spool WHERE n = ?", [(n,) for n, _ in batch])
        say(
            "Sent {} events: {}.".format(
                len(batch), ", ".join("{} {}".format(n, x) for x, n in counts.items())
            )
        )
        for name, accounts in sorted(warnings.items()):
            if accounts:
                say("Billed to nobody yet, {}: {}.".format(name, ", ".join(sorted(accounts)[:20])))


def check(config, collector, portal):
    """Try everything, change nothing, and print what works."""
    me = portal.greet()
    scope = "imports:write" if config["mode"] == "files" else "usage:push"
    if scope not in me.get("scopes", []):
        raise Trouble("The key {!r} lacks the scope {}.".format(me.get("name"), scope))
    if config["mode"] != "files":
        status, value, headers = portal.push([])
        if status != 200:
            raise portal.hold(status, value, headers)
    cluster = config["portal"]["cluster"]
    print("ClusterTab takes usage for {} from the key {}.".format(cluster, me.get("prefix")))
    if config["mode"] != "sacct":
        path = config[config["mode"]]["path"]
        print("{} has {} files.".format(path, len(os.listdir(path))))
    else:
        now = time.time()
        collector.sacct("--starttime", stamp(now - 3600), "--endtime", stamp(now), only=())
        print("sacct prints the columns that are needed.")


def run(config, arguments):
    os.umask(0o077)
    directory = config["agent"]["state_dir"]
    os.makedirs(directory, exist_ok=True)
    portal = Portal(config["portal"])
    if arguments.check:
        # It is writable, and stays as it is.
        with tempfile.TemporaryDirectory(dir=directory) as place, contextlib.closing(Spool(place)) as spool:
            return check(config, Collector(config, spool, portal), portal)
    with open(os.path.join(directory, "lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Trouble("Another agent works in {}.".format(directory))
        with contextlib.closing(Spool(directory, config["agent"]["spool_mib"])) as spool:
            if arguments.retry_rejected:
                spool.retry_refused()
            return work(config, arguments.once, Collector(config, spool, portal), Sender(portal, spool))


def work(config, once, collector, sender):
    """Read and send, once or for good."""
    every, collect_at, pause = 60 * config["agent"]["every_minutes"], time.monotonic(), 0
    while True:
        if time.monotonic() >= collect_at:
            collect_at = time.monotonic() + every
            collected = collector.collect()
        pause = sender.send(collect_at + (LONGEST_WAIT if once else 0))
        if once:
            return 0 if collected and not pause else 1
        time.sleep(max(0, min(collect_at - time.monotonic(), pause or every)))


def main():
    parser = argparse.ArgumentParser(description="Pushes accounting to ClusterTab.")
    parser.add_argument("--config", default="/etc/clustertab-agent/agent.conf", metavar="FILE")
    parser.add_argument(
        "--check", action="store_true", help="try key, cluster and source, send nothing, and end"
    )
    parser.add_argument("--once", action="store_true", help="read and send what there is, and end")
    parser.add_argument("--retry-rejected", action="store_true", help="send what was rejected once more")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        return run(read_config(arguments.config), arguments)
    except (Trouble, HoldError, OSError, sqlite3.Error) as error:
        say(" ".join(str(error).split()))
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
