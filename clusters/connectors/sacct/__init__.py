"""Accounting that sacct exports to files: text with columns, or JSON."""
