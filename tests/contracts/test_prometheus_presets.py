"""Presets: whose queue is the account, what the options mean, and what "Test connection" says of each."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.connectors.base import ConnectorError
from clusters.connectors.findings import Level
from clusters.connectors.prometheus import AccountFrom
from clusters.connectors.prometheus.option_parsing import options_from
from tests.contracts.prometheus_reading import HOUR, connector, findings_of, present, read, uid_of
from tests.integration.prom_lab import Lab

NOT_OF_PODS = (
    "The option account_from is of pods, which the preset netdata does not read; "
    "allowed with it: matcher, models, parameters, preset, tokens."
)


def stored_options(options: dict[str, Any]) -> dict[str, Any]:
    """The options as a connection keeps them, for `read`."""
    prometheus_options = options_from(options)
    return {name: getattr(prometheus_options, name) for name in ("preset", "account")}


@pytest.mark.parametrize(
    ("preset", "accounts"),
    [
        ("kueue", {"", "bio", "nlp", "vision"}),
        ("volcano", {"", "bio", "nlp", "vision"}),
        ("kai", {"", "nlp-q"}),
    ],
)
def test_a_pods_account_is_its_queue_of_that_scheduler_alone(
    pushed_lab: Lab,
    preset: str,
    accounts: set[str],
) -> None:
    facts, source = read(
        pushed_lab.url, pushed_lab.base, pushed_lab.end, **stored_options({"preset": preset})
    )

    queues = {pod["uid"]: pod["queue"] or "" for pod in pushed_lab.truth["pods"]}
    assert {fact.account for fact in facts} == accounts
    for fact in facts:
        scheduler, _, queue = queues[uid_of(fact)].partition("/")
        assert fact.queue == fact.account == (queue if scheduler == preset else "")
    assert any('went to the account ""' in note for note in source.reading.notes)


def test_the_account_stays_the_namespace_where_the_operator_says_so(pushed_lab: Lab) -> None:
    options = stored_options({"preset": "kueue", "account_from": "namespace"})

    facts, source = read(pushed_lab.url, pushed_lab.base, pushed_lab.end, **options)

    pods = {pod["uid"]: pod for pod in pushed_lab.truth["pods"]}
    for fact in facts:
        scheduler, _, queue = (pods[uid_of(fact)]["queue"] or "").partition("/")
        assert fact.account == pods[uid_of(fact)]["namespace"]
        assert fact.queue == (queue if scheduler == "kueue" else "")
    assert not any('went to the account ""' in note for note in source.reading.notes)


def test_a_preset_of_pods_takes_its_account_from_the_queue_unless_told() -> None:
    assert options_from({"preset": "volcano"}).account.source is AccountFrom.QUEUE
    assert options_from({"preset": "volcano"}).account_label == "label_volcano_sh_queue_name"
    assert options_from({"preset": "kai"}).queue_labels == ("label_kai_scheduler_queue", "label_runai_queue")
    assert options_from({}).account.source is AccountFrom.NAMESPACE
    assert options_from({"preset": "netdata", "models": {"n1": "a6000"}}).models == {"n1": "a6000"}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"preset": "slurm"},
            "The option preset is 'slurm'; allowed: kueue, volcano, kai, netdata, genv.",
        ),
        (
            {"preset": "netdata", "account_from": "namespace"},
            NOT_OF_PODS,
        ),
        (
            {"account_from": "queue"},
            "Say with preset whose queue is the account: kueue, volcano, kai.",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConnectorError) as refused:
        options_from(options)
    assert str(refused.value) == sentence


@pytest.mark.parametrize(("preset", "unit"), [("kueue", 1), ("volcano", 1000), ("kai", 1)])
def test_the_gauges_of_queues_are_told_in_gpus(pushed_lab: Lab, preset: str, unit: int) -> None:
    now = pushed_lab.base + 26 * HOUR  # two halves are in KAI's queue
    truth = sum(
        pod["fraction"] or pod["gpus"]
        for pod in pushed_lab.truth["pods"]
        if (pod["queue"] or "").startswith(f"{preset}/")
        and pod["scheduled"] <= now - 30 < (pod["ended"] or pushed_lab.end)
        and (pod["resource"] == "nvidia_com_gpu" or pod["fraction"])
    )
    assert truth, unit
    with present(pushed_lab.url, now) as url:
        findings = findings_of(url, now, {"preset": preset})
    assert findings["Queues"].level is Level.OK
    assert f" tells {truth:g} GPUs in " in findings["Queues"].sentence


def test_a_gauge_that_is_not_there_is_a_warning_with_what_mends_it(pushed_lab: Lab) -> None:
    now = pushed_lab.base + 26 * HOUR
    with present(pushed_lab.url, now) as url:
        finding = findings_of(url, now, {"preset": "kueue", "matcher": 'job="kube-state-metrics"'})["Queues"]
    assert finding.level is Level.WARN
    assert finding.mend.startswith("Set metrics.enableClusterQueueResources")


def test_users_of_machines_without_a_scheduler_are_looked_for(pushed_lab: Lab) -> None:
    now = pushed_lab.base + 9 * HOUR
    with present(pushed_lab.url, now) as url:
        netdata = findings_of(url, now, {"preset": "netdata"})
        genv = findings_of(url, now, {"preset": "genv"})
    assert netdata["Users"].sentence == (
        "netdata_nvidia_smi_user_mem_MiB_average tells of 2 uses in the last hour."
    )
    assert set(netdata) == {"Address", "Users"}
    assert (genv["Users"].level, genv["Users"].mend) == (
        Level.FAIL,
        "Start genv monitor on each host, and let Prometheus scrape it.",
    )


def test_a_sampled_source_says_nothing_of_open_runs(pushed_lab: Lab) -> None:
    source = connector(pushed_lab.url, **stored_options({"preset": "netdata"}))
    list(source.usage(since=pushed_lab.base, until=pushed_lab.base + 4 * HOUR, open_keys=["uid/main/gpu"]))
    assert (source.reading.missing, source.reading.unasked) == ([], ["uid/main/gpu"])
