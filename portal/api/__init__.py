"""The REST API under `/api/v1`: one module per resource, over the use cases and queries that pages and commands use.

`keys` and `scopes` say who may, `problems` how errors read, `cursors` how lists go on, `idempotency` how a repeated
request is answered. Importing it loads neither Stripe, nor the typesetter, nor a connector.
"""
