"""What Prometheus reads of ClusterTab itself: `/metrics`."""
