"""Our Kubernetes client: small, typed, the same for a real API server and for the embedded one.

    kubeconfig ──> Endpoint ──> HttpTransport ─┐
                                               ├──> Client ──> Reflector, Recorder, Discovery
                   the embedded Server ────────┘

A `Client` says what is wanted, a `Transport` carries it: over HTTP to any API server, or by a plain call to the
embedded one in the same process.  What goes wrong is an `ApiError` in both cases.
"""
