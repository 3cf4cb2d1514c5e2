#!/usr/bin/env bash
# Places the pods of each document, then lets three systems share one card.  `make demo` runs it; it needs no cluster.
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")"

heading() {
    printf '\n=== %s\n' "$*"
}

# expect CODE COMMAND...: shows the command and its output, and ends the demo if it exits with another code.
expect() {
    local want=$1 code=0
    shift
    printf '\n$ %s\n' "$*"
    "$@" 2>&1 || code=$?
    if [ "$code" -ne "$want" ]; then
        printf 'demo: exit code %s, expected %s\n' "$code" "$want" >&2
        exit 1
    fi
}

heading 'Volcano: two pods with 1024 MiB each share the first card'
expect 0 subak place -f volcano/gpu-pod1.yaml -f volcano/gpu-pod2.yaml --cluster clusters/volcano.yaml

heading 'Koordinator: half of a P40, beside a pod that already runs'
expect 0 subak place -f koordinator/pod.yaml --cluster clusters/koordinator.yaml

heading 'Moore Threads: 32 x 512 MiB and 8/16 of the cores of one S4000'
expect 0 subak place -f moore-threads/pod.yaml --cluster clusters/moore-threads.yaml

heading 'Iluvatar: 64 x 256 MiB and half of the cores, in the older and in the newer names'
expect 0 subak place -f iluvatar/pod.yaml -f iluvatar/bi-v150.yaml --cluster clusters/iluvatar.yaml

heading 'MetaX: a part of a card (sGPU), and a whole card chosen by its links'
expect 0 subak place -f metax/sgpu/pod.yaml -f metax/gpu/pod.yaml --cluster clusters/metax.yaml

heading 'MetaX: the annotation as the document prints it is not valid YAML, and the error says where'
expect 2 subak place -f metax/invalid/pod.yaml --cluster clusters/metax.yaml

heading 'One card for three systems: HAMi, Volcano and Koordinator pods share it; a fourth pod is too big and waits'
expect 1 subak place -f shared --cluster clusters/shared.yaml

heading 'Which nodes of the whole cluster would take a pod, and what keeps it off the others'
expect 0 subak explain -f volcano/gpu-pod1.yaml --cluster clusters/all.yaml

printf '\nAll as expected: one pod waits, and one file is refused.\n'
