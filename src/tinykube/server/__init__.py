"""An API server in the same process.  It answers as a kube-apiserver does, for a few kinds and custom ones.

    request ── server ──> registry ── defaults, validation, admission ──> store ──> watchers
                             │  ^
                             └──┘ patch (JSON, merge, strategic merge, server-side apply)

Objects are plain dicts as JSON has them; one that is stored is never changed in place.  `tests/contracts` holds the
server to what a real one does.
"""
