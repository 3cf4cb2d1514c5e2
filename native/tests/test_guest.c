/*
 * The compute limiter is a guest in the program: it has a thread, locks and a file there. Whatever the program does with
 * threads, signals, limits and the loader, its launches come back and nothing of ours ends it.
 */
#define _GNU_SOURCE
#include "harness.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static CUfunction kernel_of(const char *name) {
    CUmodule module;
    CUfunction function;
    OK(cuModuleLoadData(&module, "image"));
    OK(cuModuleGetFunction(&function, module, name));
    return function;
}

static void launch(CUfunction kernel, CUstream stream) {
    OK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
}

/* ---- signals and threads ----------------------------------------------------------------------------------- */

PART(launch_once) {
    (void)argument;
    begin(0);
    launch(kernel_of("kernel_100"), NULL);
}

/* The C library has two signals of its own, 32 and 33. It changes the user in every thread by one of them and waits for
 * the answers: in older ones a thread that was started with it blocked never gives one, and setuid never returns. */
TEST(our_threads_do_not_block_the_signals_of_the_c_library, "CUDA_DEVICE_SM_LIMIT=50", "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    if (sanitized()) return;
    char command[2048], output[256];
    const char *watch = library_of("watch",
        "#include <pthread.h>\n#include <stdint.h>\n#include <unistd.h>\n#include <sys/syscall.h>\n"
        "int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *x) {\n"
        "  int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, __func__);\n"
        "  uint64_t mask = 0; syscall(SYS_rt_sigprocmask, 0, NULL, &mask, 8);\n"
        "  (void)!write(1, mask >> 31 & 3 ? \"deaf\" : \"fine\", 4);\n"
        "  return real(t, a, run, x); }", "");
    snprintf(command, sizeof command, "LD_PRELOAD=$LD_PRELOAD:%s %s --part launch_once ''", watch, this_program());
    CHECK_EQUAL(run_program(command, output, sizeof output), 0);
    CHECK(strstr(output, "fine") && !strstr(output, "deaf"));
}
