#!/usr/bin/env python3
"""Speaks with ClusterTab for the plugins of Slurm that lie beside it. docs/how-to/slurm-plugins.md.

One file, for the Python 3.6 of old login nodes and newer, with nothing but its standard library: it is copied to a host
alone, so what it needs of the agent in deploy/agent is written here again. It has the key, which users must not read,
and does up to three things, each where its section stands in the configuration: [ask] answers the cli_filter of this
host on a socket, [blocked] keeps the file that job_submit reads, [queue] reserves for jobs that wait.
Commands of Slurm are run with fixed arguments. What users say reaches none of them.
"""

import argparse
import configparser
import contextlib
import http.client
import http.server
import json
import os
import pwd
import re
import secrets
import signal
import socket
import socketserver
import ssl
import stat
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

DEFAULTS = {
    "portal": {"url": "", "key_file": "", "ca_file": ""},
    "slurm": {"sacctmgr": "sacctmgr", "scontrol": "scontrol", "squeue": "squeue", "timeout_seconds": "30"},
    "ask": {
        "socket": "/run/clustertab-slurm/ask.sock",
        "on_failure": "admit",
        "on_refusal": "reject",
        "arrays": "at-once",
        "default_hours": "24",
        "minute_limit": "300",
    },
    "blocked": {
        "file": "/run/clustertab-slurm/blocked-accounts",
        "every_seconds": "20",
        "valid_minutes": "15",
        "gpu_jobs": "wait",
    },
    "queue": {
        "state_file": "/var/lib/clustertab-slurm/queue.json",
        "every_seconds": "20",
        "arrays": "at-once",
    },
}
CHOICES = {
    "on_failure": ("admit", "reject"),
    "on_refusal": ("admit", "reject"),
    "arrays": ("at-once", "whole"),
    "gpu_jobs": ("wait", "refuse"),
}
ANSWER_SECONDS = 1.6  # of ClusterTab, within the 2 s of the plugin
SLURM_SECONDS = 300  # after so long accounts and partitions are read again
LONGEST_BODY = 16384  # bytes that a user can send
AT_A_TIME = 8  # questions of one user at once
SUBMIT_SECONDS = 60  # until what was reserved is given free if no job came of it
AGAIN_SECONDS = 300  # until it is asked again for a job that did not fit
PACE = 20  # requests a second for the queue; a key has 50
MOST_TASKS = 1000000  # that ClusterTab takes
MOST_HOURS = 8784  # of a time limit
MOST_DAYS = 1000  # a longer time limit is none: Slurm 22.05 prints 2982616 days for it
QUEUE = (
    "arrayjobid,jobarrayid,statecompact,reason,dependency,account,username,partition,qos,timelimit,tres-alloc"
)
RUNS = ("R", "CF", "S", "SO", "ST")


class Trouble(Exception):
    """A sentence for the operator: what is wrong, and what to do."""


class SilenceError(Exception):
    """ClusterTab or Slurm does not answer. A sentence says so."""


class RefusedError(SilenceError):
    """ClusterTab answers, but not this question, however often it is asked."""


def say(text):
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def plain(text):
    """One line, without control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())


def read_config(path):
    """The settings by section, each with its default; `on` names the sections that stand there. Raises Trouble."""
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
    config = {"on": [name for name in ("ask", "blocked", "queue") if parser.has_section(name)]}
    for section, defaults in DEFAULTS.items():
        values = parser[section] if parser.has_section(section) else {}
        config[section] = {
            name: read_value(path, section, name, values.get(name, value)) for name, value in defaults.items()
        }
    if not config["on"]:
        raise Trouble("{}: say what is to be done: [ask], [blocked], [queue].".format(path))
    check_portal(path, config["portal"])
    return config


def read_value(path, section, name, value):
    if name in CHOICES and value not in CHOICES[name]:
        raise Trouble("{}: {} in [{}] is {}.".format(path, name, section, " or ".join(CHOICES[name])))
    if not name.endswith(("_seconds", "_minutes", "_hours", "_limit")):
        return value
    if not re.match(r"[1-9]\d{0,5}$", value):
        raise Trouble("{}: {} in [{}] is a whole number from 1 on.".format(path, name, section))
    return int(value)


def check_portal(path, settings):
    url = urllib.parse.urlsplit(settings["url"])
    if not url.hostname or url.scheme not in ("http", "https") or not settings["key_file"]:
        raise Trouble("{}: [portal] needs url, such as https://billing.example, and key_file.".format(path))
    if url.scheme != "https" and url.hostname not in ("127.0.0.1", "localhost", "::1"):
        raise Trouble("{}: url begins with https://, or the key would be sent for all to read.".format(path))


def read_key(path):
    """The key, from a file that nobody else can read. Raises Trouble, which does not say the key."""
    try:
        with open(path) as file:
            mode = os.fstat(file.fileno()).st_mode
            key = file.read(4096).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Trouble("The key cannot be read: {}".format(error))
    if stat.S_IMODE(mode) & 0o077:
        raise Trouble("Others can read {0}: chmod 600 {0}, and make another key if that was so.".format(path))
    if not re.match(r"[!-~]{20,200}$", key):
        raise Trouble("{} holds no key: it is one line, ct_live_ and so on.".format(path))
    return key


def write_whole(path, text, mode, group=-1):
    """Replace a file in one step: whoever reads it sees the old or the new one."""
    with open(path + ".new", "w") as file:
        os.fchown(file.fileno(), -1, group)
        os.fchmod(file.fileno(), mode)
        file.write(text)
    os.rename(path + ".new", path)


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

    def ask(self, path, body=None, timeout=10, method=None):
        """The value of the answer, {} of an empty one. Raises SilenceError where none can be read."""
        headers = {"Authorization": "Bearer " + read_key(self.settings["key_file"])}
        headers["User-Agent"] = "clustertab-slurm"
        if body is not None:
            headers["Content-Type"] = "application/json"
            body = json.dumps(body).encode()
        request = urllib.request.Request(
            self.settings["url"].rstrip("/") + "/api/v1/" + path, body, headers, method=method
        )
        try:
            with contextlib.closing(self.opener.open(request, timeout=timeout)) as answer:
                value = json.loads(answer.read(4 << 20).decode() or "{}")
            if isinstance(value, dict):
                return value
            reason = "what came is not its answer"
        except urllib.error.HTTPError as error:
            with contextlib.closing(error):
                reason = "{} {}".format(error.code, error.read(2000).decode("utf-8", "replace"))
            if error.code in (400, 409, 413, 422):
                raise RefusedError("ClusterTab cannot answer: {}.".format(plain(reason)[:300]))
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", "") or error or type(error).__name__
        raise SilenceError("ClusterTab does not answer: {}.".format(plain(reason)[:300]))


class Slurm:
    """What the commands of Slurm say: accounts by user, partitions, jobs. Their arguments are fixed."""

    def __init__(self, settings):
        self.settings, self.read_at = settings, None
        self.accounts, self.default_account, self.partitions, self.default_partition = {}, {}, {}, ""
        self.members = {}

    def run(self, name, *arguments):
        """The lines that a command prints. Raises SilenceError."""
        environ = dict(os.environ, SLURM_BITSTR_LEN="0", SLURM_TIME_FORMAT="standard", LC_ALL="C")
        try:
            done = subprocess.run(
                [self.settings[name], *arguments], env=environ, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=self.settings["timeout_seconds"],
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SilenceError("{} does not answer: {}.".format(name, error))
        if done.returncode:
            text = plain(done.stderr.decode("utf-8", "replace"))
            raise SilenceError("{} failed: {}.".format(name, text[:300]))
        return done.stdout.decode("utf-8", "replace").splitlines()

    def refresh(self):
        """Read accounts and partitions again if it is long ago. Raises SilenceError where they were never read."""
        if self.read_at is not None and time.monotonic() - self.read_at < SLURM_SECONDS:
            return
        try:
            accounts, members = {}, {}
            for line in self.run("sacctmgr", "-nP", "show", "assoc", "format=user,account"):
                user, _, account = line.partition("|")
                if user:
                    accounts.setdefault(user, set()).add(account)
                    members.setdefault(account.lower(), set()).add(user)
            lines = self.run("sacctmgr", "-nP", "show", "user", "format=user,defaultaccount")
            self.default_account = dict(line.split("|")[:2] for line in lines if "|" in line)
            self.read_partitions()
            self.members = {account: numbers_of(users) for account, users in members.items()}
            self.accounts, self.read_at = accounts, time.monotonic()
        except SilenceError as error:
            if self.read_at is None:
                raise
            say(str(error))

    def read_partitions(self):
        partitions, default = {}, ""
        for line in self.run("scontrol", "-o", "show", "partition"):
            values = dict(word.split("=", 1) for word in line.split() if "=" in word)
            name = values.get("PartitionName", "")
            models = re.findall(r"gres/gpu:([^=,]+)=", values.get("TRES", ""))
            hours = minutes_of(values.get("DefaultTime")) or minutes_of(values.get("MaxTime"))
            most = minutes_of(values.get("MaxTime"))
            partitions[name] = (models[0] if len(models) == 1 else "", hours, most)
            default = name if values.get("Default") == "YES" else default
        self.partitions, self.default_partition = partitions, default

    def group_of_controller(self):
        """The number of the group of SlurmUser, in which the service is, too. Raises SilenceError."""
        match = re.search(
            r"\nSlurmUser\s*=\s*\S*\((\d+)\)", "\n".join(self.run("scontrol", "show", "config"))
        )
        group = pwd.getpwuid(int(match.group(1))).pw_gid if match else -1
        if os.geteuid() != 0 and group not in [os.getegid(), *os.getgroups()]:
            text = "The user of this service has to be in group {} of slurmctld's user: docs/how-to/slurm-plugins.md."
            raise SilenceError(text.format(group))
        return group

    def jobs(self):
        """Rows of the queue, as dicts by the names of QUEUE, with blanks for what is not set."""
        form = ",".join("{}:|".format(name) for name in QUEUE.split(","))
        for line in self.run("squeue", "-h", "-a", "-O", form):
            values = line.split("|")[:-1]
            if len(values) == QUEUE.count(",") + 1:
                yield dict(zip(QUEUE.split(","), ("" if v in ("(null)", "N/A") else v for v in values)))


def minutes_of(text):
    """Minutes of Slurm's D-HH:MM:SS, HH:MM:SS, MM:SS or MM, rounded up; None for no limit."""
    match = re.match(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?$", text or "")
    if not match:
        return None
    days, parts = match.group(1), [int(part) for part in match.groups()[1:] if part is not None]
    if days is not None:
        parts += [0] * (3 - len(parts))
        seconds = int(days) * 86400 + parts[0] * 3600 + parts[1] * 60 + parts[2]
    elif len(parts) == 3:
        seconds = parts[0] * 3600 + parts[1] * 60 + parts[2]
    else:
        seconds = parts[0] * 60 + (parts[1] if len(parts) == 2 else 0)
    return None if seconds > MOST_DAYS * 86400 else -(-seconds // 60)


def whole(text, default=0):
    """The greatest number of a range such as 2-4; `default` where there is none."""
    numbers = [int(number) for number in re.findall(r"\d{1,7}", text or "")]
    return max(numbers) if numbers else default


def gpus_of(name, text, what="gpu"):
    """Number and type of the GPUs that an option says: gres has gres/gpu:a100:2,license:1 and gpus has a100:2 or 2.

    Or of their shards, in gres/shard:2.
    """
    count, kind = 0, ""
    for item in re.sub(r"\([^)]*\)", "", text or "").split(","):
        words = re.sub(r"^gres[:/]", "", item.strip()).replace("=", ":").split(":")
        if name in ("gres", "tres-per-task") and words.pop(0) != what:
            continue
        number = int(words.pop()) if words and re.match(r"\d{1,6}$", words[-1]) else 1 if item else 0
        count, kind = count + number, words[0] if words and words[0] else kind
    return count, kind


def gpu_fields(count, kind):
    """As the API names GPUs, or slices of them."""
    slice_ = re.match(r"(?:(.+?)[_-])?((\d)g\.\d+gb\S*)$", kind, re.IGNORECASE)
    fields = {"gpus": count}
    if slice_:
        slices = 4 if kind.lower().startswith("a30") else 7
        fields.update(mig_profile=slice_.group(2).lower(), gpu_share="{}/{}".format(slice_.group(3), slices))
        kind = slice_.group(1) or ""
    if kind:
        fields["gpu_model"] = kind
    return fields


def array_of(text, arrays):
    """`tasks` and `at_once` of 0-9:2,15%3; nothing for a plain job."""
    spec, _, at_once = (text or "").strip("[]").partition("%")
    tasks = 0
    for part in filter(None, spec.split(",")):
        match = re.match(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?$", part)
        if match:
            first, last, step = (int(n) if n else None for n in match.groups())
            tasks += 1 if last is None else max(0, last - first) // (step or 1) + 1
    if not tasks:
        return {}
    fields = {"tasks": tasks}
    if arrays == "at-once" and at_once.isdigit() and int(at_once):
        fields["at_once"] = min(int(at_once), MOST_TASKS)  # may be more than the tasks that wait: others run
    return fields


def gib_of(text):
    """Memory such as 4G or 2000M in GiB, as text; "" where none is said."""
    match = re.match(r"(\d{1,12})(?:\.(\d{1,2}))?([KMGT]?)", text or "")
    if not match:
        return ""
    hundredths = int(match.group(1)) * 100 + int((match.group(2) or "0").ljust(2, "0"))
    kib = hundredths * {"K": 1, "M": 1 << 10, "": 1 << 10, "G": 1 << 20, "T": 1 << 30}[match.group(3)] // 100
    gib = -(-kib * 1000 >> 20)
    return "{}.{:03d}".format(gib // 1000, gib % 1000) if gib else ""


def hours_of(minutes):
    """As a number with decimals, never less than the minutes, and not more than ClusterTab takes."""
    parts = -(-min(minutes, MOST_HOURS * 60) * 10000 // 60)
    return "{}.{:04d}".format(parts // 10000, parts % 10000)


def shape_of(options, slurm, settings):
    """What a job that is submitted with these options holds at most, as far as they say."""
    partition = (options.get("partition") or slurm.default_partition).split(",")[0]
    model, default_minutes, most_minutes = slurm.partitions.get(partition, ("", None, None))
    nodes, tasks = max(1, whole(options.get("nodes"), 1)), max(1, whole(options.get("ntasks"), 1))
    count, kind = gpus_of("gpus", options.get("gpus"))
    for name, times in (("gpus-per-node", nodes), ("gres", nodes), ("gpus-per-task", tasks),
                        ("tres-per-task", tasks), ("gpus-per-socket", nodes)):  # fmt: skip
        if not count:
            count, kind = gpus_of(name, options.get(name))
            count *= times
    shards = 0  # ClusterTab knows what they are of a GPU
    for name, times in (("gres", nodes), ("tres-per-task", tasks)):
        if not count and not shards:
            shards, kind = gpus_of(name, options.get(name), "shard")
            shards *= times
    unlimited = options.get("time", "").upper() in ("UNLIMITED", "INFINITE")
    minutes = minutes_of(options.get("time"))
    if minutes is None:
        minutes = (most_minutes if unlimited else default_minutes) or 60 * settings["default_hours"]
    fields = gpu_fields(count, kind or (model if count or shards else ""))
    fields.update(
        shards=shards or "", hours=hours_of(max(1, minutes)), queue=partition, qos=options.get("qos", "")
    )
    fields.update(cpus=str(tasks * max(1, whole(options.get("cpus-per-task"), 1))))
    fields.update(memory_gib=gib_of(options.get("mem")))
    fields.update(array_of(options.get("array"), settings["arrays"]))
    return {name: value for name, value in fields.items() if value != ""}


class Asker:
    """Answers the cli_filter: each answer is a word, yes, no or unknown, and lines for the user."""

    def __init__(self, config, portal, slurm):
        self.settings, self.portal, self.slurm = config["ask"], portal, slurm
        self.lock, self.minute, self.requests = threading.Lock(), 0, {}
        self.reserved = {}  # (uid, key) to what was sent, until the job's number is known

    def count(self, uid):
        """Raises SilenceError where the user has asked more often than anybody may in a minute."""
        with self.lock:
            minute = int(time.monotonic() // 60)
            if minute != self.minute:
                self.minute, self.requests = minute, {}
            self.requests[uid] = self.requests.get(uid, 0) + 1
            if self.requests[uid] > self.settings["minute_limit"]:
                raise SilenceError("The user with the number {} asks too often.".format(uid))

    def ask(self, uid, options):
        """(word, message). `options` is what the plugin sent, of the user with that number."""
        user = pwd.getpwuid(uid).pw_name
        if self.slurm.read_at is None:
            raise SilenceError("The accounts of Slurm are not known yet.")
        account = (options.get("account") or self.slurm.default_account.get(user, "")).lower()
        if account not in self.slurm.accounts.get(user, ()):
            return "yes", ""  # Slurm decides, and nobody learns of accounts of others
        starts_later = options.get("begin", "Unknown") not in ("Unknown", "N/A", "now", "")
        if options.get("hold") == "set" or options.get("dependency") or starts_later:
            return "yes", "This job is reserved for once it waits to run."
        key = options.get("key", "")
        if not re.match(r"[0-9A-Za-z]{1,40}\Z", key):
            raise SilenceError("The plugin sent no key.")
        body = dict(shape_of(options, self.slurm, self.settings), account=account, user=user)
        # Not the user's own word: said again, it would reach what is reserved for a job by now.
        body.update(key="ask-{}-{}".format(uid, secrets.token_hex(12)), lasts=2 * SUBMIT_SECONDS)
        answer = self.portal.ask("job-reservations", body, timeout=ANSWER_SECONDS)
        if answer.get("reserved"):
            with self.lock:
                self.reserved[uid, key] = (body, time.monotonic())
        if not answer.get("may_run"):
            return "no", answer.get("message", "")
        tasks, held = answer.get("tasks", 1), answer.get("tasks_reserved", 0)
        if tasks > 1 and held:
            return "yes", "Reserved for {} of {} tasks of the array at a time.".format(held, tasks)
        return "yes", ""

    def give_free(self):
        """What was reserved for jobs that did not come: Slurm refused them, or they still wait for an allocation."""
        with self.lock:
            late = time.monotonic() - SUBMIT_SECONDS
            old = {name: row for name, row in self.reserved.items() if row[1] <= late}
            self.reserved = {name: row for name, row in self.reserved.items() if row[1] > late}
        for body, _ in old.values():
            self.portal.ask("job-reservations/" + body["key"], method="DELETE")

    def submitted(self, uid, options):
        """The number of the job that it was reserved for: what was reserved lasts as long as the job."""
        with self.lock:
            body, _ = self.reserved.pop((uid, options.get("key", "")), (None, 0))
        number = options.get("job_id", "")
        if body is None or not re.match(r"[1-9][0-9]{0,11}\Z", number):
            return "unknown", ""
        if pwd.getpwuid(uid).pw_name not in self.slurm.run("squeue", "-h", "-o", "%u", "-j", number):
            return "unknown", ""
        del body["lasts"]
        self.portal.ask("job-reservations", dict(body, job_id=number))
        return "yes", ""


class Handler(http.server.BaseHTTPRequestHandler):
    """One question over the socket."""

    timeout = 2

    def do_POST(self):
        try:
            uid = peer_of(self.connection)
            self.server.asker.count(uid)
            length = self.headers.get("Content-Length", "")
            if not length.isdigit() or int(length) > LONGEST_BODY:
                raise SilenceError("The question is too long.")
            text = self.rfile.read(int(length)).decode("utf-8", "replace")
            options = dict(line.split("=", 1) for line in text.split("\n") if "=" in line)
            act = {"/ask": self.server.asker.ask, "/submitted": self.server.asker.submitted}[self.path]
            word, message = act(uid, options)
        except (SilenceError, Trouble, KeyError) as error:
            say("A question is not answered: {}".format(plain(error)))
            word, message = "unknown", ""
        body = "\n".join([word] + [plain(line) for line in message.splitlines()] + [""]).encode()
        self.send_response_only(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def peer_of(connection):
    """The number of the user at the other end, as the kernel says."""
    size = struct.calcsize("3i")
    return struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[1]


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """A thread for each question, and few of them for each user."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, path, asker):
        self.asker, self.lock, self.active = asker, threading.Lock(), {}
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        socketserver.UnixStreamServer.__init__(self, path, Handler)
        os.chmod(path, 0o666)  # noqa: S103 - every user may ask; the answer goes by who it is

    def verify_request(self, request, _client_address):
        uid = peer_of(request)
        with self.lock:
            if self.active.get(uid, 0) >= AT_A_TIME:
                return False
            self.active[uid] = self.active.get(uid, 0) + 1
        return True

    def process_request_thread(self, request, client_address):
        uid = peer_of(request)
        try:
            socketserver.ThreadingMixIn.process_request_thread(self, request, client_address)
        finally:
            with self.lock:
                self.active[uid] -= 1
                if not self.active[uid]:
                    del self.active[uid]

    def handle_error(self, *_request):
        say("A question broke off: {}".format(plain(sys.exc_info()[1])))


class Blocked:
    """Keeps the file of blocked accounts. What ClusterTab does not confirm any more goes out of date by itself."""

    def __init__(self, config, portal, slurm):
        self.settings, self.portal, self.slurm = config["blocked"], portal, slurm
        self.group = None

    def look(self):
        if self.group is None:  # nobody else reads what is left of whose budget
            self.group = self.slurm.group_of_controller()
        rows = self.portal.ask("blocked-accounts").get("data")
        if not isinstance(rows, list):
            raise SilenceError("ClusterTab does not answer with accounts.")
        with contextlib.suppress(SilenceError):  # without members, each is told the least
            self.slurm.refresh()
        lines = ["clustertab 2 {}".format(int(time.time()) + 60 * self.settings["valid_minutes"])]
        gpu = "tell" if self.settings["gpu_jobs"] == "wait" else "gpu"
        for row in rows:
            word = "all" if row["refuses"] else gpu
            account = plain(row["account"]).lower()
            lines.append(
                "\t".join((word, account, self.slurm.members.get(account, ""), plain(row["message"])))
            )
        write_whole(self.settings["file"], "\n".join(lines) + "\n", 0o640, self.group)


def numbers_of(users):
    """Of the users that this host has."""
    numbers = []
    for user in sorted(users):
        with contextlib.suppress(KeyError):
            numbers.append(str(pwd.getpwnam(user).pw_uid))
    return " ".join(numbers)


class Queue:
    """Reserves for jobs that wait to run, or run already: those that were held, and what nobody has asked for."""

    def __init__(self, config, portal, slurm):
        self.settings, self.portal, self.slurm = config["queue"], portal, slurm
        self.seen, self.running, self.refused, self.placed = set(), set(), {}, {}
        with contextlib.suppress(OSError, ValueError), open(self.settings["state_file"]) as file:
            self.placed = json.load(file)  # what was sent of each job

    def look(self):
        self.slurm.read_partitions()  # by which shards know their model
        jobs = {}
        for row in self.slurm.jobs():
            jobs.setdefault(row["arrayjobid"], []).append(row)
        before, earlier = self.seen, dict(self.placed)
        running = {name for name, rows in jobs.items() if any(row["statecompact"] in RUNS for row in rows)}
        requeued = self.running - running  # what was reserved may have ended with the run
        self.placed = {name: body for name, body in earlier.items() if name in jobs and name not in requeued}
        self.refused = {name: since for name, since in self.refused.items() if name in jobs}
        self.seen = {name for name in jobs if name in running or any(waits(row) for row in jobs[name])}
        self.running = running
        try:
            # One round later: the plugin that submits it may be about to say its number.
            for name in sorted(self.seen & before):
                if self.reserve(name, body_of(jobs[name], self.settings["arrays"], self.slurm.partitions)):
                    time.sleep(1.0 / PACE)
        finally:
            if self.placed != earlier:
                write_whole(self.settings["state_file"], json.dumps(self.placed), 0o600)

    def reserve(self, name, body):
        """Whether it was asked for. An array keeps its number of tasks while they end one after another."""
        before, now = self.placed.get(name, {}), time.monotonic()
        if "tasks" in body and body["tasks"] <= before.get("tasks", 0):
            body.update(tasks=before["tasks"])
            if "at_once" in before:
                body.setdefault("at_once", before["at_once"])
        if body == before or self.refused.get(name, now - AGAIN_SECONDS) > now - AGAIN_SECONDS:
            return False
        try:
            answer = self.portal.ask("job-reservations", body)
        except RefusedError as error:  # it keeps no other job from being reserved for
            self.refused[name] = now
            say("Job {}: {}".format(name, error))
            return True
        if answer.get("may_run"):
            self.placed[name] = body
        else:
            self.refused[name] = now
            say("Job {} does not fit: {}".format(name, plain(answer.get("message", ""))))
        return True


def waits(row):
    """Whether the job waits to run, and is not kept from it by whoever submitted it."""
    is_hindered = row["dependency"] or row["reason"].startswith(("JobHeld", "Dependency", "BeginTime"))
    return row["statecompact"] == "PD" and not is_hindered


def body_of(rows, arrays, partitions):
    """What a job, or an array with its tasks, may come to, as it is in the queue."""
    row = next((row for row in rows if "[" in row["jobarrayid"]), rows[0])
    tres = dict(item.split("=", 1) for item in row["tres-alloc"].split(",") if "=" in item)
    kinds = [name.partition(":")[2] for name in tres if name.startswith("gres/gpu:")]
    count = whole(tres.get("gres/gpu")) or sum(whole(tres["gres/gpu:" + kind]) for kind in kinds)
    shards, queue = 0 if count else whole(tres.get("gres/shard")), row["partition"].split(",")[0]
    model = partitions.get(queue, ("",))[0] if shards else ""
    fields = gpu_fields(count, kinds[0] if len(kinds) == 1 else model)
    job, minutes = row["arrayjobid"], minutes_of(row["timelimit"]) or 24 * 60
    fields.update(key="job-" + job, job_id=job, account=row["account"], user=row["username"])
    fields.update(shards=shards or "", queue=queue, qos=row["qos"], cpus=str(whole(tres.get("cpu"))))
    fields.update(hours=hours_of(max(1, minutes)), memory_gib=gib_of(tres.get("mem")))
    if "_" in row["jobarrayid"]:
        fields.update(array_of(row["jobarrayid"].partition("_")[2], arrays))
        fields["tasks"] += sum("[" not in other["jobarrayid"] for other in rows if other is not row)
    return {name: value for name, value in fields.items() if value != ""}


def repeat(what, look, seconds):
    """For good. What hinders is said once, and when it is over."""
    trouble = ""
    while True:
        try:
            look()
            if trouble:
                say("{}: goes on.".format(what))
            trouble = ""
        except Exception as error:  # noqa: BLE001 - else the others go on, and nobody learns that this one does not
            if plain(repr(error)) != trouble:
                trouble = plain(repr(error))
                is_expected = isinstance(error, (SilenceError, Trouble, OSError))
                say("{}: {}".format(what, plain(error) if is_expected else trouble))
        time.sleep(seconds)


def check(config, portal, slurm):
    """Try everything, reserve nothing, and print what works."""
    portal.ask("blocked-accounts")
    print("ClusterTab answers, and the key may reserve.")
    if "blocked" in config["on"]:
        slurm.group_of_controller()
        print("slurmctld will be able to read the file of blocked accounts.")
    if "ask" in config["on"]:
        slurm.refresh()
        print("Slurm has {} users and {} partitions.".format(len(slurm.accounts), len(slurm.partitions)))
    if "queue" in config["on"]:
        print("Slurm has {} jobs in its queue.".format(len(list(slurm.jobs()))))


def run(config, is_check):
    portal, slurm = Portal(config["portal"]), Slurm(config["slurm"])
    read_key(config["portal"]["key_file"])
    if is_check:
        return check(config, portal, slurm)
    works = []
    if "blocked" in config["on"]:
        look = Blocked(config, portal, slurm).look
        works.append(("Blocked accounts", look, config["blocked"]["every_seconds"]))
    if "queue" in config["on"]:
        works.append(("Queue", Queue(config, portal, slurm).look, config["queue"]["every_seconds"]))
    if "ask" in config["on"]:
        works.append(("Accounts and partitions", slurm.refresh, 5))
        asker = Asker(config, portal, slurm)
        works.append(("Reservations without a job", asker.give_free, 5))
        server = Server(config["ask"]["socket"], asker)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    threads = [threading.Thread(target=repeat, args=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 1


def main():
    parser = argparse.ArgumentParser(description="Speaks with ClusterTab for plugins of Slurm.")
    parser.add_argument("--config", default="/etc/clustertab-slurm/clustertab-slurm.conf", metavar="FILE")
    parser.add_argument("--check", action="store_true", help="try key and commands, reserve nothing, and end")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        return run(read_config(arguments.config), arguments.check)
    except (Trouble, SilenceError, OSError) as error:
        say(plain(error))
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
