"""Test connection to a Prometheus: what is there, what is not, and what mends it."""

from __future__ import annotations

from typing import Any

from clusters.connectors.base import Secret
from clusters.connectors.clocks import utc
from clusters.connectors.findings import Finding, Level
from clusters.connectors.http import Endpoint
from clusters.connectors.prometheus import AccountFrom, Attribution, PrometheusLogin, PrometheusOptions
from clusters.connectors.prometheus.check import examine
from clusters.connectors.prometheus.client import PrometheusClient
from tests.contracts.prometheus_reading import HOUR, present
from tests.fakes.prometheus import Reply, Request, StandIn
from tests.integration.prom_lab import Lab


def findings_of(
    url: str, now: int, login: PrometheusLogin | None = None, **options: Any
) -> dict[str, Finding]:
    """By subject; where one has several findings, the last."""
    with PrometheusClient(Endpoint(base_url=url), login or PrometheusLogin(), clock=lambda: now) as client:
        return {
            finding.subject: finding for finding in examine(client, PrometheusOptions(**options), now=now)
        }


def test_a_cluster_that_can_be_billed_says_what_it_has(pushed_lab: Lab) -> None:
    now = pushed_lab.base + 30 * HOUR
    with present(pushed_lab.url, now) as url:
        findings = findings_of(url, now)
    assert {finding.level for finding in findings.values()} == {Level.OK}, findings
    assert findings["kube-state-metrics"].sentence.endswith("pods in the last hour, every 30 s.")
    devices = findings["Devices"].sentence
    assert "nvidia.com/gpu of a100-sxm4-40gb (1/7 of a GPU)" in devices
    assert "nvidia.com/mig-2g.10gb of a100-sxm4-40gb (2/7 of a GPU)" in devices
    assert "nvidia.com/gpu.shared of l4 (1/4 of a GPU)" in devices
    assert "nvidia.com/gpu of h100-80gb-hbm3" in devices
    assert findings["Account"].sentence == "A pod's account is its namespace."


def test_an_account_by_a_label_that_nothing_has_fails_with_the_flag(pushed_lab: Lab) -> None:
    now = pushed_lab.base + 30 * HOUR
    label = Attribution(source=AccountFrom.NAMESPACE_LABEL, label="label_billing_tenant")
    with present(pushed_lab.url, now) as url:
        assert findings_of(url, now, account=label)["Account"].level is Level.OK
        none = Attribution(source=AccountFrom.POD_LABEL, label="label_team")
        finding = findings_of(url, now, account=none)["Account"]
    assert finding.level is Level.FAIL
    assert finding.mend == "Start kube-state-metrics with --metric-labels-allowlist=pods=[…] for that label."


def test_a_matcher_that_fits_nothing_ends_the_look_with_a_sentence(pushed_lab: Lab) -> None:
    now = pushed_lab.base + 30 * HOUR
    with present(pushed_lab.url, now) as url:
        findings = findings_of(url, now, matcher='cluster="elsewhere"')
    assert findings["kube-state-metrics"].level is Level.FAIL
    assert "matcher" in findings["kube-state-metrics"].mend
    assert (
        findings["Everything else"].sentence
        == "Not checked, since kube-state-metrics did not answer as it should."
    )


def test_hours_with_an_outage_and_clocks_apart_are_told(pushed_lab: Lab) -> None:
    lab = pushed_lab
    now = lab.base + 30 * HOUR + 1800  # 7 minutes without kube-state-metrics lie in the hour before
    with (
        present(lab.url, now) as url,
        PrometheusClient(Endpoint(base_url=url), PrometheusLogin(), clock=lambda: 0) as client,
    ):
        findings = examine(client, PrometheusOptions(), now=now + 400)
    assert [finding.level for finding in findings[:2]] == [Level.FAIL, Level.WARN]
    assert findings[0].sentence.endswith(f"and ours says {utc(now + 400)}: it is 400 s behind ours.")
    assert "was not seen for" in findings[1].sentence


def test_who_is_not_let_in_reads_why() -> None:
    def answer(request: Request) -> Reply:
        return Reply(401, b"who are you")

    login = PrometheusLogin(bearer=Secret("a-bearer-token"))
    with StandIn(answer, now=0) as prometheus:
        findings = findings_of(prometheus.url, 0, login)
        elsewhere = findings_of(f"{prometheus.url}/elsewhere", 0, login)
    assert findings["kube-state-metrics"].level is Level.FAIL
    assert "401" in findings["kube-state-metrics"].sentence
    assert elsewhere["Address"].level is Level.FAIL
    assert (
        elsewhere["Everything else"].sentence == "Not checked, since Prometheus did not answer as it should."
    )
    assert "a-bearer-token" not in repr(findings)
