/*
 * The life of the region file and of the slots in it.
 *
 * Creation needs no lock: a new file is made complete without a name and then linked to its path; whoever comes
 * second finds the first one's. A file that is damaged (wrong size, wrong magic, other version) is taken away and made
 * anew the same way. A file that is deleted, replaced or cut while we run is noticed by region_repair, which maps a good
 * one over the very same addresses: no pointer in this process ever goes stale.
 *
 * Slots: claimed by one compare-and-swap of a word that holds pid and start time, so that a number used again by
 * another process is not mistaken for the old one. Dead owners are reaped by anybody, also in one swap; a reaper
 * that dies half-way is itself found dead. Nothing waits for anybody.
 *
 * The containers of a pod may share one region, and each counts its processes from 1. So a slot also says in which pid
 * namespace its owner has its number. One of another namespace lives if it gives signs of life or has its seat (seat.c).
 *
 * What stands in the file was written by programs that we do not know. Every number read from it is used as a
 * number, never as an index or a length.
 *
 * Where no file can be made (the disk is full, or may only be read) each process counts by itself. But what stands in the
 * file's place and is none that we may use (a directory, a link, a file of somebody else) was put there, and a program may
 * forbid itself to write files of this size: a container whose processes each had the whole limit would be well served by
 * that. So the region is blocked then: cuInit fails, and a program that runs already gets no more memory until the way is
 * free. Whoever starts programs may prepare the file, zeros of its full size, so that also a program that may write no files
 * of that size can use it: what is in place is only mapped, and does not grow.
 *
 * A new file is as open as its directory. The users of a container share one, in a directory where all of them may write;
 * the region of a slice of `subak run` is in a directory of its user, and nobody else can read, write or cut it.
 *
 * One thing is beyond us: whoever may write the file may also cut it short, and the next touch of a page that is gone is
 * a SIGBUS. Whoever uses the region looks at the file first, which leaves microseconds, and milliseconds while a new one
 * is made. Only a signal handler could catch the rest, and handlers are the program's. It ends processes of this
 * container alone, which who can do it could end anyway; the others mend the file and count on.
 */
#define _GNU_SOURCE
#include "region.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "file.h"
#include "lock.h"
#include "log.h"
#include "person.h"
#include "seat.h"

#define RETRY_NS 2000000000ull
enum { MAP_BYTES = (sizeof(struct region) + 4095) / 4096 * 4096 };

static _Atomic(struct region *) mapped;
static _Atomic int my_slot = -1;
static _Atomic uint64_t my_word;
static atomic_bool slot_wanted = true; /* nobody has tried to claim one in this process */
static atomic_bool shared;      /* the map is of the file, not of this process alone */
static atomic_bool blocked;     /* something else stands in the file's place */
struct file_id {
    _Atomic uint64_t device, inode;
};
static struct file_id mapped_file;
static _Alignas(4096) char alone[MAP_BYTES]; /* for a process whose region cannot be shared */
static struct lock lock;        /* opening, claiming and repairing, within this process */

/* ---- the file ------------------------------------------------------------------------------------------- */

static bool identify(int fd, const char *path, struct file_id *id, uint64_t *bytes) {
    struct stat status;
    if (!file_status(fd, path, &status) || !S_ISREG(status.st_mode)) return false;
    atomic_store(&id->device, status.st_dev);
    atomic_store(&id->inode, status.st_ino);
    *bytes = (uint64_t)status.st_size;
    return true;
}

static bool same_file(const struct file_id *one, const struct file_id *other) {
    return one->device == other->device && one->inode == other->inode;
}

/* A number for this boot of the machine; 0 if it cannot be told. */
static uint64_t boot_number(void) {
    char id[37] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, id, sizeof id - 1) : 0;
    if (fd >= 0) close(fd);
    return length > 0 ? strtoull(id, NULL, 16) | 1ull << 32 : 0; /* up to its first dash */
}

/* A file may outlive a reboot, and the clock starts anew: what is owed until a moment of the old one would be owed for as
 * long as the machine had been up. */
static void forget_other_boots(struct region *found) {
    uint64_t boot = boot_number(), before = atomic_load(&found->boot);
    if (!boot || before == boot || !atomic_compare_exchange_strong(&found->boot, &before, boot)) return;
    for (int device = 0; device < DEVICES; device++)
        atomic_store(&found->compute[device].words[0], 0); /* the account (limiter.c) */
}

static void fill(struct region *new, const struct config *config) {
    new->hami.major = 1;
    new->hami.minor = 2;
    new->hami.owner_pid = 0;
    new->hami.semaphore[0] = new->hami.semaphore_postinit[0] = 1;
    new->hami.priority = config->priority;
    atomic_store(&new->hami.utilization_switch, 1);
    for (int device = 0; device < DEVICES; device++) {
        atomic_store(&new->hami.memory_limit[device], config->memory_limit[device]);
        atomic_store(&new->hami.core_limit[device], config->core_limit[device]);
        atomic_store(&new->configured_memory[device], config->memory_limit[device]);
        atomic_store(&new->configured_cores[device], config->core_limit[device]);
    }
    atomic_store(&new->boot, boot_number());
    new->version = REGION_VERSION;
    new->bytes = sizeof *new;
    new->hami.magic = HAMI_MAGIC;
    atomic_store(&new->magic, REGION_MAGIC);
}

static bool whole(const struct region *found) {
    return found->hami.magic == HAMI_MAGIC && found->hami.major == 1 && atomic_load(&found->magic) == REGION_MAGIC &&
           found->version == REGION_VERSION && found->bytes == sizeof *found;
}

/* Puts a complete region at the address of another one, at once: no thread finds one without limits in between. */
static struct region *move(struct region *new, struct region *at) {
    void *moved = at ? mremap(new, MAP_BYTES, MAP_BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, at) : new;
    if (moved == MAP_FAILED) munmap(new, MAP_BYTES);
    return moved == MAP_FAILED ? NULL : moved;
}

static struct region *map_own(struct region *at) {
    void *own = mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (own == MAP_FAILED) return NULL;
    fill(own, config());
    return move(own, at);
}

/* A file that was prepared for us, or the work of one who died while he filled it. To fill it twice does no harm: that
 * touches nothing of which processes keep account. One with holes is none: a full disk would kill whoever touches it. */
static bool prepared(int fd, const struct region *found) {
    struct stat status;
    return !found->hami.magic && !atomic_load(&found->magic) && file_status(fd, NULL, &status) &&
           status.st_blocks * 512ll >= MAP_BYTES;
}

/* Maps an open file if it is a good region. Blocks are allocated at creation, so that a full disk cannot kill us. `*error`
 * is 0 for a damaged one, else why a good one could not be mapped. */
static struct region *map_file(int fd, struct region *at, struct file_id *id, int *error) {
    uint64_t bytes;
    *error = 0;
    if (!identify(fd, NULL, id, &bytes) || bytes < MAP_BYTES) return NULL;
    void *trial = mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (trial == MAP_FAILED) {
        *error = errno; /* this program may have no more room for itself (ulimit -v) */
        return NULL;
    }
    if (prepared(fd, trial)) fill(trial, config());
    if (!whole(trial)) {
        munmap(trial, MAP_BYTES);
        return NULL;
    }
    forget_other_boots(trial);
    return move(trial, at);
}

/* Cuts the name off a path; what is left is its directory. */
static const char *directory_of(const char *path, char *text, size_t room) {
    snprintf(text, room, "%s", path);
    char *slash = strrchr(text, '/');
    if (slash) slash[slash == text] = 0;
    return slash ? text : ".";
}

/* For those who may put files there: see above. */
static mode_t mode_of_new(const char *path) {
    char directory[PATH_ROOM];
    struct stat status;
    if (!file_status(-1, directory_of(path, directory, sizeof directory), &status)) return 0600;
    return 0600 | (status.st_mode & S_IWGRP ? 0060 : 0) | (status.st_mode & S_IWOTH ? 0006 : 0);
}

/* An empty file without a name, so that nothing is left of it if we are killed before it is complete. Where the file
 * system knows no such files, or /proc is missing, by which it would get its name, it has a temporary one. */
static int open_nameless(const char *path, char *temporary, size_t room) {
    int fd = open(directory_of(path, temporary, room), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    *temporary = 0;
    if (fd >= 0 && !access("/proc/self/fd", F_OK)) return fd;
    if (fd >= 0) close(fd);
    snprintf(temporary, room, "%s.%d.%lx", path, (int)getpid(), (unsigned long)person_nanoseconds());
    return open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
}

/* 0, or why it failed. */
static int build(int fd, mode_t mode) {
    struct rlimit most;
    /* A program that may write small files only would get a signal from fallocate. */
    if (getrlimit(RLIMIT_FSIZE, &most) || most.rlim_cur < MAP_BYTES) return EFBIG;
    fchmod(fd, mode); /* the program's umask is its own */
    int error = posix_fallocate(fd, 0, MAP_BYTES);
    if (error) return error;
    void *new = mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (new == MAP_FAILED) return errno;
    fill(new, config());
    munmap(new, MAP_BYTES);
    return 0;
}

/* Puts a complete new file at the path, if there is none. 0, or why it failed. */
static int create(const char *path) {
    char temporary[320], self[64];
    int fd = open_nameless(path, temporary, sizeof temporary);
    if (fd < 0) return errno;
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    int error = build(fd, mode_of_new(path));
    if (!error && linkat(AT_FDCWD, *temporary ? temporary : self, AT_FDCWD, path, AT_SYMLINK_FOLLOW)) {
        error = errno;
        log_line(LOG_INFO, "region %s: %s", path, strerror(error)); /* usually somebody was faster */
    }
    if (*temporary) unlink(temporary);
    close(fd);
    return error;
}

/* One that two processes want to replace is replaced once. Nobody waits long: the lock's holder may be stopped. */
static bool lock_briefly(int fd) {
    for (int i = 0; i < 100; i++) {
        if (!flock(fd, LOCK_EX | LOCK_NB)) return true;
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    return false;
}

/* Takes a damaged file away, unless somebody has done so already. False if it stays: it is no file, or not ours to remove. */
static bool remove_damaged(const char *path, int damaged) {
    struct file_id old, now;
    uint64_t bytes;
    lock_briefly(damaged);
    if (!identify(damaged, NULL, &old, &bytes)) return false;
    return !identify(-1, path, &now, &bytes) || !same_file(&now, &old) || !unlink(path) || errno == ENOENT;
}

/* Whether a file that cannot be opened was made so by somebody; not if this program has no descriptor or no room left, or
 * the disk may only be read. */
static bool by_somebody(int error) {
    return error != ENOENT && error != EMFILE && error != ENFILE && error != ENOMEM && error != EROFS;
}

/* One attempt: maps what is there. 0, or why not; what is damaged is taken away first. */
static int open_found(const char *path, struct region *at, struct file_id *id, struct region **found) {
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), error;
    if (fd < 0) return errno;
    *found = map_file(fd, at, id, &error);
    if (!*found && !error) {
        log_line(LOG_WARNING, "%s is damaged or of another version; making it anew", path);
        error = remove_damaged(path, fd) ? ENOENT : EEXIST;
    }
    close(fd);
    return error;
}

static struct region *open_file(const char *path, struct region *at, struct file_id *id) {
    struct region *found = NULL;
    int error = 0;
    bool stuck = false;
    for (int attempt = 0; attempt < 5 && !stuck; attempt++) {
        error = open_found(path, at, id, &found);
        if (found) break;
        stuck = by_somebody(error);
        if (!stuck) stuck = (error = create(path)) == EFBIG;
    }
    blocked = stuck;
    errno = error;
    return found;
}

/* ---- configuration meets region ------------------------------------------------------------------------- */

/* What a monitor has changed since we wrote it stays; else the newest configuration is written. One that has no limit
 * lifts none: it may be that of a shell without the environment. */
static void write_limit(_Atomic uint64_t *limit, _Atomic uint64_t *configured, uint64_t wanted, uint64_t none) {
    uint64_t written = atomic_load(configured);
    if (atomic_load(limit) != written || wanted == written || wanted == none) return;
    atomic_store(limit, wanted);
    atomic_store(configured, wanted);
}

static void write_limits(struct region *found) {
    const struct config *wanted = config();
    for (int device = 0; device < DEVICES; device++) {
        write_limit(&found->hami.memory_limit[device], &found->configured_memory[device], wanted->memory_limit[device], 0);
        write_limit(&found->hami.core_limit[device], &found->configured_cores[device], wanted->core_limit[device], 100);
    }
}

static void explain(const char *path, int error) {
    if (!blocked)
        log_line(LOG_ERROR, "%s cannot be made: limits hold for each process by itself", path);
    else if (error == EFBIG)
        log_line(LOG_REFUSAL, "%s cannot be made, so nothing would be counted: this program may not write files of %d KiB "
                 "(ulimit -f); raise that limit, or use the card once without it", path, MAP_BYTES / 1024);
    else
        log_line(LOG_REFUSAL, "%s cannot be used (%s), so nothing would be counted: remove what is there, or make "
                 "it a file of this user", path, strerror(error));
}

struct region *region(void) {
    struct region *found = atomic_load_explicit(&mapped, memory_order_acquire);
    if (__builtin_expect(found != NULL, 1)) return found;
    lock_take(&lock);
    found = atomic_load_explicit(&mapped, memory_order_relaxed);
    if (!found) {
        found = open_file(config()->region, NULL, &mapped_file);
        shared = found != NULL;
        if (!found) {
            explain(config()->region, errno);
            found = (struct region *)alone;
            fill(found, config());
        }
        write_limits(found);
        atomic_store_explicit(&mapped, found, memory_order_release);
    }
    lock_release(&lock);
    return found;
}

bool region_blocked(void) {
    region();
    return blocked;
}

/* The agent's file binds even where somebody wrote a higher limit into the region. */
static uint64_t bounded(uint64_t limit, uint64_t ceiling) {
    return ceiling && (!limit || ceiling < limit) ? ceiling : limit;
}

uint64_t region_memory_limit(int device) {
    uint64_t limit = atomic_load_explicit(&region()->hami.memory_limit[device], memory_order_relaxed);
    return bounded(limit, config()->memory_ceiling[device]);
}

unsigned region_core_limit(int device) {
    uint64_t limit = atomic_load_explicit(&region()->hami.core_limit[device], memory_order_relaxed);
    limit = bounded(limit, config()->core_ceiling[device]);
    return limit == 0 || limit > 100 ? 100 : (unsigned)limit;
}

bool region_wanted(void) {
    const struct config *wanted = config();
    struct file_id id;
    uint64_t bytes;
    return wanted->region_named || config_limits_anything(wanted) || identify(-1, wanted->region, &id, &bytes);
}

/* ---- slots ---------------------------------------------------------------------------------------------- */

#define REAPING (1ull << 63)
#define NAMESPACES_FROM 0xeffffff0ull /* the kernel numbers them from here on; anything else is a scribble */
#define SILENCE_NS 5000000000ll /* ten beats, after which a process that we cannot ask about is dead */

bool region_owned(const struct region_slot *slot) {
    uint64_t word = atomic_load_explicit(&slot->owner, memory_order_relaxed);
    return word && !(word & REAPING);
}

bool region_is_pid(const struct region_slot *slot, uint32_t pid) {
    return (uint32_t)atomic_load_explicit(&slot->owner, memory_order_relaxed) == pid && region_owned(slot) &&
           atomic_load_explicit(&slot->namespace, memory_order_relaxed) == person_namespace();
}

/* Its own thread beats while it has a context. A beat far ahead is a scribble. */
static bool beats(const struct region_slot *slot) {
    int64_t silent = (int64_t)(person_nanoseconds() - atomic_load(&slot->beat));
    return silent < SILENCE_NS && silent > -SILENCE_NS;
}

/* By its number in this pid namespace. One without a start time (see person.h) could be anybody's: it must also beat. */
static bool number_lives(const struct region_slot *slot, uint64_t word) {
    return person_alive(word) && (person_dated(word) || beats(slot));
}

/* In another pid namespace its number means nothing to us. What is no namespace was scribbled. */
static bool stranger_lives(const struct region *region, int number, uint64_t namespace) {
    if (namespace && (namespace < NAMESPACES_FROM || namespace > UINT32_MAX)) return false;
    return beats(&region->slots[number]) || seat_taken(config()->region, number);
}

/* Whether the owner of a slot is still a process. */
static bool lives(const struct region *region, int number) {
    const struct region_slot *slot = &region->slots[number];
    uint64_t owner = atomic_load(&slot->owner), word = owner & ~REAPING, namespace = atomic_load(&slot->namespace);
    if (owner & REAPING) return number_lives(slot, word) || beats(slot); /* the namespace may be that of the dead one */
    return namespace == person_namespace() ? number_lives(slot, word) : stranger_lives(region, number, namespace);
}

static void clear(struct region *region, int number) {
    struct hami_process *process = &region->hami.processes[number];
    __atomic_store_n(&process->status, 0, __ATOMIC_RELAXED);
    for (int device = 0; device < DEVICES; device++) {
        struct region_use *use = &region->uses[device][number];
        atomic_store(&use->charged, 0), atomic_store(&use->overhead, 0), atomic_store(&use->managed, 0);
        atomic_store(&use->pooled, 0), atomic_store(&use->exported, 0), atomic_store(&use->imported, 0);
        atomic_store(&use->pending, 0);
    }
    for (size_t i = 0; i < sizeof *process / sizeof(uint64_t); i++) /* others may look, or write, at the same time */
        __atomic_store_n((uint64_t *)process + i, 0, __ATOMIC_RELAXED);
    atomic_store(&region->slots[number].namespace, 0);
    atomic_store(&region->slots[number].answered, 0);
    atomic_store(&region->slots[number].container, 0);
}

static bool reap_one(struct region *region, int number, uint64_t reaper) {
    struct region_slot *slot = &region->slots[number];
    uint64_t word = atomic_load(&slot->owner);
    if (!word || lives(region, number)) return false;
    atomic_store(&slot->beat, person_nanoseconds()); /* the reaper's from here on */
    if (!atomic_compare_exchange_strong(&slot->owner, &word, reaper | REAPING)) return false;
    clear(region, number);
    reaper |= REAPING;
    atomic_compare_exchange_strong(&slot->owner, &reaper, 0);
    return true;
}

static int slots_used(struct region *region) {
    int count = atomic_load_explicit(&region->hami.process_count, memory_order_relaxed);
    return count < 0 || count > SLOTS ? SLOTS : count;
}

int region_reap(void) {
    struct region *here = region();
    uint64_t reaper = person_me();
    int reaped = 0;
    for (int number = 0, end = slots_used(here); number < end; number++) reaped += reap_one(here, number, reaper);
    return reaped;
}

/* The table only grows to where it is used; a monitor or a scribble may have made it smaller. */
static void show_slot(struct region *region, int number) {
    int count = atomic_load(&region->hami.process_count);
    while ((count <= number || count > SLOTS) &&
           !atomic_compare_exchange_weak(&region->hami.process_count, &count, number + 1)) {
    }
    struct hami_process *process = &region->hami.processes[number];
    int32_t pid = (int32_t)(uint32_t)atomic_load(&my_word);
    __atomic_store_n(&process->pid, pid, __ATOMIC_RELAXED);
    __atomic_store_n(&process->hostpid, pid, __ATOMIC_RELAXED);
    __atomic_store_n(&process->status, 1, __ATOMIC_RELEASE);
}

/* Says who has the slot, and that it lives. */
static void sign(struct region_slot *slot) {
    atomic_store(&slot->namespace, person_namespace());
    atomic_store(&slot->container, (uint64_t)config()->container);
    atomic_store(&slot->beat, person_nanoseconds());
}

/* The slot is nobody's until all of it is written: what others must not see is an owner without a namespace or a seat. */
static bool claim_one(struct region *region, int number, uint64_t me) {
    struct region_slot *slot = &region->slots[number];
    uint64_t nobody = 0, taking = me | REAPING;
    atomic_store(&slot->beat, person_nanoseconds());
    if (!atomic_compare_exchange_strong(&slot->owner, &nobody, taking)) return false;
    clear(region, number); /* nothing of a former owner, even if somebody scribbled here */
    if (shared) seat_take(config()->region, number);
    sign(slot);
    if (!atomic_compare_exchange_strong(&slot->owner, &taking, me)) return false;
    atomic_store(&my_word, me);
    show_slot(region, number);
    return true;
}

/* What the program had that this process was before an exec: its number and start time are still the same. So may be
 * those of a process in another pid namespace. */
static void release_former(struct region *region, uint64_t me) {
    uint64_t here = person_namespace();
    if (!here || !person_dated(me)) return; /* it falls silent */
    for (int number = 0, end = slots_used(region); number < end; number++) {
        uint64_t mine = me;
        if (atomic_load(&region->slots[number].namespace) != here) continue;
        if (!atomic_compare_exchange_strong(&region->slots[number].owner, &mine, me | REAPING)) continue;
        clear(region, number);
        atomic_store(&region->slots[number].owner, 0);
    }
}

static int claim(struct region *region) {
    uint64_t me = person_me();
    release_former(region, me);
    for (int attempt = 0; attempt < 2; attempt++) {
        for (int number = 0; number < SLOTS; number++)
            if (!atomic_load_explicit(&region->slots[number].owner, memory_order_relaxed) &&
                claim_one(region, number, me))
                return number;
        for (int number = 0; number < SLOTS; number++) reap_one(region, number, me);
    }
    log_line(LOG_ERROR, "%s: all %d slots belong to living processes", config()->region, SLOTS);
    return -1;
}

int region_claimed(void) { return atomic_load_explicit(&my_slot, memory_order_acquire); }

/* True at most once in a while: for what failed and would be tried again with every request. */
static bool due(_Atomic uint64_t *next) {
    uint64_t now = person_nanoseconds(), then = atomic_load_explicit(next, memory_order_relaxed);
    return now >= then && atomic_compare_exchange_strong(next, &then, now + RETRY_NS);
}

int region_slot(void) {
    static _Atomic uint64_t next_try;
    int number = atomic_load_explicit(&my_slot, memory_order_acquire);
    if (__builtin_expect(number >= 0, 1)) return number;
    struct region *here = region();
    lock_take(&lock);
    number = atomic_load_explicit(&my_slot, memory_order_relaxed);
    if (number < 0 && (atomic_load(&slot_wanted) || due(&next_try))) {
        atomic_store(&slot_wanted, false);
        number = claim(here);
        atomic_store_explicit(&my_slot, number, memory_order_release);
    }
    lock_release(&lock);
    return number;
}

void region_show(void) {
    struct region *here = region();
    int number = region_slot();
    if (number < 0 || atomic_load(&here->slots[number].owner) != atomic_load(&my_word)) return;
    sign(&here->slots[number]);
    show_slot(here, number);
    if (shared) seat_take(config()->region, number);
}

/* ---- repair --------------------------------------------------------------------------------------------- */

static bool still_good(struct region *here) {
    struct file_id id;
    uint64_t bytes;
    if (!identify(-1, config()->region, &id, &bytes)) return false;
    if (bytes < MAP_BYTES || !same_file(&id, &mapped_file)) return false;
    int number = atomic_load(&my_slot);
    return whole(here) && (number < 0 || atomic_load(&here->slots[number].owner) == atomic_load(&my_word));
}

/* A process that had to keep a region by itself joins the others when their file can be used again. */
static bool rejoin(struct region *here) {
    static _Atomic uint64_t next_try;
    if (!due(&next_try)) return false;
    lock_take(&lock);
    if (!shared && open_file(config()->region, here, &mapped_file)) {
        shared = true;
        write_limits(here);
        if (atomic_load(&my_slot) >= 0) atomic_store(&my_slot, claim(here));
    }
    lock_release(&lock);
    return shared;
}

bool region_repair(void) {
    struct region *here = region();
    if (!shared) return rejoin(here);
    if (still_good(here)) return false;
    bool changed = false;
    lock_take(&lock);
    if (!still_good(here)) {
        log_line(LOG_WARNING, "%s was replaced or damaged; mapping it anew", config()->region);
        changed = open_file(config()->region, here, &mapped_file) != NULL;
        if (!changed) { /* stay limited, alone */
            changed = map_own(here) != NULL;
            shared = false;
        }
        write_limits(here);
        if (changed && atomic_load(&my_slot) >= 0) atomic_store(&my_slot, claim(here));
    }
    lock_release(&lock);
    return changed;
}

void region_leaving(void) {
    struct region *here = atomic_load(&mapped);
    int number = atomic_load(&my_slot);
    if (here && number >= 0) __atomic_store_n(&here->hami.processes[number].status, 0, __ATOMIC_RELEASE);
}

void region_forked(void) {
    lock_forked(&lock);
    seat_forked();
    atomic_store(&my_slot, -1);
    atomic_store(&slot_wanted, true);
}
