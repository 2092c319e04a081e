"""What ClusterTab is built from besides its own code: locked packages and base images. Standard library only."""
