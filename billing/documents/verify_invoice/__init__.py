"""Verify an invoice by its evidence, with nothing but Python: `python3 BUNDLE.zip` (docs/explanation/amounts.md).

It stands in every bundle, runs with Python 3.9, and shares no code with what bills.
"""
