"""Every panel's expression on a real Prometheus, against what really was."""

from __future__ import annotations

import http.server
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from clusters.connectors.prometheus.nodes import PRODUCT
from clusters.connectors.prometheus.options import LabelNames, PrometheusOptions, Utilisation
from portal.ops.grafana.dashboards import Json, billing, cluster
from tests.integration import promql
from tests.integration.prom_lab import Lab, bare

HOUR = 3600
QUIET = 95  # seconds around a moment in which no pod comes or goes: three scrapes
BLOCK = 600  # seconds in which the lab's utilisation stays the same
MOMENTS = 16


def expressions(dashboard: Json, title: str) -> list[str]:
    (panel,) = [panel for panel in dashboard["panels"] if panel["title"] == title]
    return [target["expr"] for target in panel["targets"]]


def expression(title: str, options: PrometheusOptions | None = None) -> str:
    """Of the only one of that panel."""
    (query,) = expressions(cluster(options or PrometheusOptions()), title)
    return query


def holders(lab: Lab, at: int) -> list[dict[str, Any]]:
    """Pods that hold devices by their request."""
    return [
        pod
        for pod in lab.truth["pods"]
        if pod["requested"] and pod["node"] and pod["scheduled"] <= at < (pod["ended"] or lab.end)
    ]


def moments(lab: Lab) -> list[int]:
    """Spread over the lab's days, away from outages and from every pod's coming and going."""
    edges = [
        edge
        for pod in lab.truth["pods"]
        for edge in (pod["created"], pod["scheduled"], pod["ended"], pod["removed"])
        if edge is not None
    ]
    edges += [edge for node in lab.truth["nodes"].values() for edge in (node["t0"], node["t1"])]
    outages = [*lab.truth["server_down"], *lab.truth["ksm_down"]]
    candidates = [
        at
        for at in range(lab.base + 2 * HOUR + 300, lab.end - HOUR, BLOCK)
        if not any(at - QUIET <= edge <= at + 5 for edge in edges)
        and not any(since <= at <= until + 300 for since, until in outages)
    ]
    assert len(candidates) > MOMENTS
    return candidates[:: len(candidates) // MOMENTS]


def summed(pairs: list[tuple[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for name, value in pairs:
        sums[name] += value
    return dict(sums)


def test_allocation_is_what_it_really_was(pushed_lab: Lab) -> None:
    lab = pushed_lab
    for at in moments(lab):
        pods = holders(lab, at)
        assert promql.values(lab.url, expression("Allocated by namespace"), at, by="namespace") == summed(
            [(pod["namespace"], pod["gpus"]) for pod in pods]
        ), at
        assert promql.values(lab.url, expression("Allocated by model"), at, by=PRODUCT) == summed(
            [(pod["product"], pod["gpus"]) for pod in pods]
        ), at
        (whole,) = promql.instant(lab.url, expression("Allocated"), at)
        assert float(whole["value"][1]) == sum(pod["gpus"] for pod in pods)
        rows = promql.instant(lab.url, expression("Pods that hold devices"), at)
        assert {row["metric"]["uid"] for row in rows} == {pod["uid"] for pod in pods}


def test_the_first_two_hours_are_the_published_three_two_and_two(pushed_lab: Lab) -> None:
    allocation = promql.values(
        pushed_lab.url, expression("Allocated by namespace"), pushed_lab.base + HOUR, by="namespace"
    )
    assert allocation == {"bu-a": 3, "bu-b": 2, "bu-c": 2}
    (idle,) = promql.instant(pushed_lab.url, expression("Idle"), pushed_lab.base + HOUR)
    assert idle["value"][1] == "49"


def test_idle_devices_are_those_that_nobody_holds(pushed_lab: Lab) -> None:
    lab = pushed_lab
    for at in moments(lab):
        there = [
            (node["product"], node["count"])
            for node in lab.truth["nodes"].values()
            if node["t0"] <= at < node["t1"]
        ]
        allocations = [(pod["product"], -pod["gpus"]) for pod in holders(lab, at)]
        assert promql.values(lab.url, expression("Idle by model"), at, by=PRODUCT) == summed(
            there + allocations
        ), at
        (whole,) = promql.instant(lab.url, expression("Devices"), at)
        assert float(whole["value"][1]) == sum(count for _, count in there)
        one = promql.values(lab.url, expression("Idle by model"), at, by=PRODUCT, namespace="vision")
        assert one == summed(there + allocations), "the chosen namespaces do not make others' devices idle"


def test_devices_are_as_busy_as_they_really_were(pushed_lab: Lab) -> None:
    lab = pushed_lab
    compared = 0
    for at in moments(lab):
        # The slices of a100-1 do not say whose they are.
        pods = [pod for pod in holders(lab, at) if pod["util"] is not None and pod["node"] != "a100-1"]
        busy = 1.1 if (at // BLOCK) % 2 else 0.9
        devices = summed([(pod["namespace"], pod["gpus"]) for pod in pods])
        worked = summed([(pod["namespace"], pod["gpus"] * round(pod["util"] * busy, 6)) for pod in pods])
        shares = promql.values(lab.url, expression("Busy by namespace"), at, by="namespace")
        assert shares == pytest.approx({name: worked[name] / devices[name] for name in devices}, abs=1e-9), at
        compared += len(shares)
    assert compared > MOMENTS


def test_a_percentage_is_divided_and_a_named_metric_is_the_only_one(pushed_lab: Lab) -> None:
    at = pushed_lab.base + 20 * HOUR
    percent = PrometheusOptions(utilisation=Utilisation(metric="DCGM_FI_DEV_GPU_UTIL"))
    (ratio,) = [
        v
        for v in promql.values(pushed_lab.url, expression("Busy by namespace"), at, by="namespace").items()
        if v[0] == "nlp"
    ]
    shares = promql.values(pushed_lab.url, expression("Busy by namespace", percent), at, by="namespace")
    assert 0 < shares["nlp"] <= 1
    assert "PROF" not in expression("Busy by namespace", percent)
    assert shares["nlp"] == pytest.approx(
        ratio[1], abs=0.2
    )  # of other devices too: slices tell no percentage


def test_queues_hold_what_their_pods_hold(pushed_lab: Lab) -> None:
    lab = pushed_lab
    for at in moments(lab):
        for scheduler, label, ask in zip(
            ("kueue", "volcano", "kai"),
            ("cluster_queue", "queue_name", "queue_name"),
            expressions(cluster(PrometheusOptions()), "Devices by queue"),
            strict=True,
        ):
            allocations = [
                (pod["queue"].partition("/")[2], pod["fraction"] or pod["gpus"])
                for pod in lab.truth["pods"]
                if (pod["queue"] or "").startswith(scheduler)
                and (pod["resource"] == "nvidia_com_gpu" or pod["fraction"])
                and pod["scheduled"] <= at < (pod["ended"] or lab.end)
            ]
            devices = promql.values(lab.url, ask, at, by=label)
            assert {queue: value for queue, value in devices.items() if value} == summed(allocations), (
                at,
                scheduler,
            )


def test_what_is_chosen_narrows_the_panels(pushed_lab: Lab) -> None:
    lab, at = pushed_lab, pushed_lab.base + 20 * HOUR
    chosen = promql.values(
        lab.url, expression("Allocated by namespace"), at, by="namespace", namespace="(nlp|bu-a)"
    )
    assert chosen == {"bu-a": 3, "nlp": sum(p["gpus"] for p in holders(lab, at) if p["namespace"] == "nlp")}
    model = "NVIDIA-H100-80GB-HBM3"
    assert set(promql.values(lab.url, expression("Allocated by model"), at, by=PRODUCT, model=model)) == {
        model
    }


def test_the_variables_offer_what_there_is(pushed_lab: Lab) -> None:
    variables = {v["name"]: v for v in cluster(PrometheusOptions())["templating"]["list"]}
    at = pushed_lab.base + 30 * HOUR
    offered = promql.values(pushed_lab.url, variables["namespace"]["query"]["query"], at, by="namespace")
    assert {"bu-a", "bu-b", "bu-c", "nlp"} <= set(offered)
    models = promql.instant(pushed_lab.url, variables["model"]["query"]["query"], at)
    assert "NVIDIA-L4" in {series["metric"][PRODUCT] for series in models}


@pytest.mark.parametrize(
    "options",
    [
        PrometheusOptions(),
        PrometheusOptions(matcher='job=~"kube-state-metrics|nvidia.*|kueue|volcano|kai"'),
        PrometheusOptions(
            labels=LabelNames(namespace="namespace", pod="pod", container="container", node="node")
        ),
        PrometheusOptions(utilisation=Utilisation(matcher='job="nvidia-dcgm-exporter"')),
    ],
    ids=["plain", "matcher", "labels", "utilisation"],
)
def test_every_panel_draws_three_days(pushed_lab: Lab, options: PrometheusOptions) -> None:
    """Over outages, a rollout, doubled replicas, and a node that goes: no panel fails, and each draws something."""
    times = {"start": pushed_lab.base, "end": pushed_lab.end, "step": 900}
    for panel in cluster(options)["panels"]:
        for target in panel["targets"]:
            query = promql.filled(target["expr"])
            assert promql.query_data(pushed_lab.url, "query_range", query=query, **times)["result"], panel[
                "title"
            ]


def test_a_matcher_stands_in_every_selector(pushed_lab: Lab) -> None:
    nothing = cluster(PrometheusOptions(matcher='cluster="elsewhere"'))
    for panel in nothing["panels"]:
        for target in panel["targets"]:
            results = promql.instant(pushed_lab.url, target["expr"], pushed_lab.base + HOUR)
            assert [series for series in results if series["value"][1] != "0"] == [], panel["title"]


RENAMED = """\
kube_pod_container_resource_requests{namespace="bio",pod="a",uid="1",node="n1",resource="nvidia_com_gpu"} 4
kube_pod_status_phase{namespace="bio",pod="a",uid="1",phase="Running"} 1
kube_node_status_allocatable{node="n1",resource="nvidia_com_gpu"} 8
kube_node_labels{node="n1",label_nvidia_com_gpu_product="NVIDIA-L4"} 1
DCGM_FI_DEV_GPU_UTIL{gpu="0",uuid="GPU-1",hostname="n1",namespace="bio",pod="a",container="main"} 50
DCGM_FI_DEV_GPU_UTIL{gpu="1",uuid="GPU-2",hostname="n1",namespace="bio",pod="a",container="main"} 100
DCGM_FI_DEV_GPU_UTIL{gpu="2",uuid="GPU-3",hostname="n1"} 0
"""


def test_labels_that_scraping_renamed_are_read_under_their_own_names(pushed_lab: Lab) -> None:
    """As charts ship it: honorLabels is off, and the exporter's own namespace, pod and node stand in the way."""
    with serving(RENAMED) as target:
        own = "{namespace: monitoring, pod: exporter, container: exporter, node: n9}"
        config = (
            "scrape_configs:\n- {job_name: kube, scrape_interval: 1s, scrape_timeout: 1s, static_configs: "
            f"[{{targets: ['{target}'], labels: {own}}}]}}\n"
        )
        with bare(pushed_lab, config=config) as url:
            promql.eventually(url, "kube_node_labels")
            assert promql.values(url, expression("Allocated by namespace"), by="namespace") == {"bio": 4}
            assert promql.values(
                url, expression("Allocated by namespace"), by="namespace", namespace="bio"
            ) == {"bio": 4}
            assert promql.instant(url, expression("Allocated by namespace"), namespace="monitoring") == []
            assert promql.values(url, expression("Idle by model"), by=PRODUCT) == {"NVIDIA-L4": 4}
            assert promql.values(url, expression("Busy by namespace"), by="namespace") == {"bio": 0.75}
            names = LabelNames(
                namespace="exported_namespace",
                pod="exported_pod",
                container="exported_container",
                node="exported_node",
            )
            query = expression("Allocated by namespace", PrometheusOptions(labels=names))
            assert promql.values(url, query, by="namespace") == {"bio": 4}


@contextmanager
def serving(text: str) -> Iterator[str]:
    """Host and port of an exporter that says this."""

    class Exporter(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text.encode())

        log_message: Callable[..., None] = lambda *_: None

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Exporter) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_the_panels_of_billing_ask_for_nothing_else_than_what_we_tell() -> None:
    from tests.integration.test_metrics_scraped import OURS

    for panel in billing()["panels"]:
        for target in panel["targets"]:
            assert any(name in target["expr"] for name in OURS), panel["title"]
