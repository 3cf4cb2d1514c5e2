"""What happens to a pod before it is stored or changed.

    review, records         the rules: a new pod is completed or refused; only writers of records change records
    scope, policy, objects  what an API server must know of them without asking us, in CEL
    answers, webhook        what it asks us: about each new pod that is our business
    certificates, keyring   how it knows that it is us
    keeper, service         all of it on a real cluster, kept as it should be

The embedded API server calls `review` and `records` itself.
"""
