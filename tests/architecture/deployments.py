"""What docker-compose.yml, the manifests for Kubernetes and the units for systemd say, as their tests read it."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from portal.env import ROOT

KUBERNETES = ROOT / "deploy" / "kubernetes"
SYSTEMD = ROOT / "deploy" / "systemd"
PREFIX = "clustertab-portal-"
PROGRAMS = "/opt/clustertab/.venv/bin/"
Manifest = dict[str, Any]
Unit = dict[str, list[str]]

SERVICES: dict[str, Manifest] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]


@cache
def render(overlay: str) -> tuple[Manifest, ...]:
    """Every object of the overlay, as kubectl would apply it."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("no kubectl here: install Debian's kubernetes-client to render the manifests")
    done = subprocess.run(
        [kubectl, "kustomize", KUBERNETES / overlay], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return tuple(yaml.safe_load_all(done.stdout))


def written(*folders: str) -> Iterator[Manifest]:
    """Every object of the files, as somebody wrote it; needs no kubectl."""
    for folder in folders:
        for path in sorted((KUBERNETES / folder).glob("*.yaml")):
            if path.name == "kustomization.yaml":
                continue
            for document in yaml.safe_load_all(path.read_text()):
                yield from document["items"] if document.get("kind") == "List" else (document,)


def pod_template(manifest: Manifest) -> Manifest | None:
    """What pods of a Deployment, StatefulSet, Job or CronJob are made from."""
    spec = manifest.get("spec", {})
    template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
    return template if isinstance(template, dict) else None


def pods(manifests: tuple[Manifest, ...] | Iterator[Manifest]) -> dict[str, Manifest]:
    """The templates of pods by the names of what has them."""
    templates = ((manifest["metadata"]["name"], pod_template(manifest)) for manifest in manifests)
    return {name: template for name, template in templates if template is not None}


def container(template: Manifest) -> Manifest:
    """The only one of the pod."""
    (only,) = template["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def unit(path: Path) -> Unit:
    """Each name with its values in order; sections have no names in common here."""
    values: Unit = {}
    for line in path.read_text().splitlines():
        if line and line[0] not in "#[":
            name, _, value = line.partition("=")
            values.setdefault(name, []).append(value)
    return values


UNITS = {path.name.removeprefix(PREFIX): unit(path) for path in SYSTEMD.glob(f"{PREFIX}*.service")}
COMMON = unit(SYSTEMD / f"{PREFIX}.service.d" / "common.conf")


def commands(values: Unit) -> list[list[str]]:
    """What the unit starts, as words, without the place of the programs and with %% as systemd reads it."""
    lines = [line.replace("%%", "%") for line in values["ExecStart"]]
    assert all(line.startswith(PROGRAMS) for line in lines)
    return [shlex.split(line.removeprefix(PROGRAMS)) for line in lines]


def environment(values: Unit) -> dict[str, str]:
    return dict(word.split("=", 1) for line in values.get("Environment", []) for word in shlex.split(line))
