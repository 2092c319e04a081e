"""What moves money for us. Nothing outside of this package imports a payment service's library."""
