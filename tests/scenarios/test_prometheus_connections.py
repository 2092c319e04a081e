"""Op connects a Kubernetes cluster: what a file and the form take, what they refuse, and what nobody reads again."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from django.core.management import CommandError
from django.test import Client

from clusters import connection_test, sources
from clusters.connectors.base import Secret
from clusters.connectors.findings import Level
from clusters.connectors.prometheus import (
    KUEUE,
    AwsIdentity,
    AwsKeys,
    ChargeFrom,
    PrometheusConnector,
    Scope,
    Utilisation,
)
from clusters.models import Cluster, ClusterKind, Connection
from tests.builders import a_cluster, an_operator
from tests.scenarios.configuring import Op, run
from tests.scenarios.test_connections import all_rows
from tests.web.house import signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

PASSWORD = "basic-pass-word"
KUBE = """
[[cluster]]
name = "kube"
kind = "prometheus"
[cluster.connection]
url = "https://mimir.example.org/prometheus"
user = "4711"
password = "env:MIMIR_PASSWORD"
headers = { X-Scope-OrgID = "env:MIMIR_ORG" }
"""
OPTIONS = """
[cluster.connection.options]
matcher = 'cluster="kube"'
account_from = "pod label"
account_label = "label_kueue_x_k8s_io_cluster_queue_name"
charge_from = "started"
reservations = ["kai-resource-reservation"]
[cluster.connection.options.labels]
pod = "exported_pod"
[cluster.connection.options.shares.a100]
"1g.10gb" = "1/4"
[cluster.connection.options.models]
NVIDIA-H100-80GB-HBM3 = "h100"
[cluster.connection.options.parameters]
"replicaLabels[]" = ["replica"]
[cluster.connection.options.utilisation]
scope = "cluster"
metric = "DCGM_FI_PROF_SM_ACTIVE"
divisor = 100
matcher = 'job="dcgm"'
"""


@pytest.fixture
def op(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Op:
    monkeypatch.setenv("MIMIR_PASSWORD", PASSWORD)
    monkeypatch.setenv("MIMIR_ORG", "lab")
    return Op(tmp_path)


@pytest.fixture
def browser() -> Client:
    return signed_in(an_operator())


def connector() -> PrometheusConnector:
    source = sources.connect(Connection.objects.get(), clock=lambda: 0)
    assert isinstance(source, PrometheusConnector)
    return source


def test_a_file_says_how_a_kubernetes_cluster_is_read(op: Op) -> None:
    changes = op.applies(KUBE + OPTIONS)
    assert changes[0] == "cluster kube: new (kind prometheus, timezone UTC)"
    assert '"charge_from": "started"' in changes[1]
    assert op.applies(KUBE + OPTIONS) == ["Nothing to change."]
    with connector() as source:
        options = source.options
        assert (options.matcher, options.account, options.charge_from) == (
            'cluster="kube"',
            KUEUE,
            ChargeFrom.STARTED,
        )
        assert (options.labels.pod, options.shares) == ("exported_pod", {("a100", "1g.10gb"): (1, 4)})
        assert (options.models, options.parameters) == (
            {"NVIDIA-H100-80GB-HBM3": "h100"},
            {"replicaLabels[]": ["replica"]},
        )
        assert options.utilisation == Utilisation(
            scope=Scope.CLUSTER,
            metric="DCGM_FI_PROF_SM_ACTIVE",
            divisor=Decimal(100),
            matcher='job="dcgm"',
        )
    stored = Connection.objects.get()
    login = sources.prometheus_login(stored)
    assert (login.user, login.password, login.aws) == ("4711", Secret(PASSWORD), None)
    assert sources.endpoint(stored).headers == {"X-Scope-OrgID": Secret("lab")}
    assert PASSWORD not in all_rows()
    (change,) = op.applies(KUBE + '[cluster.connection.options]\nmatcher = ""\n')
    assert change.startswith("connection of kube: options ")


def test_keys_of_aws_rest_together_and_encrypted(op: Op, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET", "aws-secret-key")
    keys = 'aws = { region = "eu-central-1", access_key = "env:AWS_ID", secret_key = "env:AWS_SECRET" }\n'
    op.applies(KUBE.split("user =", maxsplit=1)[0] + keys)
    login = sources.prometheus_login(Connection.objects.get())
    assert login.aws == AwsKeys(
        region="eu-central-1", access_key="AKIAEXAMPLE", secret_key=Secret("aws-secret-key")
    )
    assert "aws-secret-key" not in all_rows()
    op.applies(KUBE.split("user =", maxsplit=1)[0] + 'aws = { region = "eu-central-1" }\n')
    assert sources.prometheus_login(Connection.objects.get()).aws == AwsIdentity("eu-central-1")
    op.applies(KUBE.split("user =", maxsplit=1)[0] + "aws = {}\n")
    assert not Connection.objects.get().aws


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('colour = "red"', "There is no option 'colour'; allowed: account_from, account_label, charge_from,"),
        ("matcher = 'cluster=kube'", "The matcher 'cluster=kube' is none: write it as cluster=\"x\""),
        ("matcher = 7", "The option matcher has to be text of one line, in quotes."),
        ('account_from = "pod"', "allowed: namespace, namespace label, pod label, queue."),
        ('account_from = "pod label"', "The option account_from is 'pod label': name it, as account_label."),
        ('account_label = "label_team"', "The option account_label needs account_from:"),
        ('labels = { pods = "x" }', "labels has no key 'pods'; allowed: namespace, pod, container, node."),
        ('labels = { pod = "a-b" }', "'a-b' is no label name"),
        ('charge_from = "created"', "The option charge_from is 'created'; allowed: scheduled, started."),
        ("resources = 'amd\"} or vector(1) #'", "The option resources is"),
        ('resources = "nvidia_com_(gpu"', "write a regular expression of names"),
        ('reservations = "kai"', "The option reservations has to be a list of texts."),
        ('shares = { a100 = { "1g.5gb" = "7/1" } }', 'write the part of a whole GPU as text, like "1/7".'),
        ("shares = { a100 = 1 }", "The option shares.a100 has to be a table."),
        ("models = { x = 2026-01-01 }", "The option models.x has to be text"),
        ("parameters = { dedup = true }", "The option parameters.dedup has to be text"),
        ('utilisation = "device"', "The option utilisation has to be a table."),
        ("utilisation = { span = 1 }", "has no key 'span'; allowed: divisor, matcher, metric, scope."),
        (
            'utilisation = { scope = "pod" }',
            "The option utilisation.scope is 'pod'; allowed: off, device, node, model, cluster.",
        ),
        (
            "utilisation = { divisor = 0.5 }",
            'The option utilisation.divisor has to be a number: 100, or as text "0.5".',
        ),
        ("utilisation = { divisor = 0 }", "The divisor of utilisation has to be above 0."),
        ('utilisation = { metric = "gpu util" }', "'gpu util' is no name of a metric"),
        (
            'utilisation = { metric = "gpu_busy" }',
            "It is not known what gpu_busy counts in: give the divisor",
        ),
        ("utilisation = { matcher = 'job=dcgm' }", "The matcher 'job=dcgm' is none"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused_by_its_name(op: Op, line: str, sentence: str) -> None:
    (refused,) = op.is_refused(f"{KUBE}\n[cluster.connection.options]\n{line}\n")
    assert refused.startswith('cluster "kube", connection: ')
    assert sentence in refused


@pytest.mark.parametrize(
    ("before", "instead", "sentence"),
    [
        ('user = "4711"', 'user = "4711"\ntoken = "env:MIMIR_ORG"', "More than one of user, token and AWS keys"),
        ('user = "4711"', "", "There is a password without a user."),
        ('user = "4711"', 'user = "4711"\nslurm_cluster = "x"', "which is for clusters of the kind 'slurm'"),
        ('kind = "prometheus"', 'kind = "slurm"', "has password, which is for clusters of the kind 'prometheus'"),
        ('kind = "prometheus"', "", "its kind has to be 'slurm' or 'prometheus' or 'gpustack'."),
        ('url = "https://mimir.example.org/prometheus"', "", "write where Prometheus listens."),
        ('password = "env:MIMIR_PASSWORD"', 'aws = { region = "eu", access_key = "env:MIMIR_PASSWORD" }',
         "access_key goes with secret_key; without both, the identity of the pod is used."),
        ('user = "4711"\npassword = "env:MIMIR_PASSWORD"', 'aws = { region = "evil.example:443/a" }',
         "'evil.example:443/a' is no region of AWS"),
    ],
)  # fmt: skip
def test_a_connection_that_contradicts_itself_is_refused(
    op: Op, before: str, instead: str, sentence: str
) -> None:
    refused = " ".join(op.is_refused(KUBE.replace(before, instead)))
    assert sentence in refused
    assert PASSWORD not in refused


def test_op_connects_one_with_the_form_of_its_kind(browser: Client) -> None:
    a_cluster("kube")
    page = browser.get("/operator/clusters/kube/").content.decode()
    assert "Connect to slurmrestd" in words(page)
    assert "/operator/clusters/kube/connection/?kind=prometheus" in page
    path = "/operator/clusters/kube/connection/?kind=prometheus"
    form = browser.get(path).content.decode()
    assert "Connect to Prometheus" in form
    assert "new_jwt_key" not in form
    form_data = {
        "base_url": "https://prom.example.org", "every": "300", "look_back": "48", "enabled": "on",
        "new_aws": "region: eu-central-1\naccess_key: AKIA\nsecret_key: aws-secret-key",
        "options": '{"account_from": "somewhere"}',
    }  # fmt: skip
    refused = browser.post(path, form_data).content.decode()
    assert "The option account_from is" in refused
    assert "aws-secret-key" not in refused
    assert Cluster.objects.get().kind == ClusterKind.IMPORT
    form_data["options"] = '{"charge_from": "started"}'
    for aws, sentence in (
        ("region: evil.example:443/a", "is no region of AWS"),
        ("access_key: AKIA", "as name: value; or region alone."),
    ):
        assert sentence in words(browser.post(path, form_data | {"new_aws": aws}).content.decode())
    answer = browser.post(path, form_data)
    assert answer.headers["Location"] == "/operator/clusters/kube/"
    assert Cluster.objects.get().kind == ClusterKind.PROMETHEUS
    with connector() as source:
        assert source.options.charge_from is ChargeFrom.STARTED
    shown = words(browser.get("/operator/clusters/kube/").content.decode())
    assert "Kubernetes over Prometheus at https://prom.example.org" in shown
    assert "Stored secrets AWS keys; entered" in shown
    assert "Slurm" not in shown.partition("Syncs")[0]
    assert "Test connection" in shown
    again = browser.get("/operator/clusters/kube/connection/").content.decode()
    assert "charge_from" in again
    assert "slurm_cluster" not in again


def test_the_administration_shows_a_connection_and_leads_to_its_form(op: Op, browser: Client) -> None:
    op.applies(KUBE + OPTIONS)
    stored = Connection.objects.get()
    path = f"/admin/clusters/connection/{stored.pk}/change/"
    shown = browser.get(path).content.decode()
    assert "charge_from: started<br>" in shown
    assert "shares a100 1g.10gb: 1/4" in shown
    assert '<a href="/operator/clusters/kube/" class="viewsitelink">View on portal</a>' in shown
    assert PASSWORD not in shown
    assert browser.post(path, {"base_url": "http://127.0.0.1:1"}).status_code == 403
    assert browser.get("/admin/clusters/connection/add/").status_code == 403


def test_what_does_not_answer_is_told_by_the_test_of_the_connection(op: Op) -> None:
    op.applies(KUBE.replace("https://mimir.example.org/prometheus", "http://127.0.0.1:9"))
    findings = connection_test.examine(cluster=Cluster.objects.get(), clock=lambda: 0)
    assert [finding.level for finding in findings] == [Level.FAIL, Level.WARN]
    assert "127.0.0.1:9" in findings[0].sentence
    none = connection_test.examine(cluster=a_cluster("bare", kind=ClusterKind.PROMETHEUS), clock=lambda: 0)
    assert none[0].sentence.endswith("docs/how-to/connect-kubernetes.md tells how.")


def test_without_its_api_server_nothing_is_acted_on(op: Op) -> None:
    op.applies(KUBE)
    with pytest.raises(CommandError, match="kube has no connection to its Kubernetes API server"):
        run("block_account", "kube", "vision")
