"""GPUStack: usage that its own server has metered."""
