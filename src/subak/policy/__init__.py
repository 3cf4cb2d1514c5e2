"""Pure decisions: does a card fit (`fit`), which one first (`order`, `pick`), which node (`score`), and why not.

One rule, one function, one file per kind of rule.  A refusal is a `Reason` with numbers, never a bool.

    place(request) ── rows of cached scores ──> best node ── on_node ──> Placement, or the next best node
    on_node        ── for each claim: order cards ── refuse or pass each ── pick among those that pass
"""
