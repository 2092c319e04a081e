"""Webhooks: events posted to the addresses of tenants and operators, after the Standard Webhooks specification.

A delivery is a row, written by the transaction that gives its event a place. Workers claim one webhook each, send what
is due outside of any transaction, and write down what was answered.
"""
