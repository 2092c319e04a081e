"""The gateway's books beside ours: what each has of payments, refunds, disputes, fees and payouts, and what differs.

`reading.py` asks the gateway, `comparing.py` finds the differences, `keeping.py` keeps them, and `running.py` is a run.
Nothing here moves money or changes what is paid, but for adopting a charge of ours that this database forgot.
"""
