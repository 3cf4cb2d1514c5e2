/*
 * The region file: made by whoever comes first, mended by whoever finds it broken, and never believed.
 */
#define _GNU_SOURCE
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define CONTEXT 100
#define LIMIT_1G "CUDA_DEVICE_MEMORY_LIMIT=1g"

static const char *path(void) { return getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"); }

TEST(monitors_find_hamis_layout, LIMIT_1G, "CUDA_DEVICE_SM_LIMIT=30", "CUDA_TASK_PRIORITY=0") {
    CUdeviceptr pointer;
    unsigned char raw[4];
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 200 * MIB));
    int fd = open(path(), O_RDONLY);
    uint64_t word;
    int32_t number;
    CHECK(pread(fd, &number, 4, 0) == 4 && number == 19920718);
    CHECK(pread(fd, &number, 4, 4) == 4 && number == 1);
    CHECK(pread(fd, &word, 8, 56) == 8 && word == 1);
    char uuid[97] = "";
    CHECK(pread(fd, uuid, 96, 64) == 96 && !strncmp(uuid, "GPU-abababab", 12));
    CHECK(pread(fd, &word, 8, 1600) == 8 && word == 1024 * MIB);
    CHECK(pread(fd, &word, 8, 1728) == 8 && word == 30);
    CHECK(pread(fd, &number, 4, 1856) == 4 && number == getpid());
    CHECK(pread(fd, &word, 8, 1856 + 8 + 32) == 8 && word == (CONTEXT + 200) * MIB); /* used[0].total */
    CHECK(pread(fd, &number, 4, 1856 + 1928) == 4 && number == 1);
    CHECK(pread(fd, &number, 4, 2008896) == 4 && number == 1);
    CHECK(pread(fd, &number, 4, 2008900) == 4 && number == 1);
    CHECK(pread(fd, &number, 4, 2008908) == 4 && number == 0);
    struct stat status;
    CHECK(!fstat(fd, &status) && status.st_size > 2008953);
    CHECK(pread(fd, raw, 4, 2011136) == 4);
}

/* ---- 43: what can be wrong with the file ---------------------------------------------------------------- */

/* Whoever asks for warnings gets a line that names the file, and the limit holds. */
static void expect_a_warning_and_enforcement(const char *warning) {
    char log[300], text[4096] = "";
    snprintf(log, sizeof log, "%s/log", getenv("HARNESS_DIRECTORY"));
    setenv("SUBAK_LOG", log, 1);
    setenv("LIBCUDA_LOG_LEVEL", "2", 1);
    begin(0);
    expect_enforcement();
    int fd = open(log, O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
    close(fd);
    if (!strstr(text, warning) || !strstr(text, path())) harness_fail(__FILE__, __LINE__, "it says \"%s\"", text);
}

/* The program does not start, and is told what is in the way. */
static void expect_a_refusal(void) {
    char log[300], text[4096] = "";
    snprintf(log, sizeof log, "%s/log", getenv("HARNESS_DIRECTORY"));
    setenv("SUBAK_LOG", log, 1);
    CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_PERMITTED);
    int fd = open(log, O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
    close(fd);
    if (!strstr(text, "refused") || !strstr(text, path())) harness_fail(__FILE__, __LINE__, "it says \"%s\"", text);
}

static void expect_a_new_file(void) {
    expect_a_warning_and_enforcement("damaged");
    CHECK_EQUAL(look_into_region()->magic, REGION_MAGIC);
    CHECK_EQUAL(look_into_region()->version, REGION_VERSION);
    CHECK_EQUAL(booked(0), CONTEXT * MIB);
}

TEST(a_missing_directory_limits_each_process_by_itself, LIMIT_1G, "CUDA_DEVICE_MEMORY_SHARED_CACHE=/nowhere/at/all") {
    expect_a_warning_and_enforcement("cannot be made");
}

static void allow_files_of(rlim_t bytes) { CHECK(!setrlimit(RLIMIT_FSIZE, &(struct rlimit){bytes, RLIM_INFINITY})); }

/* Else each process of a container could give itself the whole limit. */
TEST(a_program_that_may_not_make_the_region_is_refused_until_it_may, LIMIT_1G) {
    machine(); /* the mock has a file of its own */
    allow_files_of(4096);
    expect_a_refusal();
    CHECK(access(path(), F_OK));
    allow_files_of(RLIM_INFINITY);
    EVENTUALLY(20, cuInit(0) == CUDA_SUCCESS);
    begin(0);
    expect_enforcement();
}

/* To say so may write beyond that limit too, and the signal for that would end the program. */
TEST(a_refusal_that_may_not_be_written_is_a_refusal, LIMIT_1G) {
    char log[300];
    machine();
    snprintf(log, sizeof log, "%s/log", getenv("HARNESS_DIRECTORY"));
    setenv("SUBAK_LOG", log, 1);
    allow_files_of(0);
    CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_PERMITTED);
}

/* Takes 800 MiB and holds them; gives what it was answered in notes[0], plus one. */
PART(take_800) {
    CUdeviceptr pointer;
    (void)argument;
    begin(0);
    atomic_store(&machine()->notes[0], (uint64_t)cuMemAlloc_v2(&pointer, 800 * MIB) + 1);
    pause();
}

static void expect_an_answer(CUresult result) {
    EVENTUALLY(20, atomic_load(&machine()->notes[0]));
    CHECK_EQUAL(atomic_exchange(&machine()->notes[0], 0), result + 1);
}

TEST(programs_that_may_write_no_files_share_the_limit_in_a_region_that_is_there, LIMIT_1G) {
    if (sanitized()) return; /* the thread sanitizer does not begin where no file may be written */
    machine();
    another("take_800", "");
    expect_an_answer(CUDA_SUCCESS);
    allow_files_of(0);
    another("take_800", "");
    expect_an_answer(CUDA_ERROR_OUT_OF_MEMORY);
}

/* What `subak run` makes beforehand: nobody has to write a file of this size any more. */
TEST(programs_that_may_write_no_files_share_the_limit_in_a_region_that_is_prepared, LIMIT_1G) {
    if (sanitized()) return; /* the thread sanitizer does not begin where no file may be written */
    struct stat before, after;
    machine();
    int fd = open(path(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && !posix_fallocate(fd, 0, (sizeof(struct region) + 4095) / 4096 * 4096) && !fstat(fd, &before));
    allow_files_of(0);
    another("take_800", "");
    expect_an_answer(CUDA_SUCCESS);
    another("take_800", "");
    expect_an_answer(CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(!stat(path(), &after));
    CHECK_EQUAL(after.st_ino, before.st_ino);
}

/* A program that has no room to map the region must not take it away from the others. */
TEST(a_good_region_that_cannot_be_mapped_is_left_alone, LIMIT_1G) {
    char aside[300];
    struct stat before, after;
    if (sanitized()) return; /* sanitizers need all the addresses there are */
    begin(0);
    another("take_800", "");
    expect_an_answer(CUDA_SUCCESS);
    snprintf(aside, sizeof aside, "%s.aside", path());
    CHECK(!setrlimit(RLIMIT_AS, &(struct rlimit){1 << 20, RLIM_INFINITY}));
    CHECK(!rename(path(), aside));
    EVENTUALLY(20, !access(path(), F_OK)); /* the other one has made it anew */
    int fd = open(path(), O_RDONLY | O_CLOEXEC); /* so that its number is not used again */
    CHECK(fd >= 0 && !fstat(fd, &before));
    harness_nap(3000000); /* our keeper has looked at it several times */
    CHECK(!setrlimit(RLIMIT_AS, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}));
    CHECK(!stat(path(), &after));
    CHECK_EQUAL(after.st_ino, before.st_ino);
}

TEST(a_directory_in_its_place_is_refused_until_it_is_gone, LIMIT_1G) {
    CHECK(!mkdir(path(), 0755));
    expect_a_refusal();
    CHECK(!rmdir(path()));
    EVENTUALLY(20, cuInit(0) == CUDA_SUCCESS);
    begin(0);
    expect_enforcement();
    CHECK_EQUAL(booked(0), CONTEXT * MIB);
}

TEST(a_fifo_in_its_place_is_refused, LIMIT_1G) {
    CHECK(!mkfifo(path(), 0666));
    expect_a_refusal();
}

TEST(a_socket_in_its_place_is_refused, LIMIT_1G) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path());
    CHECK(!bind(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), (struct sockaddr *)&address, sizeof address));
    expect_a_refusal();
}

TEST(a_link_to_nowhere_in_its_place_is_refused, LIMIT_1G) {
    CHECK(!symlink("nowhere", path()));
    expect_a_refusal();
}

/* A directory that comes while the program runs: nothing more is granted, for nobody would count it. */
TEST(a_directory_in_its_place_ends_all_grants_until_it_is_gone, LIMIT_1G) {
    CUdeviceptr pointer;
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 100 * MIB));
    CHECK(!unlink(path()) && !mkdir(path(), 0755));
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 100 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    harness_nap(2500000); /* it has tried to come back */
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 100 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(!rmdir(path()));
    EVENTUALLY(20, booked(0) == (CONTEXT + 100) * MIB);
    OK(cuMemAlloc_v2(&pointer, 100 * MIB));
}

TEST(a_region_is_as_open_as_its_directory, LIMIT_1G) {
    struct stat status;
    CHECK(!chmod(getenv("HARNESS_DIRECTORY"), 0755));
    umask(0);
    begin(0);
    CHECK(!stat(path(), &status));
    CHECK_EQUAL(status.st_mode & 07777, 0600);
    CHECK(!chmod(getenv("HARNESS_DIRECTORY"), 01777) && !unlink(path()));
    EVENTUALLY(20, !stat(path(), &status));
    CHECK_EQUAL(status.st_mode & 07777, 0666);
}

TEST(a_link_in_its_place_is_not_followed, LIMIT_1G) {
    char victim[300], content[8] = "";
    snprintf(victim, sizeof victim, "%s/victim", getenv("HARNESS_DIRECTORY"));
    int fd = open(victim, O_RDWR | O_CREAT, 0644);
    CHECK(write(fd, "precious", 8) == 8);
    CHECK(!symlink(victim, path()));
    expect_a_refusal();
    CHECK(pread(fd, content, 8, 0) == 8 && !memcmp(content, "precious", 8));
}

static void write_file(const void *content, size_t bytes) {
    int fd = open(path(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0 && write(fd, content, bytes) == (ssize_t)bytes);
    close(fd);
}

TEST(an_empty_file_is_replaced, LIMIT_1G) {
    write_file("", 0);
    expect_a_new_file();
}

TEST(random_bytes_are_replaced, LIMIT_1G) {
    unsigned seed = 7;
    static unsigned char noise[4 << 20];
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (unsigned char)rand_r(&seed);
    write_file(noise, sizeof noise);
    expect_a_new_file();
}

TEST(a_region_of_hami_core_is_replaced, LIMIT_1G) {
    static struct hami_region old;
    old.magic = HAMI_MAGIC;
    old.major = 1;
    old.minor = 2;
    write_file(&old, sizeof old);
    expect_a_new_file();
}

static void write_region(uint32_t version, size_t bytes) {
    static struct region old;
    old.hami.magic = HAMI_MAGIC;
    old.hami.major = 1;
    old.version = version;
    old.magic = REGION_MAGIC;
    old.bytes = sizeof old;
    write_file(&old, bytes);
}

TEST(another_version_is_replaced, LIMIT_1G) {
    write_region(99, sizeof(struct region));
    expect_a_new_file();
}

TEST(half_a_file_is_replaced, LIMIT_1G) {
    write_region(REGION_VERSION, sizeof(struct region) / 2);
    expect_a_new_file();
}

/* The magic is right and everything else is noise: a hostile or broken neighbour. Nothing may crash or hang. */
TEST(scribbles_all_over_the_region_do_no_harm, LIMIT_1G) {
    CUdeviceptr pointer;
    unsigned seed = 3;
    begin(0);
    for (int round = 0; round < 60; round++) {
        struct region *here = look_into_region();
        unsigned char *bytes = (unsigned char *)here;
        for (int i = 0; i < 20000; i++) bytes[64 + (size_t)rand_r(&seed) % (sizeof *here - 64)] = (unsigned char)rand_r(&seed);
        if (cuMemAlloc_v2(&pointer, 64 * MIB) == CUDA_SUCCESS) OK(cuMemFree_v2(pointer));
        told_mib();
        harness_nap(5000);
    }
    CHECK_EQUAL(unlink(path()), 0); /* a good file again */
    EVENTUALLY(20, booked(0) == CONTEXT * MIB);
    expect_enforcement();
}

TEST(a_file_that_is_deleted_comes_back_with_everybody_in_it, LIMIT_1G) {
    CUdeviceptr pointer;
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 300 * MIB));
    CHECK(!unlink(path()));
    EVENTUALLY(20, access(path(), F_OK) == 0);
    EVENTUALLY(20, booked(0) == (CONTEXT + 300) * MIB);
    EVENTUALLY(20, look_into_region()->hami.device_count == 1); /* and for monitors it is as before */
    CHECK(!strncmp(look_into_region()->hami.uuids[0], "GPU-abababab", 12));
    CHECK_EQUAL(look_into_region()->hami.processes[0].status, 1);
    CHECK_EQUAL(told_mib(), CONTEXT + 300);
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 700 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
}

PART(be_cut) {
    (void)argument;
    CUdeviceptr pointer;
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 300 * MIB));
    harness_nap(200000); /* the keeper has had its first look, and rests */
    CHECK(!truncate(path(), 100));
    harness_nap(20000); /* longer than the interval of the check */
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 700 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    EVENTUALLY(20, booked(0) == (CONTEXT + 300) * MIB);
}

/* Whoever looks at the file in the very moment of the cut gets SIGBUS (see region.c); on a busy machine that may be us. */
TEST(a_file_that_is_cut_while_it_is_used_is_mended, LIMIT_1G) {
    int result = 128 + SIGBUS;
    for (int i = 0; i < 5 && result == 128 + SIGBUS; i++) result = result_of(another("be_cut", NULL));
    CHECK_EQUAL(result, 0);
}

PART(hold_100) {
    CUdeviceptr pointer;
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 100 * MIB));
    pause();
}

/* All processes move to the new file and are counted there again. */
TEST(several_processes_survive_a_deletion_together, "CUDA_DEVICE_MEMORY_LIMIT=2g") {
    pid_t pids[4];
    for (int i = 0; i < 4; i++) pids[i] = another("hold_100", NULL);
    EVENTUALLY(10, booked(0) == 4 * (CONTEXT + 100) * MIB);
    for (int round = 0; round < 3; round++) {
        CHECK(!unlink(path()));
        EVENTUALLY(20, booked(0) == 4 * (CONTEXT + 100) * MIB);
    }
    for (int i = 0; i < 4; i++) end(pids[i]);
}

static atomic_bool threads_go_on = true, was_blocked;

static void *allocate_and_free(void *context) {
    CUdeviceptr pointer;
    size_t free, total;
    OK(cuCtxSetCurrent(context));
    while (threads_go_on) {
        CUresult result = cuMemAlloc_v2(&pointer, 10 * MIB);
        if (result == CUDA_ERROR_OUT_OF_MEMORY && was_blocked) continue;
        OK(result);
        OK(cuMemGetInfo_v2(&free, &total));
        CHECK_EQUAL(total, 1024 * MIB);
        CHECK(free <= total - (CONTEXT + 10) * MIB);
        OK(cuMemFree_v2(pointer));
    }
    return NULL;
}

/* All threads of a process find the file gone at the same moment; then something stands there that is none. */
TEST(several_threads_survive_deletions_together, LIMIT_1G, "CUDA_DEVICE_SM_LIMIT=30") {
    pthread_t threads[4];
    CUcontext context = begin(0);
    for (int i = 0; i < 4; i++) CHECK(!pthread_create(&threads[i], NULL, allocate_and_free, context));
    for (int round = 0; round < 40; round++) {
        EVENTUALLY(20, !unlink(path()));
        if (round % 20 == 19) { /* too early, and somebody has made the file anew */
            was_blocked = true;
            while (mkdir(path(), 0777)) unlink(path());
            harness_nap(50000);
            CHECK(!rmdir(path()));
        }
    }
    EVENTUALLY(20, access(path(), F_OK) == 0);
    threads_go_on = false;
    for (int i = 0; i < 4; i++) CHECK(!pthread_join(threads[i], NULL));
    EVENTUALLY(20, booked(0) == CONTEXT * MIB);
    CHECK(!strncmp(look_into_region()->hami.uuids[0], "GPU-abababab", 12));
}

/* Twenty processes find nothing there at the same moment, and one file results; also over a damaged one. */
static void race_for_creation(void) {
    pid_t pids[20];
    for (int i = 0; i < 20; i++) pids[i] = another("hold_100", NULL);
    EVENTUALLY(20, true_mib(0) == 20 * (CONTEXT + 100));
    EVENTUALLY(20, booked(0) == 20 * (CONTEXT + 100) * MIB);
    for (int i = 0; i < 20; i++) end(pids[i]);
    char output[256];
    CHECK_EQUAL(run_program("ls $HARNESS_DIRECTORY | grep -c '^region'", output, sizeof output), 0);
    CHECK_EQUAL(atoi(output), 1); /* no half-made file is left */
}

TEST(a_race_for_creation_makes_one_region, "CUDA_DEVICE_MEMORY_LIMIT=8g") { race_for_creation(); }

TEST(a_race_over_a_damaged_file_makes_one_region, "CUDA_DEVICE_MEMORY_LIMIT=8g") {
    write_file("damaged", 7);
    race_for_creation();
}

/* A file without a name gets one by way of /proc. Where that is missing, it must come to its place in another way. */
TEST(without_proc_there_is_still_one_region, LIMIT_1G) {
    machine();
    if (!own_mounts() || mount("none", "/proc", "tmpfs", 0, NULL)) {
        left_out("this user may not mount a file system of its own (%s)", strerror(errno));
        return;
    }
    begin(0);
    CHECK_EQUAL(look_into_region()->magic, REGION_MAGIC);
    CHECK_EQUAL((uint32_t)look_into_region()->slots[0].owner, getpid());
    CHECK(!umount2("/proc", MNT_DETACH)); /* other programs want it; a thread may just be looking there */
    char output[256];
    CHECK_EQUAL(run_program("ls $HARNESS_DIRECTORY | grep -c '^region'", output, sizeof output), 0);
    CHECK_EQUAL(atoi(output), 1); /* no half-made file is left */
}

/* ---- other users ---------------------------------------------------------------------------------------- */

/* Runs a part as another user, if that one can reach this program: a checkout may lie in a private folder. */
static void run_as_nobody(const char *part) {
    const char *libraries = getenv("LD_PRELOAD"), *last = strrchr(libraries, ':');
    if (getuid()) {
        left_out("only root can become another user");
        return;
    }
    machine();
    CHECK(!chmod(getenv("MOCK_MACHINE"), 0666));
    pid_t child = fork();
    if (!child) {
        CHECK(!setgid(65534) && !setuid(65534));
        if (access(this_program(), X_OK) || access(last ? last + 1 : libraries, R_OK)) {
            left_out("another user cannot reach %s", this_program());
            _exit(0);
        }
        _exit(result_of(another(part, NULL)));
    }
    CHECK_EQUAL(result_of(child), 0);
}

PART(expect_to_share) {
    CUdeviceptr pointer;
    begin(0);
    OK(cuMemAlloc_v2(&pointer, 100 * MIB));
    CHECK_EQUAL(booked(0), (2 * CONTEXT + 100) * MIB);
}

TEST(other_users_can_share_a_region_where_they_may_write, LIMIT_1G) {
    mode_t mask = umask(077);
    CHECK(!chmod(getenv("HARNESS_DIRECTORY"), 01777));
    begin(0);
    CHECK_EQUAL(umask(mask), 077); /* ours did not touch it */
    run_as_nobody("expect_to_share");
}

PART(expect_to_be_refused) {
    (void)argument;
    uint64_t began = machine_now();
    CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_PERMITTED);
    CHECK_IN_TIME(machine_now() - began < 2000000000ull);
}

/* Each of its processes would have the whole limit. */
static void expect_nobody_to_be_refused(mode_t mode) {
    CHECK(!chmod(path(), mode) && !chmod(getenv("HARNESS_DIRECTORY"), 0755));
    run_as_nobody("expect_to_be_refused");
}

TEST(a_damaged_file_that_may_not_be_written_is_refused, LIMIT_1G, "SUBAK_LOG=/dev/null") {
    write_file("x", 1);
    expect_nobody_to_be_refused(0400);
}

TEST(a_damaged_file_that_may_not_be_removed_is_refused, LIMIT_1G, "SUBAK_LOG=/dev/null") {
    write_file("x", 1);
    expect_nobody_to_be_refused(0666);
}

TEST(a_sound_region_that_may_only_be_read_is_refused, LIMIT_1G, "SUBAK_LOG=/dev/null") {
    begin(0);
    expect_nobody_to_be_refused(0444);
    CHECK(!chmod(path(), 0666));
    CHECK_EQUAL(booked(0), CONTEXT * MIB);
}

/* 42: processes leave in any order, and the others' figures stay where they are. */
TEST(slots_never_move, "CUDA_DEVICE_MEMORY_LIMIT=2g") {
    CUdeviceptr pointer;
    pid_t a = another("hold_100", NULL);
    EVENTUALLY(10, booked(0) == (CONTEXT + 100) * MIB);
    begin(0); /* slot 1 */
    pid_t c = another("hold_100", NULL);
    EVENTUALLY(10, booked(0) == (3 * CONTEXT + 200) * MIB);
    end(a);
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 4096 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQUAL(cuMemAlloc_v2(&pointer, 1800 * MIB), CUDA_ERROR_OUT_OF_MEMORY); /* reaps the first */
    struct region *here = look_into_region();
    CHECK_EQUAL(here->slots[0].owner, 0);
    CHECK_EQUAL(here->hami.processes[2].pid, c);
    CHECK_EQUAL(here->uses[0][2].charged, 100 * MIB);
    pid_t d = another("hold_100", NULL);
    EVENTUALLY(10, look_into_region()->uses[0][0].charged == 100 * MIB); /* takes the free slot */
    CHECK_EQUAL(here->uses[0][2].charged, 100 * MIB);
    end(c), end(d);
}
