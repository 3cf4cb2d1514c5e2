"""NRI, the Node Resource Interface: the container runtime asks us about each container before it creates it.

    unix socket of the runtime
     └ mux        frames of two connections: on one we answer, on the other we ask
        └ ttrpc   requests and responses
           └ messages  pods, containers and adjustments, in protocol buffers (`wire`)

`plugin` leads the life of a plugin: register, configure, synchronize, then one question after the other; and again when
the runtime has restarted.  What is answered is the business of its `Handler`, on a node that is `node.guard`.

Runtimes from containerd 1.7 (NRI 0.3) to 2.4 (NRI 0.12) are spoken to in the same way.
"""
