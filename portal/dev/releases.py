"""The schema's history since 1.0.0: `./run migration` goes on with it, `./run release` closes a part of it for good.

What was released stays as it was, file by file: a database of it gets what came later, and comes to the same as a new
one (tests/integration/test_upgrade.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import tomllib
import warnings
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

from django.apps import apps
from django.core.management import call_command

from portal.dev.embedded.postgres import Postgres
from portal.env import ROOT
from portal.ops import schema
from portal.schema.levels import CURRENT
from portal.schema.upgrade import DIRECTORY as UPGRADES

RELEASES = ROOT / "portal" / "schema" / "releases"
"""A file for each: its level, the digest of its schema, and those of its migrations."""


def release() -> Path:
    """Write down what the schema of this version is; returns the file. Raises ValueError where that is done."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    path = RELEASES / f"{version}.json"
    if path.exists():
        raise ValueError(f"{version} is released: give pyproject.toml the next version.")
    content = {"level": CURRENT.number, "digest": schema.digest(), "files": _files()}
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


def refusals() -> Iterator[str]:
    """What is wrong with the history, each with what to do; nothing where all is well."""
    digests = _files()
    for path in sorted(RELEASES.glob("*.json")):
        released = json.loads(path.read_text())
        for name, digest in released["files"].items():
            if digests.get(name) != digest:
                yield (
                    f"{name} was released with {path.stem} and is another now: bring it back, and change the schema by "
                    "a migration of its own."
                )
        if released["level"] == CURRENT.number and released["digest"] != schema.digest():
            yield (
                f"The schema is not that of {path.stem} any more, and has its level: add one to "
                "portal/schema/levels.py, and a migration that leads there (docs/architecture.md)."
            )
    out = StringIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # no database need be there, whose history it would look at
            call_command("makemigrations", check=True, dry_run=True, stdout=out, stderr=out)
    except SystemExit:
        yield f"The models say what no migration makes: ./run migration NAME writes it.\n{out.getvalue().strip()}"


def seconds() -> float:
    """What a complete database costs from nothing, in seconds of the processor: of `migrate` and of the server."""
    with tempfile.TemporaryDirectory() as directory:
        server = Postgres(Path(directory), volatile=True)
        with server:
            environ = os.environ | {
                "CLUSTERTAB_HOME": directory,
                "DATABASE_URL": server.url(),
                "DATABASE_OWNER_URL": server.owner_url(),
                "SECRET_KEY": "none",
            }
            environ["CLUSTERTAB_SECRET_KEYS"] = environ["REDIS_URL"] = ""
            if environ.pop("PYTHONDONTWRITEBYTECODE", None):  # compiling 2,000 modules is no part of a schema
                environ.setdefault("PYTHONPYCACHEPREFIX", str(Path(sys.prefix) / "bytecode"))
            before = resource.getrusage(resource.RUSAGE_CHILDREN), _server_seconds(server)
            subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=ROOT, env=environ, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN), _server_seconds(server)
    own = after[0].ru_utime + after[0].ru_stime - before[0].ru_utime - before[0].ru_stime
    return own + after[1] - before[1]


def _server_seconds(server: Postgres) -> float:
    """Of the postmaster and of its processes that have ended."""
    fields = Path(f"/proc/{server.main_process()}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _files() -> dict[str, str]:
    """By its path the digest of each migration, and of each file of SQL that some of them run."""
    paths = [
        path
        for label in schema.APPS
        for path in (Path(apps.get_app_config(label).path) / "migrations").glob("[0-9]*.py")
    ]
    paths += UPGRADES.glob("*.sql")
    return {
        str(path.relative_to(ROOT)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(paths)
    }


def main(arguments: list[str]) -> int:
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
    django.setup()
    match arguments:
        case ["migration", name]:
            call_command("makemigrations", name=name)
        case ["release"]:
            try:
                sys.stdout.write(f"{release().relative_to(ROOT)}\n")
            except ValueError as error:
                sys.exit(str(error))
        case ["check"]:
            sentences = list(refusals())
            sys.stdout.write(
                "\n".join([*sentences, f"A database costs {seconds():.1f} s of the processor."]) + "\n"
            )
            return 1 if sentences else 0
        case _:
            sys.exit("Say `./run migration NAME`, with a name such as seals_of_months, or `./run release`.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
