"""The node's room: what runs beside a machine's cards, on a real node and in the local cluster alike.

    Machine.publish()   what the node says of its cards: annotations, labels, amounts, Device object
    Arbiter.admit(pod)  what each container of a pod gets, or why the node refuses the pod

`nvml` finds the cards of this computer, `ledger` is the node's own account of who holds what, `host` keeps the files
that are mounted into containers, and `usage` reads from their `regions` what they use.
"""
