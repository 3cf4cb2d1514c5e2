/*
 * launch FOLDER: launches a small kernel again and again while there is a file FOLDER/work, and keeps in FOLDER/count how
 * many it has launched.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void *driver;

static void *function(const char *name) {
    void *found = dlsym(driver, name);
    if (found == NULL) {
        fprintf(stderr, "launch: libcuda.so.1 has no %s\n", name);
        exit(2);
    }
    return found;
}

static void must(const char *what, int result) {
    if (result != 0) {
        fprintf(stderr, "launch: %s: CUDA error %d\n", what, result);
        exit(2);
    }
}

typedef int launch_kernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                          void **);

int main(int count, char **arguments) {
    char text[32];
    void *context, *module, *kernel;
    unsigned long launched = 0;
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (driver == NULL || count < 2 || chdir(arguments[1])) {
        fprintf(stderr, "launch: %s\n", driver ? "usage: launch FOLDER" : dlerror());
        return 2;
    }
    must("cuInit", ((int (*)(unsigned))function("cuInit"))(0));
    must("cuCtxCreate", ((int (*)(void **, unsigned, int))function("cuCtxCreate_v2"))(&context, 0, 0));
    must("cuModuleLoadData", ((int (*)(void **, const void *))function("cuModuleLoadData"))(&module, ""));
    must("cuModuleGetFunction",
         ((int (*)(void **, void *, const char *))function("cuModuleGetFunction"))(&kernel, module, "kernel_500"));
    launch_kernel *launch = (launch_kernel *)function("cuLaunchKernel");
    int file = open("count", O_WRONLY | O_CREAT, 0666);
    for (;; usleep(5000)) {
        if (access("work", F_OK)) continue;
        must("cuLaunchKernel", launch(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
        int length = snprintf(text, sizeof text, "%lu\n", ++launched);
        if (pwrite(file, text, (size_t)length, 0) != length) return 2;
    }
}
