"""What a client may expect of an API server: one suite, for the real one and for the embedded one.

The answers in `answers/` were given by a real kube-apiserver, and every test here passes on one.  Plain `pytest` runs
the suite on the embedded server, `python -m tests.e2e` on both.
"""
