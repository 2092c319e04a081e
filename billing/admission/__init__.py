"""Whether a job may run: what it would need of the quotas that count it, before it is submitted."""
