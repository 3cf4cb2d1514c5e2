"""What our headers say of the driver's and NVML's binary interface, and what the vendor's own headers say.

    python native/tests/abi.py                  what ours say: one fact a line
    python native/tests/abi.py DIRECTORY...     the same facts as the vendor's headers have them, cuda.h and nvml.h in
                                                these directories; of two that differ the first one counts

A fact is the size of each parameter of a function, the place and size of a field, the size of a structure, or the value
of a constant.  `data/abi.txt` is the second kind, made of the headers of CUDA 13.4 and 12.9 as PyPI has them (packages
nvidia-cuda-runtime 13.4.92, nvidia-nvml-dev 13.4.92, nvidia-cuda-runtime-cu12 12.9.79); the tests compare.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

NATIVE = Path(__file__).parents[1]
OURS = ("-I", str(NATIVE / "include"), "-I", str(NATIVE / "src"))
# All variants of a function in turn: of the legacy default stream, of the per-thread one, and those of older versions.
FLAVOURS = (
    (),
    ("-DCUDA_API_PER_THREAD_DEFAULT_STREAM",),
    ("-D__CUDA_API_VERSION_INTERNAL", "-DNVML_NO_UNVERSIONED_FUNC_DEFS"),
)

_FUNCTION = re.compile(r"\b(?:CUresult|nvmlReturn_t)\s+(?:\w+\s+)?(\w+)\s*\(([^;{}]*)\)\s*;")
_STRUCTURE = re.compile(r"typedef struct\s*\{")
_ENUM = re.compile(r"\benum\s*\{([^}]*)\}")
_PLAIN = {"void", "char", "short", "int", "long", "float", "double", "unsigned", "signed", "const", "struct", "enum"}


def preprocessed(source: str, options: Sequence[str]) -> str:
    """The source with all that it includes; `-dM` among the options: its macros."""
    command = ["gcc", "-E", "-P", "-D__attribute__(x)=", *options, "-x", "c", "-"]
    return subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout


def functions(text: str) -> dict[str, list[str]]:
    """The types of every function's parameters."""
    found = {}
    for name, parameters in _FUNCTION.findall(text):
        types = [_type(each) for each in parameters.split(",")]
        found[name] = [each for each in types if each != "void"]
    return found


def fields(text: str) -> Iterator[tuple[str, str]]:
    """Every structure with the path of each field in it."""
    for start in _STRUCTURE.finditer(text):
        body, after = _block(text, start.end())
        name = re.match(r"\s*(\w+)\s*;", text[after:])
        if name and name[1].startswith(("CU", "nvml")):
            yield from ((name[1], path) for path in _paths(body) if "reserved" not in path)


def constants(text: str) -> list[str]:
    """The names in every enumeration."""
    bodies = [each.split(",") for each in _ENUM.findall(text)]
    return [name.split("=")[0].strip() for body in bodies for name in body if "CU" in name or "NVML" in name]


def facts(wanted: str, source: str, options: Sequence[str]) -> set[str]:
    """What is wanted of these headers, if they know it, as a program made with them prints it."""
    known = preprocessed(source, options)
    declared, words = functions(known), set(re.findall(r"\w+", known + preprocessed(source, (*options, "-dM"))))
    lines = []
    for name in functions(wanted).keys() & declared.keys():
        sizes = ", ".join(f"(int)sizeof({each})" for each in declared[name]) or "-1"
        lines.append(f'{{ int sizes[] = {{{sizes}}}; show("{name}", sizes, {len(declared[name])}); }}')
    for structure, path in fields(wanted):
        if structure in words and all(word in words for word in path.split(".")):
            lines.append(f'printf("size %s %zu\\n", "{structure}", sizeof({structure}));')
            at = f"offsetof({structure}, {path}), sizeof((({structure} *)0)->{path})"
            lines.append(f'printf("field %s %zu %zu\\n", "{structure}.{path}", {at});')
    for name in constants(wanted):
        if name in words:
            lines.append(f'printf("value %s %lld\\n", "{name}", (long long){name});')
    return set(_output(source, lines, options).splitlines())


def ours() -> set[str]:
    """What our headers say."""
    source = '#include "hooks.h"\n'
    return facts(preprocessed(source, OURS), source, OURS)


def vendors(directories: Sequence[str]) -> set[str]:
    """What the vendor's headers say of the names that ours have."""
    wanted = preprocessed('#include "hooks.h"\n', OURS)
    found: dict[str, str] = {}
    for directory in directories:
        options = ("-I", directory)
        headers = [name for name in ("cuda.h", "nvml.h") if (Path(directory) / name).exists()]
        source = "".join(f'#include "{name}"\n' for name in headers)
        for flavour in FLAVOURS:
            for fact in facts(wanted, source, (*options, *flavour)):
                found.setdefault(" ".join(fact.split()[:2]), fact)
    return set(found.values())


def _type(parameter: str) -> str:
    words = re.findall(r"\w+|\*|\[\w*\]", parameter)
    if words and words[-1].startswith("["):
        words[-2:] = ["*"]
    elif len(words) > 1 and words[-1] not in _PLAIN and words[-1] != "*" and set(words[:-1]) - {"const"}:
        words.pop()
    return " ".join(words)


def _block(text: str, start: int) -> tuple[str, int]:
    """The text up to the brace that closes, and where it goes on after it."""
    depth = 1
    for at in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if not depth:
            return text[start:at], at + 1
    raise AssertionError("a brace is not closed")


def _paths(body: str) -> Iterator[str]:
    at = 0
    while match := re.compile(r"\s*(?:(?:struct|union)\s*(\{)|([^;{}]+);)").match(body, at):
        if match[2]:
            for each in match[2].split(","):
                yield re.findall(r"\w+", re.sub(r"\[.*", "", each))[-1]
            at = match.end()
        else:
            inner, after = _block(body, match.end())
            name = re.compile(r"\s*(\w*)\s*;").match(body, after)
            assert name
            yield from (f"{name[1]}.{path}" if name[1] else path for path in _paths(inner))
            at = name.end()


def _output(source: str, lines: Sequence[str], options: Sequence[str]) -> str:
    show = (
        "static void show(const char *name, const int *sizes, int count) {\n"
        '    printf("function %s", name);\n'
        '    for (int i = 0; i < count; i++) printf(" %d", sizes[i]);\n'
        '    printf("\\n");\n}\n'
    )
    body = "".join(f"    {line}\n" for line in lines)
    program = f"#include <stddef.h>\n#include <stdio.h>\n{source}{show}int main(void) {{\n    (void)show;\n{body}}}\n"
    with tempfile.TemporaryDirectory() as directory:
        made = f"{directory}/program"
        command = ["gcc", "-w", "-o", made, *options, "-x", "c", "-"]
        compiled = subprocess.run(command, input=program, capture_output=True, text=True)
        assert not compiled.returncode, compiled.stderr
        return subprocess.run([made], capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    print("\n".join(sorted(vendors(sys.argv[1:]) if sys.argv[1:] else ours())))
