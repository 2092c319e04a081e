"""Dashboards for Grafana: files in `deploy/grafana`, and with the options by which a cluster is read."""
