"""Usage of Kubernetes clusters from a Prometheus: kube-state-metrics for what was held, and from when to when."""

from clusters.connectors.prometheus.connector import PrometheusConnector
from clusters.connectors.prometheus.login import PrometheusLogin
from clusters.connectors.prometheus.options import (
    KAI,
    KUEUE,
    VOLCANO,
    AccountFrom,
    Attribution,
    ChargeFrom,
    LabelNames,
    PrometheusOptions,
)
from clusters.connectors.prometheus.signing import AwsKeys

__all__ = [
    "KAI",
    "KUEUE",
    "VOLCANO",
    "AccountFrom",
    "Attribution",
    "AwsKeys",
    "ChargeFrom",
    "LabelNames",
    "PrometheusConnector",
    "PrometheusLogin",
    "PrometheusOptions",
]
