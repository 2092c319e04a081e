"""Usage of Kubernetes clusters from a Prometheus: kube-state-metrics for what was held, and from when to when; DCGM
for how busy it was."""

from clusters.connectors.prometheus.catalog import Preset
from clusters.connectors.prometheus.connector import PrometheusConnector
from clusters.connectors.prometheus.login import AwsIdentity, AwsKeys, PrometheusLogin
from clusters.connectors.prometheus.options import (
    KAI,
    KUEUE,
    VOLCANO,
    AccountFrom,
    Attribution,
    ChargeFrom,
    LabelNames,
    PrometheusOptions,
    Scope,
    Utilisation,
)

__all__ = [
    "KAI",
    "KUEUE",
    "VOLCANO",
    "AccountFrom",
    "Attribution",
    "AwsIdentity",
    "AwsKeys",
    "ChargeFrom",
    "LabelNames",
    "Preset",
    "PrometheusConnector",
    "PrometheusLogin",
    "PrometheusOptions",
    "Scope",
    "Utilisation",
]
