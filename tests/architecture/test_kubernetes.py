"""The manifests as kubectl renders them: Kubernetes would take them, nothing dangles, and every pod is confined."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from portal import env
from portal.env import ROOT
from tests.architecture.deployments import KUBERNETES, SERVICES, Manifest, container, pods, render
from tests.architecture.test_settings import DOCUMENTED

pytestmark = pytest.mark.peers

OVERLAYS = ("overlays/small", "overlays/large", "sealed-months", "sealed-months-bucket", "site")
OLDEST, NEWEST = "1.31.0", kubernetes_validate.latest_version()
LONG_RUNNING = {"Deployment", "StatefulSet"}


def of_kind(overlay: str, *kinds: str) -> dict[str, Manifest]:
    return {item["metadata"]["name"]: item for item in render(overlay) if item["kind"] in kinds}


def named(value: object, key: str) -> list[Any]:
    """Every value below that key, at whatever depth."""
    if isinstance(value, list | tuple):
        return [hit for item in value for hit in named(item, key)]
    if not isinstance(value, dict):
        return []
    return [hit for name, item in value.items() for hit in ([item] if name == key else named(item, key))]


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    exact = selector.get("matchLabels", {}).items() <= labels.items()
    return exact and all(
        rule["operator"] == "In" and labels.get(rule["key"]) in rule["values"]
        for rule in selector.get("matchExpressions", [])
    )


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_kubernetes_would_take_it(overlay: str, version: str) -> None:
    for manifest in render(overlay):
        kubernetes_validate.validate(manifest, version, strict=True)


def test_the_schemas_refuse_what_kubernetes_would_refuse() -> None:
    (web,) = [
        item
        for item in render(OVERLAYS[0])
        if item["kind"] == "Service" and item["metadata"]["name"] == "web"
    ]
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(web | {"spec": web["spec"] | {"selectr": {}}}, NEWEST, strict=True)


def test_the_guide_names_the_versions_that_were_looked_at() -> None:
    text = (ROOT / "docs/how-to/install-on-kubernetes.md").read_text()
    assert f"Kubernetes {OLDEST[:-2]} to {NEWEST[:-2]}" in text


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_everything_is_in_its_namespace_and_is_there_once(overlay: str) -> None:
    keys = [(item["kind"], item["metadata"]["name"]) for item in render(overlay)]
    assert len(keys) == len(set(keys))
    assert {item["metadata"].get("namespace") for item in render(overlay) if item["kind"] != "Namespace"} == {
        "clustertab"
    }


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_nothing_refers_to_what_is_not_there(overlay: str) -> None:
    manifests = render(overlay)
    templates = pods(manifests)
    labels = [template["metadata"]["labels"] for template in templates.values()]
    maps = {ref["name"] for ref in named(manifests, "configMapRef") + named(manifests, "configMap")}
    assert maps == set(of_kind(overlay, "ConfigMap"))
    claims = {claim["claimName"] for claim in named(manifests, "persistentVolumeClaim")}
    assert claims == set(of_kind(overlay, "PersistentVolumeClaim"))
    for service in of_kind(overlay, "Service").values():
        assert any(service["spec"]["selector"].items() <= own.items() for own in labels)
    for policy in of_kind(overlay, "NetworkPolicy", "PodDisruptionBudget").values():
        selector = policy["spec"].get("podSelector") or policy["spec"].get("selector") or {}
        assert any(selects(selector, own) for own in labels), policy["metadata"]["name"]
    for scaler in of_kind(overlay, "HorizontalPodAutoscaler").values():
        deployment = of_kind(overlay, "Deployment")[scaler["spec"]["scaleTargetRef"]["name"]]
        assert "replicas" not in deployment["spec"]  # else each `apply` would set them back


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_secret_is_in_a_manifest(overlay: str) -> None:
    """Pods name the Secrets that the guide has operators make, and nothing else."""
    guide = secrets_of_the_guide()
    assert of_kind(overlay, "Secret") == {}
    refs = named(render(overlay), "secretRef") + named(render(overlay), "secretKeyRef")
    assert {"clustertab", "clustertab-owner"} <= {ref["name"] for ref in refs} <= set(guide)
    for ref in named(render(overlay), "secretKeyRef"):
        assert ref["key"] in guide[ref["name"]]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_each_pod_is_confined_and_bounded(overlay: str) -> None:
    for name, template in pods(render(overlay)).items():
        spec, only = template["spec"], container(template)
        assert spec["automountServiceAccountToken"] is False, name
        assert spec["enableServiceLinks"] is False, name
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["runAsUser"] > 0, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert only["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, name
        for bound in ("requests", "limits"):
            assert set(only["resources"][bound]) == {"cpu", "memory"}, name
        for volume in spec["volumes"]:
            kind = next(key for key in volume if key != "name")
            assert kind in {"emptyDir", "persistentVolumeClaim", "configMap"}, name
            assert kind != "emptyDir" or "sizeLimit" in volume["emptyDir"], name


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_each_process_that_stays_up_has_probes_and_what_runs_once_ends(overlay: str) -> None:
    for name, item in of_kind(overlay, *LONG_RUNNING).items():
        only = container(item["spec"]["template"])
        assert "livenessProbe" in only, name
        assert {"startupProbe", "readinessProbe"} & set(only), name
    for name, item in of_kind(overlay, "Job", "CronJob").items():
        spec = item["spec"].get("jobTemplate", item)["spec"]
        assert "backoffLimit" in spec, name
        assert spec["template"]["spec"]["restartPolicy"] in {"OnFailure", "Never"}, name


def test_on_many_nodes_each_process_outlives_the_loss_of_one() -> None:
    overlay = "overlays/large"
    deployments = of_kind(overlay, "Deployment")
    assert of_kind(overlay, "StatefulSet") == {}
    scaled = {
        name: item["spec"]["minReplicas"]
        for name, item in of_kind(overlay, "HorizontalPodAutoscaler").items()
    }
    for name, deployment in deployments.items():
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        budgets = of_kind(overlay, "PodDisruptionBudget").values()
        own_budgets = [b["spec"] for b in budgets if selects(b["spec"]["selector"], labels)]
        assert [spec["maxUnavailable"] for spec in own_budgets] == [1], name
        assert deployment["spec"]["template"]["spec"]["topologySpreadConstraints"], name
        replicas = scaled.get(name) or deployment["spec"].get("replicas", 1)
        assert replicas == 1 if name == "scheduler" else replicas >= 2, name


def test_on_one_node_each_process_runs_once() -> None:
    for name, item in of_kind("overlays/small", *LONG_RUNNING).items():
        assert item["spec"].get("replicas", 1) == 1, name


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_selector_of_the_guide_brings_the_migration_alone(overlay: str) -> None:
    text = (ROOT / "docs/how-to/install-on-kubernetes.md").read_text()
    (selector,) = re.findall(r"--selector app\.kubernetes\.io/component=(\S+)", text)
    kinds = [
        item["kind"]
        for item in render(overlay)
        if item["metadata"].get("labels", {}).get("app.kubernetes.io/component") == selector
    ]
    assert kinds == ["Job"]


def copied(site: Path, name: str, old: str, new: str) -> str:
    """The site with one change in one of its files, as an operator makes it."""
    shutil.copytree(KUBERNETES.parent, site)
    path = site / "kubernetes" / "site" / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    return str(path.parent)


def test_a_change_of_settings_replaces_processes_and_leaves_the_job_that_cannot_be_changed(
    tmp_path: Path,
) -> None:
    changed = copied(tmp_path / "deploy", "settings.env", "EMAIL_FROM=Billing", "EMAIL_FROM=Accounts")
    before, after = pods(render("site")), pods(render(changed))
    assert {name for name in before if before[name] == after[name]} == {"migrate", "postgres", "redis"}


def test_the_guide_has_the_server_take_all_connections_of_many_nodes() -> None:
    text = (ROOT / "docs/how-to/install-on-kubernetes.md").read_text()
    overlay = "overlays/large"
    scalers = of_kind(overlay, "HorizontalPodAutoscaler").items()
    scaled = {name: item["spec"]["maxReplicas"] for name, item in scalers}
    lasting, added = dict[str, int](), 0
    for name, item in of_kind(overlay, "Deployment").items():
        own = connections(container(item["spec"]["template"]))
        replicas = scaled.get(name) or item["spec"].get("replicas", 1)
        lasting[name] = replicas * own
        if "strategy" not in item["spec"]:  # a quarter more, rounded up, while pods are replaced
            added += math.ceil(replicas / 4) * own
    web, scheduler = lasting.pop("web"), lasting.pop("scheduler")
    assert f"open {web} in all, and the workers {sum(lasting.values())}." in text
    assert f"up to {added} more while" in text
    jobs = len(of_kind(overlay, "Job", "CronJob"))
    (most,) = re.findall(r"max_connections = (\d+)", text)
    needed = web + scheduler + sum(lasting.values()) + added + jobs
    assert needed <= int(most) - 3  # which PostgreSQL keeps for superusers


def connections(only: dict[str, Any]) -> int:
    """As many as the processes of one pod open: a pool in each of the web, one in each child of a worker."""
    words, own = only["command"], {entry["name"]: entry["value"] for entry in only.get("env", [])}
    if "--concurrency" in words:
        return int(words[words.index("--concurrency") + 1])
    return int(own.get("WEB_CONCURRENCY", 1)) * int(own.get("DATABASE_POOL", 1))


def open_ports(overlay: str, name: str, direction: str) -> set[int]:
    labels = pods(render(overlay))[name]["metadata"]["labels"]
    return {
        port["port"]
        for policy in of_kind(overlay, "NetworkPolicy").values()
        if selects(policy["spec"]["podSelector"], labels)
        for rule in policy["spec"].get(direction, [])
        for port in rule["ports"]
    }


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_pods_reach_what_they_need_and_nothing_else(overlay: str) -> None:
    policies = of_kind(overlay, "NetworkPolicy")
    assert policies["nothing-else"]["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    servers, clusters, mail = {53, 4318, 5432, 6379}, {443, 6443, 6820, 9090}, {25, 465, 587}
    reach = {
        "web": servers | clusters,
        "worker-pull": servers | clusters,
        "worker-collect": servers | clusters,
        "manage": servers | clusters,
        "worker-mail": servers | clusters | mail,
        "worker-webhooks": servers | {443},
        "postgres": set(),
        "redis": set(),
    }
    if overlay == "sealed-months-bucket":
        reach |= dict.fromkeys(("worker-rate", "worker-documents", "backup"), servers | {443})
    listening = {"web": {8000}, "postgres": {5432}, "redis": {6379}}
    for name in pods(render(overlay)):
        assert open_ports(overlay, name, "egress") == reach.get(name, servers), name
        assert open_ports(overlay, name, "ingress") == listening.get(name, set()), name


def test_with_one_more_file_every_process_that_has_settings_can_report_errors(tmp_path: Path) -> None:
    site = copied(
        tmp_path / "deploy", "kustomization.yaml", "[ingress.yaml]", "[ingress.yaml, error-reports.yaml]"
    )
    policies = of_kind(site, "NetworkPolicy")
    kubernetes_validate.validate(policies["error-reports"], NEWEST, strict=True)
    anywhere = policies["clusters-and-payments"]["spec"]["egress"][0]["to"]
    assert policies["error-reports"]["spec"]["egress"][0]["to"] == anywhere
    templates = pods(render(site))
    settled = {name for name in templates if named(container(templates[name]), "configMapRef")}
    assert {name for name in templates if 443 in open_ports(site, name, "egress")} == settled
    (public,) = [  # what tenants choose stays outside
        policy["spec"]["egress"][0]["to"]
        for policy in policies.values()
        if selects(policy["spec"]["podSelector"], templates["worker-webhooks"]["metadata"]["labels"])
        and 443 in {port["port"] for rule in policy["spec"].get("egress", []) for port in rule["ports"]}
    ]
    assert "10.0.0.0/8" in public[0]["ipBlock"]["except"]


def secrets_of_the_guide() -> dict[str, set[str]]:
    """The names in each file of secrets that the guide writes."""
    text = (ROOT / "docs/how-to/install-on-kubernetes.md").read_text()
    files = re.findall(r"cat > (\S+)\.env <<END\n(.*?)^ *END$", text, re.MULTILINE | re.DOTALL)
    return {name: set(re.findall(r"^ *([A-Z_]+)=", body, re.MULTILINE)) for name, body in files}


def test_the_secrets_of_the_guide_are_those_that_compose_needs() -> None:
    guide = secrets_of_the_guide()
    needed = {
        name
        for service in ("web", "migrate", "postgres")
        for name, value in SERVICES[service]["environment"].items()
        if ":?set it in .env}" in value
    }
    assert needed <= {name for names in guide.values() for name in names}
    assert guide["clustertab"] | guide["clustertab-owner"] <= DOCUMENTED


@pytest.mark.parametrize("page", ["install-on-kubernetes", "install-with-systemd"])
def test_the_commands_of_the_guide_write_secrets_that_are_accepted(page: str, tmp_path: Path) -> None:
    text = (ROOT / f"docs/how-to/{page}.md").read_text()
    (block,) = re.findall(r"^   ```\n(   umask 077\n.*?)^   ```$", text, re.MULTILINE | re.DOTALL)
    script = re.sub(r"^   ", "", block, flags=re.MULTILINE).replace("/etc/clustertab", ".")
    subprocess.run(["bash", "-euc", script], cwd=tmp_path, check=True, timeout=60)
    files = sorted(tmp_path.glob("*.env"))
    lines = [line for path in files for line in path.read_text().splitlines()]
    environ = dict(line.replace('"', "").split("=", 1) for line in lines)
    settings = env.read(environ)
    assert settings.secret_keys
    assert settings.database_url
    assert settings.database_owner_url
    assert all(path.stat().st_mode & 0o077 == 0 for path in files)
    passwords = [
        env.database(url, pool=0)["PASSWORD"] for url in (settings.database_url, settings.database_owner_url)
    ]
    if page == "install-on-kubernetes":
        assert passwords == [environ["CLUSTERTAB_PASSWORD"], environ["CLUSTERTAB_OWNER_PASSWORD"]]
    assert len(set(passwords)) == 2
