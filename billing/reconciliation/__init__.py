"""The gateway's books beside ours: what each has of payments, refunds, disputes, fees and payouts, and what differs.

`gateway_objects.py` reads the gateway, `comparison.py` computes the differences, `differences.py` stores them, and
`reconciliation_run.py` is a run.
Nothing here moves money or changes what is paid, but for adopting a charge of ours that this database forgot.
"""
