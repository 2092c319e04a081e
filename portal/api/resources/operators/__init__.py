"""What operators read and write: everything beyond a tenant's own."""
