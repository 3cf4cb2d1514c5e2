"""YAML of a few lines that would become billions of values."""

from __future__ import annotations

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + level)}: &{chr(98 + level)} [{','.join([f'*{chr(97 + level)}'] * 9)}]\n" for level in range(9)
)
MERGES = BOMB.replace("[x,x,x,x,x,x,x,x,x]", "{x: 1}").replace(" [", " {<<: [").replace("]\n", "]}\n")
