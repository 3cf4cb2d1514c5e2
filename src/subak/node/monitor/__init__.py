"""The node's monitor: it watches what tenants do with their cards, and tells each what holds for it at the moment.

    regions ── what tenants report ──> decide ──> states, which tenants cannot write
                      │                             │ LIFTED: nobody else works on the card, so the share does not hold
                      │                             │ BLOCKED: a tenant of higher priority works there
                      └──> metrics, /use            └─> the same words in the regions, for HAMi-core

`words` decides, without I/O.  `state` and `feedback` are the files in which tenants read it.  `monitor` does all of it
once a second; `metrics` and `use` show what it saw.
"""
