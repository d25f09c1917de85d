"""Rules about Kubernetes manifests."""
