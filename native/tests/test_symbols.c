/*
 * Interception: whoever looks a driver function up, by whatever way, gets ours where we have one and the driver's own
 * where we do not; and looking anything else up is as if we were not there.
 */
#define _GNU_SOURCE
#include "harness.h"

#include <dlfcn.h>
#include <string.h>

#include "hooks.h"

#ifndef TEST_DATA
#define TEST_DATA "tests/data"
#endif

static void *driver(void) {
    void *handle = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(handle);
    return handle;
}

/* Every row of the table, by the names that programs use. */
#define EXPECT_OURS(name, ...) \
    CHECK(dlsym(handle, #name) == (void *)name); \
    CHECK(dlsym(handle, #name) != mock_own(#name));

TEST(dlsym_gives_our_function_for_every_row) {
    void *handle = driver();
    HOOKS_OF_CUDA(EXPECT_OURS) /* `name` here is what the linker bound this program to: also ours */
    CHECK(dlsym(handle, "cuDriverGetVersion") && dlsym(handle, "cuCtxGetDevice") == mock_own("cuCtxGetDevice"));
    CHECK(!dlsym(handle, "cuNoSuchFunction"));
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    CHECK(dlsym(nvml, "nvmlDeviceGetMemoryInfo_v2") == (void *)nvmlDeviceGetMemoryInfo_v2);
}

TEST(every_scope_gives_the_same) {
    void *ours = dlsym(driver(), "cuMemAlloc_v2");
    CHECK(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == ours);
    CHECK(dlsym(RTLD_NEXT, "cuMemAlloc_v2") == ours);
    CHECK(dlsym(RTLD_NEXT, "cuMemAlloc_v2") == ours); /* asking twice is no recursion */
    CHECK(dlsym(dlopen(NULL, RTLD_NOW), "cuMemAlloc_v2") == ours);
    CHECK(ours == (void *)cuMemAlloc_v2);
}

TEST(other_lookups_keep_their_caller) {
    /* RTLD_NEXT must start behind this program, where it finds the C library's malloc and not a second-hand one. */
    CHECK(dlsym(RTLD_NEXT, "harness_fail") == NULL);
    CHECK(dlerror() != NULL);
    CHECK(dlsym(RTLD_DEFAULT, "malloc") == dlsym(RTLD_NEXT, "malloc"));
    CHECK(dlsym(RTLD_NEXT, "malloc") == dlsym(RTLD_NEXT, "malloc"));
    void *libc = dlopen("libc.so.6", RTLD_NOW);
    CHECK(dlvsym(libc, "malloc", "GLIBC_2.2.5") == dlsym(libc, "malloc"));
    CHECK(!dlvsym(libc, "malloc", "GLIBC_9.9"));
    CHECK(dlsym(libc, "curl_easy_init") == NULL);
}

/* 48: all that three CUDA runtimes ask for while they load. */
static void ask_as(const char *file) {
    char path[512], line[256], name[128];
    int version, flags, asked = 0, exchanged = 0;
    snprintf(path, sizeof path, "%s/%s", TEST_DATA, file);
    FILE *requests = fopen(path, "r");
    if (!requests) harness_fail(__FILE__, __LINE__, "%s is missing", path);
    while (fgets(line, sizeof line, requests)) {
        if (sscanf(line, "GPA2 %127s %d flags=%d", name, &version, &flags) != 3) continue;
        void *given = NULL, *raw = mock_answer(name, version, (uint64_t)flags), *expected = raw;
        int status = -1;
        OK(cuGetProcAddress_v2(name, &given, version, (uint64_t)flags, &status));
        CHECK_EQUAL(status, 0);
#define IF_RAW(row, ...) if (raw == mock_own(#row)) expected = dlsym(driver(), #row);
        HOOKS_OF_CUDA(IF_RAW)
        if (given != expected) harness_fail(__FILE__, __LINE__, "%s version %d flags %d", name, version, flags);
        asked++;
        exchanged += given != raw;
    }
    fclose(requests);
    CHECK(asked > 400);
    CHECK(exchanged > 80);
}

TEST(the_runtime_of_cuda_12_4_gets_the_right_functions) { ask_as("cudart-12.4-requests.txt"); }
TEST(the_runtime_of_cuda_12_8_gets_the_right_functions) { ask_as("cudart-12.8-requests.txt"); }
TEST(the_runtime_of_cuda_13_0_gets_the_right_functions) { ask_as("cudart-13.0-requests.txt"); }

TEST(versions_and_stream_flavours_are_kept_apart) {
    void *old = NULL, *new = NULL, *threaded = NULL;
    OK(cuGetProcAddress_v2("cuMemAlloc", &old, 2000, 0, NULL));
    OK(cuGetProcAddress_v2("cuMemAlloc", &new, 12000, 0, NULL));
    CHECK(old == (void *)cuMemAlloc && new == (void *)cuMemAlloc_v2);
    OK(cuGetProcAddress_v2("cuLaunchKernel", &new, 12000, 0, NULL));
    OK(cuGetProcAddress_v2("cuLaunchKernel", &threaded, 12000, 2, NULL));
    CHECK(new == (void *)cuLaunchKernel && threaded == (void *)cuLaunchKernel_ptsz);
    OK(cuGetProcAddress_v2("cuGetProcAddress", &new, 12000, 0, NULL));
    CHECK(new == (void *)cuGetProcAddress_v2);
    CHECK_EQUAL(cuGetProcAddress_v2("", &new, 12000, 0, NULL), CUDA_ERROR_NOT_FOUND);
    CHECK_EQUAL(cuGetProcAddress_v2(NULL, &new, 12000, 0, NULL), CUDA_ERROR_INVALID_VALUE);
}

/* A plugin that is opened with RTLD_DEEPBIND would bind past us; one in a namespace of its own as well. */
TEST(plugins_cannot_bind_past_us, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    char path[512];
    if (getenv("HARNESS_PRELOAD")) return; /* sanitizers refuse such plugins */
    snprintf(path, sizeof path, "%s/plugin.so", getenv("HARNESS_DIRECTORY"));
    char command[2048], output[64];
    snprintf(command, sizeof command,
             "LD_PRELOAD= LD_LIBRARY_PATH= cc -shared -fPIC -o %s -x c - -ldl <<'END'\n"
             "#define _GNU_SOURCE\n#include <dlfcn.h>\n"
             "void *find(const char *name) { return dlsym(dlopen(\"libcuda.so.1\", RTLD_NOW), name); }\nEND\n", path);
    CHECK_EQUAL(run_program(command, output, sizeof output), 0);
    void *plugin = dlopen(path, RTLD_NOW | RTLD_DEEPBIND);
    CHECK(plugin);
    void *(*find)(const char *) = (void *(*)(const char *))dlsym(plugin, "find");
    CHECK(find("cuMemAlloc_v2") == (void *)cuMemAlloc_v2);
    void *apart = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
    CHECK(apart && dlsym(apart, "cuMemAlloc_v2") == (void *)cuMemAlloc_v2);
}

/* A library of the test's own, from one line of C. */
static const char *library_of(const char *name, const char *code) {
    static char path[512];
    char command[2048], output[64];
    snprintf(path, sizeof path, "%s/%s.so", getenv("HARNESS_DIRECTORY"), name);
    snprintf(command, sizeof command, "LD_PRELOAD= LD_LIBRARY_PATH= cc -shared -fPIC -O1 -o %s -x c - -ldl <<'END'\n"
             "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stddef.h>\n%s\nEND\n", path, code);
    CHECK_EQUAL(run_program(command, output, sizeof output), 0);
    return path;
}

/* What LLVM's OpenMP does when it is loaded: it looks behind itself for another tool of its own name, and goes on for
 * ever if it finds itself. */
TEST(a_library_that_looks_behind_itself_does_not_find_itself) {
    if (getenv("HARNESS_PRELOAD")) return;
    void *tool = dlopen(library_of("tool", "void *start_tool(void) { return dlsym(RTLD_NEXT, \"start_tool\"); }"), RTLD_NOW);
    void *(*start)(void) = (void *(*)(void))dlsym(tool, "start_tool");
    CHECK(start && !start() && !start());
}

/* Allocators in front of the C library look the real functions up in the first malloc of a program. */
TEST(other_preloaded_libraries_go_before_and_behind) {
    char command[2048], output[64];
    if (getenv("HARNESS_PRELOAD")) return;
    const char *counting = library_of(
        "malloc", "static void *(*real)(size_t); static int calls;\n"
                  "void *malloc(size_t n) { if (!real) real = dlsym(RTLD_NEXT, \"malloc\"); calls++; return real(n); }");
    for (int order = 0; order < 2; order++) {
        snprintf(command, sizeof command, "LD_PRELOAD=%s:%s bash -c 'echo $((6 * 7))' 2>&1",
                 order ? counting : getenv("LD_PRELOAD"), order ? getenv("LD_PRELOAD") : counting);
        CHECK_EQUAL(run_program(command, output, sizeof output), 0);
        CHECK(!strcmp(output, "42\n"));
    }
}
