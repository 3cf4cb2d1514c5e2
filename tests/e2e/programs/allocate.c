/*
 * allocate MIB [hold]: asks the driver for memory of the first card that it sees, as a CUDA program does, and says what
 * became of it.  With `hold` it keeps the memory until it is ended.  Exits with 1 if the driver refuses, with 2 if there
 * is no driver or no card.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *driver;

static void *function(const char *name) {
    void *found = dlsym(driver, name);
    if (found == NULL) {
        fprintf(stderr, "allocate: libcuda.so.1 has no %s\n", name);
        exit(2);
    }
    return found;
}

static void must(const char *what, int result) {
    if (result != 0) {
        fprintf(stderr, "allocate: %s: CUDA error %d\n", what, result);
        exit(2);
    }
}

int main(int count, char **arguments) {
    if (count < 2) {
        fprintf(stderr, "usage: allocate MIB [hold]\n");
        return 2;
    }
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (driver == NULL) {
        fprintf(stderr, "allocate: %s\n", dlerror());
        return 2;
    }
    int (*init)(unsigned) = (int (*)(unsigned))function("cuInit");
    int (*get_device)(int *, int) = (int (*)(int *, int))function("cuDeviceGet");
    int (*create)(void **, unsigned, int) = (int (*)(void **, unsigned, int))function("cuCtxCreate_v2");
    int (*allocate)(unsigned long long *, size_t) = (int (*)(unsigned long long *, size_t))function("cuMemAlloc_v2");

    int device;
    void *context;
    unsigned long long memory;
    must("cuInit", init(0));
    must("cuDeviceGet", get_device(&device, 0));
    must("cuCtxCreate", create(&context, 0, device));
    size_t mib = strtoull(arguments[1], NULL, 10);
    int result = allocate(&memory, mib << 20);
    if (result != 0) {
        printf("refused %zu MiB: CUDA error %d\n", mib, result);
        return 1;
    }
    printf("allocated %zu MiB\n", mib);
    fflush(stdout);
    if (count > 2 && strcmp(arguments[2], "hold") == 0)
        pause();
    return 0;
}
