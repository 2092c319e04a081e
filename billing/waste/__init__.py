"""Waste that ends: running jobs that hold GPUs and do not use them, told of, and ended where an operator allows it."""
