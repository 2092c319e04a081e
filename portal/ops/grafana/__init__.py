"""Dashboards for Grafana, generated from the constants by which clusters are read and metrics are told."""
