/* See harness.h. */
#define _GNU_SOURCE
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SECONDS = 240, PARTS = 32 };

static struct test *tests;
static struct {
    const char *name;
    void (*run)(const char *argument);
} parts[PARTS];
static int part_count;
static char program[PATH_MAX];

void harness_add(struct test *test) {
    struct test **end = &tests;
    while (*end) end = &(*end)->next;
    *end = test;
}

void harness_add_part(const char *name, void (*run)(const char *)) {
    parts[part_count].name = name;
    parts[part_count++].run = run;
}

void harness_fail(const char *file, int line, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s:%d: ", file, line);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    _exit(1);
}

/* Time that all processors together have had, and what of it the host gave to other machines, in the kernel's ticks. */
struct ticks {
    double all, stolen;
};

static struct ticks ticks(void) {
    struct ticks so_far = {0, 0};
    double each;
    FILE *file = fopen("/proc/stat", "re");
    if (!file) return so_far;
    if (fscanf(file, "cpu") == 0) /* user nice system idle iowait irq softirq steal */
        for (int i = 0; i < 8 && fscanf(file, "%lf", &each) == 1; i++) {
            so_far.all += each;
            if (i == 7) so_far.stolen = each;
        }
    fclose(file);
    return so_far;
}

static struct ticks at_start;
__attribute__((constructor)) static void remember_start(void) { at_start = ticks(); }

/* Whether the host took a tenth of the processors' time since this test began. No program is said to wait for that. */
static bool stolen_from(void) {
    struct ticks now = ticks();
    return now.stolen - at_start.stolen > (now.all - at_start.all) / 10;
}

/* Whether programs have waited for a processor in a quarter of the last ten seconds; by the load where the kernel does
 * not tell. */
static bool busy(void) {
    double share = 0, load = 0;
    FILE *file = fopen("/proc/pressure/cpu", "re");
    bool known = file && fscanf(file, "some avg10=%lf", &share) == 1;
    if (file) fclose(file);
    if (stolen_from()) return true;
    return known ? share > 25 : getloadavg(&load, 1) == 1 && load > (double)sysconf(_SC_NPROCESSORS_ONLN);
}

void harness_late(const char *file, int line, const char *what) {
    if (!busy()) harness_fail(file, line, "%s", what);
    left_out("%s:%d: %s, and this machine is busy with other things", file, line, what);
}

bool harness_waited(uint64_t began, double seconds) {
    double waited = (double)(machine_now() - began) / 1e9;
    return waited > seconds && (waited > 6 * seconds || !busy());
}

void harness_nap(unsigned microseconds) {
    nanosleep(&(struct timespec){microseconds / 1000000, microseconds % 1000000 * 1000l}, NULL);
}

/* For this program's copy of config.c, which asks device.c in the library: the mock's cards. */
const char *device_uuid(int device) {
    static char uuids[DEVICES][48];
    snprintf(uuids[device], sizeof *uuids, "GPU-abababab-abab-abab-abab-ababababab%02x", device);
    return uuids[device];
}

long size_of_run(const char *name, long usual) {
    const char *text = getenv(name);
    return text ? atol(text) : usual;
}

/* ---- inside a test -------------------------------------------------------------------------------------- */

CUcontext begin(int ordinal) {
    CUcontext context;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, ordinal));
    OK(cuCtxSetCurrent(context));
    return context;
}

void begin_when_there_is_room(void) {
    CUcontext context;
    OK(cuInit(0));
    CUresult result = cuDevicePrimaryCtxRetain(&context, 0);
    for (; result == CUDA_ERROR_OUT_OF_MEMORY; result = cuDevicePrimaryCtxRetain(&context, 0)) harness_nap(1000);
    OK(result);
    OK(cuCtxSetCurrent(context));
}

CUfunction kernel_of(unsigned microseconds) {
    CUmodule module;
    CUfunction function;
    char name[32];
    snprintf(name, sizeof name, "kernel_%u", microseconds);
    OK(cuModuleLoadData(&module, "image"));
    OK(cuModuleGetFunction(&function, module, name));
    return function;
}

void launch(CUfunction kernel, CUstream stream) {
    OK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
}

uint64_t told_mib(void) {
    size_t free, total;
    OK(cuMemGetInfo_v2(&free, &total));
    return (total - free) / MIB;
}

void expect_enforcement(void) {
    CUdeviceptr pointer, more;
    uint64_t before = told_mib();
    OK(cuMemAlloc_v2(&pointer, 700 * MIB));
    CHECK_EQUAL(cuMemAlloc_v2(&more, 300 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemFree_v2(pointer));
    CHECK_EQUAL(told_mib(), before);
}

uint64_t true_mib(int device) { return machine_used(device) / MIB; }

struct region *region_if_there(void) {
    static struct region *here;
    int fd = open(getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"), O_RDWR | O_CLOEXEC);
    if (fd < 0) return NULL;
    void *map = mmap(here, sizeof *here, PROT_READ | PROT_WRITE, MAP_SHARED | (here ? MAP_FIXED : 0), fd, 0);
    CHECK(map != MAP_FAILED);
    close(fd);
    return here = map;
}

struct region *look_into_region(void) {
    struct region *here = region_if_there();
    CHECK(here);
    return here;
}

uint64_t booked(int device) {
    struct region *here = region_if_there();
    uint64_t sum = 0;
    if (!here) return UINT64_MAX;
    for (int slot = 0; slot < SLOTS && slot < here->hami.process_count; slot++)
        if (here->slots[slot].owner) sum += here->uses[device][slot].charged + here->uses[device][slot].overhead +
               here->uses[device][slot].managed;
    return sum;
}

pid_t another(const char *inside, const char *argument) {
    pid_t pid = fork();
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody stays behind who waits for a test that is gone */
        execl(program, program, "--part", inside, argument ? argument : "", NULL);
        _exit(127);
    }
    return pid;
}

int result_of(pid_t pid) {
    int status;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void end(pid_t pid) {
    kill(pid, SIGKILL);
    result_of(pid);
}

const char *this_program(void) { return program; }

int run_program(const char *command, char *output, size_t room) {
    FILE *pipe = popen(command, "r");
    size_t length = pipe ? fread(output, 1, room - 1, pipe) : 0;
    output[length] = 0;
    int status = pipe ? pclose(pipe) : -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

const char *library_of(const char *name, const char *code, const char *more) {
    static char path[512];
    char command[4096], output[64];
    snprintf(path, sizeof path, "%s/%s.so", getenv("HARNESS_DIRECTORY"), name);
    snprintf(command, sizeof command,
             "LD_PRELOAD= LD_LIBRARY_PATH= cc -shared -fPIC -O1 -o %s -x c - -ldl %s <<'END'\n"
             "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stddef.h>\n#include <string.h>\n%s\nEND\n",
             path, more, code);
    CHECK_EQUAL(run_program(command, output, sizeof output), 0);
    return path;
}

void left_out(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    printf("      left out: ");
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
    fflush(stdout); /* whoever says it may end without exit handlers */
}

bool sanitized(void) { return getenv("HARNESS_PRELOAD") != NULL; }

static bool write_text(const char *file, const char *format, unsigned number) {
    char text[64];
    int length = snprintf(text, sizeof text, format, number), fd = open(file, O_WRONLY | O_CLOEXEC);
    bool written = fd >= 0 && write(fd, text, (size_t)length) == length;
    if (fd >= 0) close(fd);
    return written;
}

bool own_mounts(void) {
    uid_t user = getuid();
    gid_t group = getgid();
    struct stat before, after;
    if (stat("/proc/self/ns/mnt", &before) || unshare(CLONE_NEWUSER | CLONE_NEWNS)) return false;
    CHECK(!stat("/proc/self/ns/mnt", &after) && after.st_ino != before.st_ino);
    return write_text("/proc/self/uid_map", "0 %u 1\n", user) && write_text("/proc/self/setgroups", "deny", 0) &&
           write_text("/proc/self/gid_map", "0 %u 1\n", group) &&
           !mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL);
}

/* ---- around the tests ----------------------------------------------------------------------------------- */

static void set(const char *format, ...) {
    char text[PATH_MAX + 64];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    char *value = strchr(text, '=');
    *value++ = 0;
    setenv(text, value, 1);
}

/* A way to what was built that has no spaces, wherever the checkout lies: the loader takes one for the end of a name in
 * LD_PRELOAD, and so do shells. */
static void link_build(const char *directory) {
    char build[PATH_MAX], link[PATH_MAX];
    snprintf(build, sizeof build, "%s", program);
    *strrchr(build, '/') = 0; /* build/tests */
    *strrchr(build, '/') = 0; /* build */
    snprintf(link, sizeof link, "%s/build", directory);
    if (symlink(build, link)) _exit(126);
    snprintf(build, sizeof build, "%s/build/tests%s", directory, strrchr(program, '/'));
    strcpy(program, build);
}

static void prepare(const struct test *test, const char *directory) {
    link_build(directory);
    const char *first = getenv("HARNESS_PRELOAD"); /* a sanitizer's run-time library */
    set("LD_PRELOAD=%s%s%s/build/libsubak.so", first ? first : "", first ? ":" : "", directory);
    set("LD_LIBRARY_PATH=%s/build/mock", directory);
    set("HARNESS_PROGRAM=%s", program);
    set("MOCK_MACHINE=%s/machine", directory);
    set("CUDA_DEVICE_MEMORY_SHARED_CACHE=%s/region", directory);
    set("SUBAK_TURNS=%s", directory);
    set("HARNESS_DIRECTORY=%s", directory);
    for (const char *const *each = test->environment; *each; each++) set("%s", *each);
}

static int run_one(const struct test *test) {
    char directory[] = "/tmp/subak-test.XXXXXX", command[128];
    if (!mkdtemp(directory)) return 1;
    pid_t pid = fork();
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setpgid(0, 0);
        for (int number = 1; number < 32; number++) signal(number, SIG_DFL); /* a shell's jobs ignore some */
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        prepare(test, directory);
        execl(program, program, "--inside", test->name, NULL);
        _exit(127);
    }
    int status = 0, waited = 0;
    for (waited = 0; waited < SECONDS * 100 && !waitpid(pid, &status, WNOHANG); waited++) harness_nap(10000);
    bool hung = waited == SECONDS * 100;
    kill(-pid, SIGKILL); /* and whatever it left behind */
    if (hung) waitpid(pid, &status, 0);
    snprintf(command, sizeof command, "rm -rf %s", directory);
    if (system(command)) fprintf(stderr, "%s stays\n", directory);
    bool fine = !hung && WIFEXITED(status) && !WEXITSTATUS(status);
    if (fine) printf("ok    %s\n", test->name);
    else if (hung) printf("FAIL  %s: still running after %d s\n", test->name, SECONDS);
    else if (WIFSIGNALED(status)) printf("FAIL  %s: signal %d\n", test->name, WTERMSIG(status));
    else printf("FAIL  %s: exit %d\n", test->name, WEXITSTATUS(status));
    fflush(stdout);
    return !fine;
}

static bool chosen(const struct test *test, int count, char **names) {
    for (int i = 1; i < count; i++)
        if (!strcmp(names[i], test->name)) return true;
    return count < 2;
}

static void find_this_program(void) {
    const char *known = getenv("HARNESS_PROGRAM");
    ssize_t length = known ? snprintf(program, sizeof program, "%s", known)
                           : readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = 0;
}

int main(int count, char **arguments) {
    find_this_program();
    if (count == 3 && !strcmp(arguments[1], "--inside"))
        for (struct test *test = tests; test; test = test->next)
            if (!strcmp(test->name, arguments[2])) {
                test->run();
                exit(0);
            }
    if (count == 4 && !strcmp(arguments[1], "--part"))
        for (int i = 0; i < part_count; i++)
            if (!strcmp(parts[i].name, arguments[2])) {
                parts[i].run(arguments[3]);
                exit(0);
            }
    int failures = 0;
    for (struct test *test = tests; test; test = test->next)
        if (chosen(test, count, arguments)) failures += run_one(test);
    return failures ? 1 : 0;
}
