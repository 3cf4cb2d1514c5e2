/*
 * The token's file, in a directory that the host shares with all containers.
 *
 * Any tenant can write anything into the file, or cut it short. So it is read and written with system calls and never
 * through memory: what is missing is then an error, not a SIGBUS. It is mapped only to have an address that futex
 * calls can name. A change is made under flock, as read, decide, write back what differs. The lock is waited for
 * 2 ms and then done without: whoever sits on it can make two tenants run at once for a moment, no more. The same
 * goes for a process killed between two writes; every state that can be left behind is one that waiters get out of.
 *
 * And if all else fails: after three seconds of waiting the token counts as ours. No table can hang a tenant.
 */
#define _GNU_SOURCE
#include "token.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"
#include "file.h"
#include "futex.h"
#include "log.h"

#define WAIT_SLICE (2 * MS)
#define WAIT_AT_MOST (3 * SECOND)
#define LOCK_AT_MOST (2 * MS)
#define LOCK_STUCK_FOR (100 * MS)
#define LOOK_AGAIN (1 * SECOND)
#define BEAT (2 * MS) /* of the holder; it is missed after 30 ms */
#define SLOT(slot, field) (offsetof(struct turns, slots) + (size_t)(slot) * sizeof(struct turns_slot) + \
                           offsetof(struct turns_slot, field))

/* ---- the file ------------------------------------------------------------------------------------------- */

static uint64_t random_id(void) {
    uint64_t id = 0;
    if (syscall(SYS_getrandom, &id, sizeof id, 1) != sizeof id) id = (uint64_t)clock_now() << 22 | (uint64_t)getpid();
    return id ? id : 1;
}

/* Programs close descriptors that they did not open, and the number may by now be a file of theirs. */
static bool is_ours(const struct token *token) {
    struct stat s;
    return token->file >= 0 && file_status(token->file, NULL, &s) && s.st_ino == token->inode && s.st_dev == token->device;
}

/* Where a program may only write small files, or none, the attempt would be a signal that ends it. */
static bool may_write(void) {
    struct rlimit most;
    return !getrlimit(RLIMIT_FSIZE, &most) && most.rlim_cur >= sizeof(struct turns);
}

static void drop_file(struct token *token) {
    if (token->futexes) munmap(token->futexes, sizeof(struct turns));
    if (is_ours(token)) close(token->file);
    token->futexes = NULL;
    token->file = -1;
    token->slot = -1;
}

static void open_file(struct token *token) {
    /* A tenant may have put anything there: do not follow a link, do not wait in a FIFO. Not created if it is there:
     * kernels that protect files in shared directories forbid that for another user's file. */
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    token->file = open(token->path, flags);
    if (token->file < 0 && errno == ENOENT) token->file = open(token->path, flags | O_CREAT | O_EXCL, 0666);
    if (token->file < 0 && errno == EEXIST) token->file = open(token->path, flags); /* somebody was faster */
    token->file = file_move_up(token->file);
    struct stat s;
    bool there = token->file >= 0 && file_status(token->file, NULL, &s);
    if (there) token->inode = s.st_ino, token->device = s.st_dev;
    if (!there || !S_ISREG(s.st_mode) || s.st_nlink > 1) { /* a second name: it may be any file of ours */
        log_line(LOG_WARNING, "%s: no shared file, so turns are not taken: %s", token->path, strerror(errno));
        drop_file(token);
        return;
    }
    if (s.st_uid == geteuid() && (s.st_mode & 0666) != 0666) fchmod(token->file, 0666); /* whatever the umask */
    if (s.st_size < (off_t)sizeof(struct turns) && may_write() && ftruncate(token->file, sizeof(struct turns)))
        log_line(LOG_WARNING, "%s: %s", token->path, strerror(errno));
    void *at = mmap(NULL, sizeof(struct turns), PROT_READ | PROT_WRITE, MAP_SHARED, token->file, 0);
    token->futexes = at == MAP_FAILED ? NULL : at;
}

/* Somebody may have removed or replaced the file; those who share a GPU must share one file. */
static void keep_file(struct token *token, int64_t now) {
    bool sound = token->file < 0 || is_ours(token);
    if (sound && token->looked && now - token->looked < LOOK_AGAIN) return;
    token->looked = now;
    struct stat there;
    if (is_ours(token) && file_status(-1, token->path, &there) && there.st_ino == token->inode &&
        there.st_dev == token->device)
        return;
    drop_file(token);
    open_file(token);
}

void token_init(struct token *token, const char *directory, const char *gpu) {
    memset(token, 0, sizeof *token);
    token->file = -1;
    token->slot = -1;
    token->id = token->beat = random_id();
    if (mkdir(directory, 0777) == 0) chmod(directory, 01777);
    snprintf(token->path, sizeof token->path, "%s/subak-%s", directory, gpu);
}

void token_close(struct token *token) { drop_file(token); }

/* ---- reading and changing ------------------------------------------------------------------------------- */

static bool read_turns(struct token *token, int64_t now) {
    if (!is_ours(token)) return false;
    size_t most = sizeof token->turns, few = offsetof(struct turns, slots) + 30 * sizeof(struct turns_slot);
    memset(&token->turns, 0, few);
    ssize_t got = pread(token->file, &token->turns, few, 0);
    if (got < 0) return false;
    if (token->turns.used > 30) {
        memset((char *)&token->turns + few, 0, most - few);
        if (pread(token->file, (char *)&token->turns + few, most - few, (off_t)few) < 0) return false;
    }
    turns_check(&token->turns);
    turns_look(&token->turns, &token->sight, now);
    return true;
}

static bool lock_file(struct token *token, int64_t now) {
    bool patient = !token->stuck || now - token->stuck > LOCK_STUCK_FOR;
    int64_t began = clock_now(); /* opening the file may have taken long */
    for (int tries = 0; flock(token->file, LOCK_EX | LOCK_NB); tries++) {
        if (!patient || clock_now() - began > LOCK_AT_MOST) {
            token->stuck = now;
            return false;
        }
        if (tries < 20) sched_yield();
        else clock_sleep(20 * US);
    }
    token->stuck = 0;
    return true;
}

static bool write_part(struct token *token, const void *data, size_t size, size_t offset) {
    if (!is_ours(token) || !may_write()) return false;
    return pwrite(token->file, data, size, (off_t)offset) == (ssize_t)size;
}

/* Heartbeats are left alone: their processes write them at any time. */
static bool write_turns(struct token *token, const struct turns *before) {
    const size_t skip = offsetof(struct turns_slot, id);
    bool written = true;
    for (unsigned i = 0; i < token->turns.used || i < before->used; i++) {
        const char *now = (const char *)&token->turns.slots[i], *then = (const char *)&before->slots[i];
        if (i < before->used && !memcmp(now + skip, then + skip, sizeof(struct turns_slot) - skip)) continue;
        written &= write_part(token, now + skip, sizeof(struct turns_slot) - skip, SLOT(i, id));
    }
    /* `armed` is counted without the lock. */
    written &= write_part(token, &token->turns, offsetof(struct turns, armed), 0);
    return written & write_part(token, &token->turns.used, sizeof token->turns.used, offsetof(struct turns, used));
}

static void show_life(struct token *token) {
    if (token->slot < 0) return;
    token->beat++;
    write_part(token, &token->beat, sizeof token->beat, SLOT(token->slot, beat));
}

/* Others may have taken our slot for a dead one's, and then it is somebody else's heartbeat. */
static bool know_slot(struct token *token) {
    if (token->slot >= (int)token->turns.used || token->slot < 0 ||
        token->turns.slots[token->slot].id != token->id)
        token->slot = -1;
    return token->slot >= 0;
}

static bool claim_slot(struct token *token, int64_t now) {
    turns_clear(&token->turns, &token->sight, now);
    token->slot = turns_claim(&token->turns, token->id);
    return token->slot >= 0;
}

/* One change of the table: reads, lets `change` decide, writes, and wakes whom the token went to. A file that cannot be
 * written (the disk is full, or the program may write none) is as good as none. */
static bool change_turns(struct token *token, int64_t now, bool (*change)(struct token *, int64_t)) {
    if (!is_ours(token)) return false;
    bool locked = lock_file(token, now), done = false, written = true;
    int woken = -1;
    if (read_turns(token, now)) {
        struct turns before = token->turns;
        done = claim_slot(token, now) && change(token, now);
        if (done) {
            show_life(token);
            written = write_turns(token, &before);
            if (token->turns.owner != before.owner) woken = turns_holder(&token->turns);
        } else {
            token->turns = before;
            know_slot(token);
        }
    }
    if (locked && is_ours(token)) flock(token->file, LOCK_UN);
    if (woken >= 0 && woken != token->slot && token->futexes)
        futex_wake((char *)token->futexes + SLOT(woken, word), FUTEX_SHARED);
    if (!written) drop_file(token);
    return done;
}

/* ---- taking, waiting, giving ---------------------------------------------------------------------------- */

static void hold(struct token *token, bool *switched) {
    token->held = true;
    token->asked = 0;
    token->owner = token->turns.owner;
    *switched = token->turns.last != token->id;
}

static bool take_free(struct token *token, int64_t now) {
    bool light;
    int holder = turns_holder(&token->turns);
    if (holder == token->slot) return true;
    if (holder >= 0 || turns_next(&token->turns, &token->sight, token->slot, now, &light) >= 0) return false;
    turns_give(&token->turns, token->slot);
    return true;
}

bool token_try(struct token *token, int64_t now, bool *switched) {
    keep_file(token, now);
    if (token->file >= 0 && !change_turns(token, now, take_free)) return false;
    hold(token, switched);
    return true;
}

static bool queue_up(struct token *token, int64_t now) {
    (void)now;
    turns_ask(&token->turns, token->slot, token->light);
    return true;
}

void token_ask(struct token *token, int64_t now, bool light) {
    keep_file(token, now);
    token->asked = now;
    token->light = light;
    change_turns(token, now, queue_up);
}

static bool take_over(struct token *token, int64_t now) {
    bool light;
    struct turns *turns = &token->turns;
    int holder = turns_holder(turns);
    if (holder == token->slot) return true;
    if (!turns_holder_gone(turns, &token->sight, now)) return false;
    int next = turns_next(turns, &token->sight, token->slot, now, &light);
    if (next >= 0 && turns->slots[next].ticket < turns->slots[token->slot].ticket) return false;
    turns_give(turns, token->slot);
    if (holder >= 0) turns_free(turns, holder);
    return true;
}

/* Sleeps until the token comes to our slot, for 2 ms at most. */
static void wait_slice(struct token *token) {
    const char *word = token->slot >= 0 && token->futexes ? (char *)token->futexes + SLOT(token->slot, word) : NULL;
    if (!word || !futex_wait(word, token->turns.slots[token->slot].word, WAIT_SLICE, FUTEX_SHARED))
        clock_sleep(WAIT_SLICE); /* the file was cut short under us */
}

bool token_wait(struct token *token, bool *switched) {
    int64_t now = clock_now();
    if (!read_turns(token, now) || now - token->asked > WAIT_AT_MOST) {
        token->unasked = true;
        hold(token, switched);
        return true;
    }
    bool mine = know_slot(token) && turns_holder(&token->turns) == token->slot;
    if (!mine && (token->slot < 0 || !token->turns.slots[token->slot].ticket))
        change_turns(token, now, queue_up); /* somebody took us for dead */
    else if (!mine && turns_holder_gone(&token->turns, &token->sight, now))
        mine = change_turns(token, now, take_over);
    if (mine) {
        hold(token, switched);
        return true;
    }
    show_life(token);
    wait_slice(token);
    return false;
}

bool token_is_out(struct token *token, int64_t now) {
    if (!read_turns(token, now)) return false;
    int holder = turns_holder(&token->turns);
    return holder >= 0 && token->turns.slots[holder].id != token->id;
}

struct token_view token_poll(struct token *token, int64_t now) {
    struct token_view view = {0};
    if (!read_turns(token, now)) return view;
    if (know_slot(token) && now - token->beaten >= BEAT) {
        show_life(token);
        token->beaten = now;
    }
    view.lost = !token->unasked && token->turns.owner != token->owner;
    view.waiter = turns_next(&token->turns, &token->sight, token->slot, now, &view.light) >= 0;
    return view;
}

static bool let_go(struct token *token, int64_t now) {
    bool light;
    if (turns_holder(&token->turns) == token->slot)
        turns_give(&token->turns, turns_next(&token->turns, &token->sight, token->slot, now, &light));
    turns_free(&token->turns, token->slot);
    return true;
}

void token_release(struct token *token, int64_t now) {
    if (token->held || token->asked) change_turns(token, now, let_go);
    token->held = token->unasked = false;
    token->asked = 0;
    token->slot = -1;
}

/* ---- whether a limited tenant is at work ---------------------------------------------------------------- */

void token_arm(struct token *token) {
    if (!is_ours(token)) return;
    uint32_t armed = token_armed(token) + 1;
    write_part(token, &armed, sizeof armed, offsetof(struct turns, armed));
    if (token->futexes) futex_wake((char *)token->futexes + offsetof(struct turns, armed), FUTEX_SHARED);
}

uint32_t token_armed(struct token *token) {
    uint32_t armed = 0;
    if (!is_ours(token)) return 0;
    return pread(token->file, &armed, sizeof armed, offsetof(struct turns, armed)) == sizeof armed ? armed : 0;
}

const void *token_armed_word(struct token *token) {
    keep_file(token, clock_now());
    return token->futexes ? (char *)token->futexes + offsetof(struct turns, armed) : NULL;
}
