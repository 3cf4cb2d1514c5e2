/*
 * Interception: whoever looks a driver function up, by whatever way, gets ours where we have one and the driver's own
 * where we do not; and looking anything else up is as if we were not there.
 */
#define _GNU_SOURCE
#include "harness.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

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

struct request {
    char name[128];
    int version;
    uint64_t flags;
};

/* What one of the three look-ups gives must be the driver's answer, or ours in its place. */
static void expect_answer(const struct request *request, CUresult result, void *given, void *raw) {
    void *expected = raw;
#define IF_RAW(row, ...) if (raw && raw == mock_own(#row)) expected = dlsym(driver(), #row);
    HOOKS_OF_CUDA(IF_RAW)
    CHECK_EQUAL(result, raw ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND);
    if (given != expected) harness_fail(__FILE__, __LINE__, "%s version %d", request->name, request->version);
}

/* True if it is ours. */
static bool ask(const struct request *request, void *raw) {
    uint64_t flags = request->flags;
    void *given = NULL;
    int status = -1;
    CUresult result = cuGetProcAddress(request->name, &given, request->version, flags);
    expect_answer(request, result, given, raw);
    result = cuGetProcAddress_v2(request->name, &given, request->version, flags, &status);
    expect_answer(request, result, given, raw);
    CHECK_EQUAL(status, raw ? 0 : 2);
    if (!flags) flags = 1; /* without flags this one looks for the other kind of default stream */
    result = cuGetProcAddress_v2_ptsz(request->name, &given, request->version, flags, &status);
    expect_answer(request, result, given, raw);
    CHECK_EQUAL(status, raw ? 0 : 2);
    return given != raw;
}

/* 48: all that three CUDA runtimes ask for while they load; also of a driver that is older than they are. */
static void ask_as(const char *file, int newest) {
    char path[512], line[256];
    struct request request;
    int asked = 0, refused = 0, exchanged = 0;
    snprintf(path, sizeof path, "%s/%s", TEST_DATA, file);
    FILE *requests = fopen(path, "r");
    if (!requests) harness_fail(__FILE__, __LINE__, "%s is missing", path);
    atomic_store(&machine()->orders[MOCK_OLD_DRIVER], (uint64_t)newest);
    while (fgets(line, sizeof line, requests)) {
        if (sscanf(line, "GPA2 %127s %d flags=%lu", request.name, &request.version, &request.flags) != 3) continue;
        bool known = !newest || request.version <= newest;
        exchanged += ask(&request, known ? mock_answer(request.name, request.version, request.flags) : NULL);
        asked++;
        refused += !known;
    }
    fclose(requests);
    CHECK(asked > 400);
    CHECK(exchanged > (newest ? 60 : 80));
    CHECK(!newest == !refused);
}

TEST(the_runtime_of_cuda_12_4_gets_the_right_functions) { ask_as("cudart-12.4-requests.txt", 0); }
TEST(the_runtime_of_cuda_12_8_gets_the_right_functions) { ask_as("cudart-12.8-requests.txt", 0); }
TEST(the_runtime_of_cuda_13_0_gets_the_right_functions) { ask_as("cudart-13.0-requests.txt", 0); }
TEST(the_runtime_of_cuda_13_4_gets_the_right_functions) { ask_as("cudart-13.4-requests.txt", 0); }
TEST(a_runtime_that_is_newer_than_the_driver_gets_the_right_functions) { ask_as("cudart-13.0-requests.txt", 12020); }

TEST(versions_and_stream_flavours_are_kept_apart) {
    void *old = NULL, *new = NULL, *threaded = NULL;
    OK(cuGetProcAddress_v2("cuMemAlloc", &old, 2000, 0, NULL));
    OK(cuGetProcAddress_v2("cuMemAlloc", &new, 12000, 0, NULL));
    CHECK(old == (void *)cuMemAlloc && new == (void *)cuMemAlloc_v2);
    OK(cuGetProcAddress_v2("cuLaunchKernel", &new, 12000, 0, NULL));
    OK(cuGetProcAddress_v2("cuLaunchKernel", &threaded, 12000, 2, NULL));
    CHECK(new == (void *)cuLaunchKernel && threaded == (void *)cuLaunchKernel_ptsz);
    OK(cuGetProcAddress_v2("cuGraphAddNode", &old, 13000, 0, NULL));
    OK(cuGetProcAddress_v2("cuGraphAddNode", &new, 13040, 0, NULL));
    CHECK(old == (void *)cuGraphAddNode_v2 && new == (void *)cuGraphAddNode_v3);
    OK(cuGetProcAddress_v2("cuGetProcAddress", &new, 12000, 0, NULL));
    CHECK(new == (void *)cuGetProcAddress_v2);
    CHECK_EQUAL(cuGetProcAddress_v2("", &new, 12000, 0, NULL), CUDA_ERROR_NOT_FOUND);
    CHECK_EQUAL(cuGetProcAddress_v2(NULL, &new, 12000, 0, NULL), CUDA_ERROR_INVALID_VALUE);
}

/* ---- 46: libraries that stand in the way ---------------------------------------------------------------- */

/* A plugin that is opened with RTLD_DEEPBIND would bind past us; one in a namespace of its own as well. */
TEST(plugins_cannot_bind_past_us, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    if (sanitized()) return; /* sanitizers refuse such plugins */
    const char *code = "void *find(const char *name) { return dlsym(dlopen(\"libcuda.so.1\", RTLD_NOW), name); }";
    void *plugin = dlopen(library_of("plugin", code, ""), RTLD_NOW | RTLD_DEEPBIND);
    CHECK(plugin);
    void *(*find)(const char *) = (void *(*)(const char *))dlsym(plugin, "find");
    CHECK(find("cuMemAlloc_v2") == (void *)cuMemAlloc_v2);
    void *apart = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
    CHECK(apart && dlsym(apart, "cuMemAlloc_v2") == (void *)cuMemAlloc_v2);
}

/* A plugin that is linked to the driver, and takes memory of it. */
static const char *linked_plugin(void) {
    char mock[512];
    snprintf(mock, sizeof mock, "-L%s -l:libcuda.so.1", getenv("LD_LIBRARY_PATH"));
    return library_of(
        "linked", "int cuInit(int); int cuDevicePrimaryCtxRetain(void **, int); int cuCtxSetCurrent(void *);\n"
                  "int cuMemAlloc_v2(unsigned long *, size_t);\n"
                  "int take(size_t bytes) { unsigned long pointer; void *context; cuInit(0);\n"
                  "  cuDevicePrimaryCtxRetain(&context, 0); cuCtxSetCurrent(context);\n"
                  "  return cuMemAlloc_v2(&pointer, bytes); }", mock);
}

static void expect_it_to_be_limited(void *plugin) {
    CHECK(plugin);
    CUresult (*take)(size_t) = (CUresult (*)(size_t))dlsym(plugin, "take");
    CHECK_EQUAL(take(2048 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    OK(take(64 * MIB));
}

TEST(a_plugin_that_is_linked_to_the_driver_cannot_bind_past_us, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    if (sanitized()) return;
    expect_it_to_be_limited(dlopen(linked_plugin(), RTLD_NOW | RTLD_DEEPBIND));
}

TEST(such_a_plugin_brings_no_driver_of_its_own, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    if (sanitized()) return;
    expect_it_to_be_limited(dlmopen(LM_ID_NEWLM, linked_plugin(), RTLD_NOW));
}

/* What LLVM's OpenMP does when it is loaded: it looks behind itself for another tool of its own name, and goes on for
 * ever if it finds itself. */
TEST(a_library_that_looks_behind_itself_does_not_find_itself) {
    if (sanitized()) return;
    const char *code = "void *start_tool(void) { return dlsym(RTLD_NEXT, \"start_tool\"); }";
    void *tool = dlopen(library_of("tool", code, ""), RTLD_NOW);
    void *(*start)(void) = (void *(*)(void))dlsym(tool, "start_tool");
    CHECK(start && !start() && !start());
}

/* Profilers that are preloaded behind us and pass calls on, as in LD_PRELOAD=libsubak.so:libprof.so; the second has the
 * older kind of symbol table. */
TEST(preloaded_libraries_behind_us_find_what_is_behind_them, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    if (sanitized()) return;
    char command[2048], first[512], output[64];
    const char *code = "int cuMemAlloc_v2(unsigned long *p, size_t n) {"
                       " int (*real)(unsigned long *, size_t) = dlsym(RTLD_NEXT, \"cuMemAlloc_v2\");"
                       " return real ? real(p, n) + 1000 : -1; }";
    snprintf(first, sizeof first, "%s", library_of("first", code, ""));
    const char *second = library_of("second", code, "-Wl,--hash-style=sysv");
    snprintf(command, sizeof command, "LD_PRELOAD=$LD_PRELOAD:%s:%s %s --part take_past_profilers %s", first, second,
             this_program(), first);
    CHECK_EQUAL(run_program(command, output, sizeof output), 0);
}

PART(take_past_profilers) {
    CUdeviceptr pointer;
    begin(0);
    void *first = dlopen(argument, RTLD_NOW | RTLD_NOLOAD);
    CHECK(first);
    CUresult (*profiled)(CUdeviceptr *, size_t) = (CUresult(*)(CUdeviceptr *, size_t))dlsym(first, "cuMemAlloc_v2");
    CHECK_EQUAL(profiled(&pointer, 100 * MIB), 2000 + CUDA_SUCCESS);
    CHECK_EQUAL(profiled(&pointer, 2000 * MIB), 2000 + CUDA_ERROR_OUT_OF_MEMORY); /* what is behind both is ours */
}

/* One that was opened with a scope of its own sees what it is linked to, as here in a program that is not. */
TEST(a_library_with_its_own_scope_finds_the_driver_that_it_is_linked_to) {
    if (sanitized()) return;
    char driver[512], command[1024], output[256];
    snprintf(driver, sizeof driver, "-L%s -l:libcuda.so.1", getenv("LD_LIBRARY_PATH"));
    const char *file = library_of("scoped",
        "int cuDriverGetVersion(int *); void *ask(const char *name) {"
        " int version; cuDriverGetVersion(&version); return dlsym(RTLD_DEFAULT, name); }", driver);
    snprintf(command, sizeof command,
             "python3 -c 'import ctypes, sys; ask = ctypes.CDLL(\"%s\").ask; ask.restype = ctypes.c_void_p;"
             " sys.exit(not ask(b\"cuMemAlloc_v2\"))'", file);
    CHECK_EQUAL(run_program(command, output, sizeof output), 0);
}

/* What it is linked to may itself be linked to the driver. */
TEST(a_library_with_its_own_scope_finds_the_driver_behind_what_it_is_linked_to) {
    if (sanitized()) return;
    char more[1024], command[1024], output[256];
    snprintf(more, sizeof more, "-L%s -l:libcuda.so.1", getenv("LD_LIBRARY_PATH"));
    const char *between = library_of("between",
        "int cuDriverGetVersion(int *); int between(void) { int version; return cuDriverGetVersion(&version); }", more);
    snprintf(more, sizeof more, "-x none %s -Wl,-rpath-link,%s", between, getenv("LD_LIBRARY_PATH"));
    const char *file = library_of("outer",
        "int between(void); void *ask(const char *name) { between(); return dlsym(RTLD_DEFAULT, name); }", more);
    snprintf(command, sizeof command,
             "python3 -c 'import ctypes, sys; ask = ctypes.CDLL(\"%s\").ask; ask.restype = ctypes.c_void_p;"
             " sys.exit(not ask(b\"cuMemAlloc_v2\"))'", file);
    CHECK_EQUAL(run_program(command, output, sizeof output), 0);
    char without[1100];
    snprintf(without, sizeof without, "LD_PRELOAD= %s", command);
    CHECK_EQUAL(run_program(without, output, sizeof output), 0);
}

/* Without a driver: NULL may be the value of a symbol, so programs ask for the error. */
TEST(a_library_is_told_that_there_is_no_driver) {
    if (sanitized()) return;
    char command[1024], output[256];
    const char *file = library_of("curious",
        "const char *ask(const char *name) { dlerror(); return dlsym(RTLD_DEFAULT, name) ? 0 : dlerror(); }", "");
    snprintf(command, sizeof command,
             "python3 -c 'import ctypes, sys; ask = ctypes.CDLL(\"%s\").ask; ask.restype = ctypes.c_char_p;"
             " sys.exit(b\"cuMemAlloc_v2\" not in (ask(b\"cuMemAlloc_v2\") or b\"\"))'", file);
    CHECK_EQUAL(run_program(command, output, sizeof output), 0);
    char without[1100];
    snprintf(without, sizeof without, "LD_PRELOAD= %s", command);
    CHECK_EQUAL(run_program(without, output, sizeof output), 0);
}

/* The loader has a lock, under which constructors run. */
static void *call_cuda(void *unused) {
    harness_nap(50000);
    CHECK_EQUAL(cuInit(0), CUDA_SUCCESS);
    return unused;
}

TEST(a_constructor_that_looks_up_and_a_first_call_do_not_wait_for_each_other) {
    if (sanitized()) return;
    pthread_t thread;
    const char *file = library_of("slow", "#include <unistd.h>\n__attribute__((constructor)) static void start(void) {"
        " usleep(100000); dlsym(dlopen(\"libcuda.so.1\", RTLD_NOW), \"cuMemAlloc_v2\"); }", "");
    alarm(20);
    CHECK(!pthread_create(&thread, NULL, call_cuda, NULL));
    CHECK(dlopen(file, RTLD_NOW));
    CHECK(!pthread_join(thread, NULL));
}

/* Allocators in front of the C library look the real functions up in the first malloc of a program. */
TEST(other_preloaded_libraries_go_before_and_behind) {
    char command[2048], output[64];
    if (sanitized()) return;
    const char *counting = library_of(
        "malloc", "static void *(*real)(size_t); static int calls;\n"
                  "void *malloc(size_t n) { if (!real) real = dlsym(RTLD_NEXT, \"malloc\"); calls++; return real(n); }",
        "");
    for (int order = 0; order < 2; order++) {
        snprintf(command, sizeof command, "LD_PRELOAD=%s:%s bash -c 'echo $((6 * 7))' 2>&1",
                 order ? counting : getenv("LD_PRELOAD"), order ? getenv("LD_PRELOAD") : counting);
        CHECK_EQUAL(run_program(command, output, sizeof output), 0);
        CHECK(!strcmp(output, "42\n"));
    }
}

PART(expect_limit) {
    begin(0);
    expect_enforcement();
}

/* With this allocator before us and behind us. */
static void expect_limit_beside(const char *allocator) {
    char command[4096], output[256];
    const char *ours = getenv("LD_PRELOAD");
    for (int order = 0; order < 2; order++) {
        snprintf(command, sizeof command, "LD_PRELOAD=%s:%s %s --part expect_limit '' 2>&1", order ? allocator : ours,
                 order ? ours : allocator, this_program());
        if (run_program(command, output, sizeof output)) harness_fail(__FILE__, __LINE__, "%s: %s", command, output);
    }
}

/* All four functions, from memory of its own until the real ones are found. */
TEST(limits_hold_beside_an_allocator, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    if (sanitized()) return;
    expect_limit_beside(library_of("allocator",
        "static char early[65536]; static size_t used; static __thread int finding;\n"
        "static void *(*m)(size_t), *(*c)(size_t, size_t), *(*r)(void *, size_t); static void (*f)(void *);\n"
        "static int is_early(void *p) { return (char *)p >= early && (char *)p < early + sizeof early; }\n"
        "static void *take(size_t n) { void *p = early + used; used += (n + 31) & ~15ul; return p; }\n"
        "static void find(void) { if (m || finding) return;\n"
        "  finding = 1; c = dlsym(RTLD_NEXT, \"calloc\"); r = dlsym(RTLD_NEXT, \"realloc\");\n"
        "  f = dlsym(RTLD_NEXT, \"free\"); m = dlsym(RTLD_NEXT, \"malloc\"); finding = 0; }\n"
        "void *malloc(size_t n) { find(); return m ? m(n) : take(n); }\n"
        "void *calloc(size_t a, size_t b) { find(); return m ? c(a, b) : memset(take(a * b), 0, a * b); }\n"
        "void *realloc(void *p, size_t n) { find(); return is_early(p) ? memcpy(malloc(n), p, n) : r(p, n); }\n"
        "void free(void *p) { find(); if (f && !is_early(p)) f(p); }", ""));
}

/* Another thread may close it at any time, and its entry in the loader's list is memory that is gone. */
TEST(what_a_program_has_opened_is_not_looked_at) {
    if (sanitized()) return;
    char command[2048], output[256];
    const char *file = library_of("closed",
        "#include <link.h>\n#include <stdlib.h>\n"
        "__attribute__((constructor)) static void start(void) {\n"
        "  struct link_map *last = _r_debug.r_map, *closed = calloc(1, 65536); /* it has more than we know */\n"
        "  while (last->l_next) last = last->l_next;\n"
        "  closed->l_name = \"closed\"; closed->l_ld = (void *)8; last->l_next = closed;\n"
        "  void *found = dlsym(RTLD_DEFAULT, \"puts\"); last->l_next = NULL; if (!found) abort(); }", "");
    snprintf(command, sizeof command, "LD_PRELOAD=$LD_PRELOAD:%s env true", file);
    CHECK_EQUAL(run_program(command, output, sizeof output), 0);
    snprintf(command, sizeof command, "LD_PRELOAD=%s env true", file);
    CHECK_EQUAL(run_program(command, output, sizeof output), 0);
}

/* As databases and sanitizers have it: a list of objects of their own, that asks us for the C library's when it is asked
 * for the first time. */
TEST(limits_hold_beside_another_list_of_objects, "CUDA_DEVICE_MEMORY_LIMIT=1g") {
    if (sanitized()) return;
    expect_limit_beside(library_of("objects",
        "int dl_iterate_phdr(int (*call)(void *, size_t, void *), void *data) {\n"
        "  static int (*real)(int (*)(void *, size_t, void *), void *);\n"
        "  if (!real) real = dlsym(RTLD_NEXT, \"dl_iterate_phdr\");\n"
        "  return real(call, data); }", ""));
}
