"""Demonstration data: two clusters and what three tenants did with them, made up but believable."""
