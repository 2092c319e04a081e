"""Transactional outbox; `from portal.outbox import outbox`, then `outbox.add(task, ...)`."""
