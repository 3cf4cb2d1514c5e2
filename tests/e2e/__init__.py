"""Real Kubernetes for tests: etcd, kube-apiserver and kube-controller-manager, built from their public Go modules.

`python -m tests.e2e [arguments of pytest]` builds them once per machine, enters a network namespace of its own, and
runs the tests there that need them; plain `pytest` leaves those out.  So it does with packages of
Debian, which are fetched (see `debian.py`).
"""

PARTS = "SUBAK_E2E_PARTS"
"""The environment variable that says where the programs are; set inside the namespace only."""
