"""How ClusterTab runs in production, and what is said of what it runs on."""
