"""Transactional outbox; `from portal.core.outbox import outbox`, then `outbox.add(task, ...)`."""
