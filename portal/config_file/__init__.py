"""Configuration as code: a TOML file that says how clusters, plans and tenants should be."""
