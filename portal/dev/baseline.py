"""`./run baseline`: the one set of migrations that a schema without a history has, written from the models.

Until release 1.0 a change of a model edits this set: `write` makes it anew, and `--check` says whether it still is
what the models say, and small, and what a database of it costs. Every field, index and constraint stands
inside of its table's CreateModel, in an order in which each table refers to those above it alone.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

from django.apps import AppConfig, apps
from django.db import models
from django.db.migrations import CreateModel, Migration
from django.db.migrations.state import ModelState
from django.db.migrations.writer import MigrationWriter

from portal.dev.embedded.postgres import Postgres
from portal.env import ROOT
from portal.ops.schema import APPS
from portal.schema.operations import CreateModels

NAME = "0001_initial"
MOST_FILES = 8
MOST_LINES = 4_000


def write() -> list[Path]:
    """Replace the migrations of our applications; returns the files."""
    return [_write(apps.get_app_config(label)) for label in APPS]


def text(config: AppConfig) -> str:
    """The application's migration as it should stand in its file, without the line that dates it."""
    tables = _in_order(config)
    needed = {other._meta.app_label for model in tables for other in _references(model)} - {config.label}
    migration = type(
        "Migration",
        (Migration,),
        {
            "initial": True,
            "dependencies": [(label, _first(label)) for label in sorted(needed)],
            "operations": [CreateModels([_creation(model) for model in tables])],
        },
    )(NAME, config.label)
    return MigrationWriter(migration, include_header=False).as_string()


def refusals() -> Iterator[str]:
    """What is wrong with the files, each with what to do; nothing where all is well."""
    files = [
        path for label in APPS for path in sorted(_directory(apps.get_app_config(label)).glob("[0-9]*.py"))
    ]
    if len(files) > MOST_FILES:
        yield f"There are {len(files)} migrations, and {MOST_FILES} is the most: ./run baseline makes one of each set."
    if (lines := sum(len(path.read_text().splitlines()) for path in files)) > MOST_LINES:
        yield f"The migrations have {lines:,} lines, and {MOST_LINES:,} is the most."
    for label in APPS:
        config = apps.get_app_config(label)
        path = _directory(config) / f"{NAME}.py"
        if not path.exists() or path.read_text() != text(config):
            yield f"The migration of {label} is not what its models say: ./run baseline writes it anew."


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


def _directory(config: AppConfig) -> Path:
    return Path(config.path) / "migrations"


def _write(config: AppConfig) -> Path:
    directory = _directory(config)
    directory.mkdir(exist_ok=True)
    for left in directory.glob("[0-9]*.py"):
        left.unlink()
    path = directory / f"{NAME}.py"
    path.write_text(text(config))
    (directory / "__init__.py").touch()
    return path


def _first(label: str) -> str:
    return NAME if label in APPS else "__first__"


def _creation(model: type[models.Model]) -> CreateModel:
    state = ModelState.from_model(model)
    state.options.pop("triggers", None)  # installed after migrating (portal.ops.schema)
    return CreateModel(state.name, list(state.fields.items()), state.options, state.bases, state.managers)


def _references(model: type[models.Model]) -> set[type[models.Model]]:
    """The models that its columns refer to."""
    return {
        field.remote_field.model
        for field in model._meta.get_fields()
        if field.concrete and field.remote_field
    }


def _in_order(config: AppConfig) -> list[type[models.Model]]:
    """Its tables, each below those that it refers to; raises CycleError where two refer to each other."""
    own = list(config.get_models())
    graph: TopologicalSorter[str] = TopologicalSorter()
    for model in own:
        others = _references(model) & set(own) - {model}
        graph.add(model.__name__, *sorted(other.__name__ for other in others))
    named = {model.__name__: model for model in own}
    return [named[name] for name in graph.static_order()]


def main(arguments: list[str]) -> int:
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
    django.setup()
    if arguments != ["--check"]:
        for path in write():
            sys.stdout.write(f"{path.relative_to(ROOT)}\n")
        return 0
    sentences = list(refusals())
    sys.stdout.write("\n".join([*sentences, f"A database costs {seconds():.1f} s of the processor."]) + "\n")
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
