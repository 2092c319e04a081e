"""Limits of what is held at once: set for tenants, written to schedulers, shown with what is used of them."""
