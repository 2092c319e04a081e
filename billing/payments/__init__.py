"""Collecting what invoices say: charging saved cards, pages to pay on, refunds, disputes, and what the gateway tells.

A row is committed before each call and its key is made of the row, so that a process may die
anywhere: whoever comes next sends the same again, or looks for what it did. No call is made inside
a transaction. `sync.py` is the one place where what the gateway says becomes ours.
"""
