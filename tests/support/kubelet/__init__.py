"""A kubelet under test: pods, containers that follow a script, and a small cluster around them."""
