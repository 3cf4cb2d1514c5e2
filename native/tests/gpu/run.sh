#!/usr/bin/env bash
# All of libsubak's promises that need a real card, as one table.
#
#     native/tests/gpu/run.sh [PROGRAM[:SECTION,...]]...     such as: run.sh memory shares:bound,latency
#
# Needs an NVIDIA card that nobody else uses, a C compiler, and a Python with PyTorch, Triton, CuPy and JAX (what is
# missing is named in the table); agent.py and up.py also need Subak's own dependencies. SUBAK is the command `subak`, if it is not
# on the PATH. Without arguments everything runs: about a quarter of an hour. The table in Markdown is printed last and left
# in native/build/gpu/table.md. Exit code 1 if a goal was missed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$PWD/../src:$PWD/.."
export PYTHONUNBUFFERED=1 SUBAK_TABLE="${SUBAK_TABLE:-$PWD/build/gpu/rows.jsonl}"

make -s all build/gpu-tenant || exit 2
mkdir -p "$(dirname "$SUBAK_TABLE")"
: >"$SUBAK_TABLE"
missed=0
[[ $# -gt 0 ]] || set -- memory cases frameworks slices agent up shares
for each in "$@"; do
    program=${each%%:*}
    sections=${each#"$program"}
    read -ra sections <<<"$(tr ':,' '  ' <<<"$sections")"
    python3 "tests/gpu/$program.py" "${sections[@]}" || missed=1
done
echo
python3 tests/gpu/table.py | tee "$(dirname "$SUBAK_TABLE")/table.md"
exit $missed
