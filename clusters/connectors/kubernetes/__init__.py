"""Kubernetes over its API server: what keeps an account's GPU pods from starting. Usage is read from Prometheus."""
