"""libsubak in the environment of a program of musl, as in containers of Alpine: nothing to limit, and no harm."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.e2e import debian
from tests.support.native import ABLE, build, directory

PROGRAM = r"""
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *there(void *name) { return dlsym(RTLD_DEFAULT, name); }

int main(void) {
    pthread_t thread;
    void *found;
    int status;
    printf("%d ", dlopen("libcuda.so.1", RTLD_NOW) == NULL);
    printf("%d ", strlen(dlerror()) > 0);
    printf("%d ", there("strlen") == (void *)strlen);
    printf("%d ", there("no_such_function") == NULL);
    printf("%d ", dlsym(RTLD_NEXT, "strlen") == (void *)strlen);
    if (pthread_create(&thread, NULL, there, "memcpy") || pthread_join(thread, &found)) return 1;
    printf("%d ", found == (void *)memcpy);
    fflush(stdout);
    if (!fork()) _exit(there("strlen") ? 7 : 8);
    wait(&status);
    printf("%d\n", WEXITSTATUS(status));
    return 42;
}
"""

pytestmark = pytest.mark.skipif(not ABLE, reason="gcc and make build the library")


def _compile(musl: Path, program: Path) -> None:
    libraries, headers = musl / "usr/lib/x86_64-linux-musl", musl / "usr/include/x86_64-linux-musl"
    loader = musl / "lib/x86_64-linux-musl/libc.so"  # is both
    starts = [str(libraries / name) for name in ("crt1.o", "crti.o")]
    options = ["-nostdinc", "-isystem", str(headers), "-nostdlib", "-fno-stack-protector", "-D_GNU_SOURCE"]
    command = ["gcc", *options, "-o", str(program), *starts, "-x", "c", "-", "-x", "none", str(loader)]
    command += [str(libraries / "crtn.o"), f"-Wl,--dynamic-linker={loader}"]
    compiled = subprocess.run(command, input=PROGRAM, capture_output=True, text=True)
    assert not compiled.returncode, compiled.stderr


def test_a_program_of_another_c_library_runs_as_ever(tmp_path: Path) -> None:
    musl = debian.found("musl")
    if isinstance(musl, str):
        pytest.skip(musl)
    build("plain")
    program = tmp_path / "program"
    _compile(musl, program)
    library = str(directory("plain") / "libsubak.so")
    for preloaded in ({}, {"LD_PRELOAD": library, "CUDA_DEVICE_MEMORY_LIMIT": "1g", "CUDA_DEVICE_SM_LIMIT": "30"}):
        ran = subprocess.run([program], env=os.environ | preloaded, capture_output=True, text=True)
        assert (ran.returncode, ran.stdout, ran.stderr) == (42, "1 1 1 1 1 1 7\n", "")
