"""Quotas: what is used of them, and who is told when. They notify; nothing here stops a job."""
