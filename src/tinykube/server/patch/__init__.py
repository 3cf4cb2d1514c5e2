"""All ways to change an object: JSON patch, merge patch, strategic merge patch and server-side apply.

They are pure functions on plain JSON values, and refuse in the API server's words.  What they are given is never
changed; results share what stayed the same.  Each leaves an object to be read, checked and stored by others.

    json_patch, merge_patch, strategic ──> the object after the patch ──┐
    an update or a creation ──> the object as sent ─────────────────────┴──> managed_fields: who owns what now
    apply ──> the object and who owns what, both at once
"""
