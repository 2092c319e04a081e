"""Sign-up by oneself, owners who change their plan, and tenants that ask to leave."""
