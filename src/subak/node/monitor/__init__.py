"""The node's monitor: it watches what tenants do with their cards, and tells each what holds for it at the moment.

    regions ── what tenants report ──> decide ──> states, which tenants cannot write
                      │                             │ LIFTED: nobody else works on the card, so the share does not hold
                      │                             │ BLOCKED: a tenant of higher priority works there
                      └──> metrics, /use            └─> the same words in the regions, for HAMi-core

`words` decides, without I/O.  Tenants read it in their `state`, those of HAMi-core in their regions (`node.feedback`).
`monitor` does all of it once a second; `metrics` and `use` show what it saw; `attach` makes it a part of the agent.
"""
