/*
 * Seats: how a process of one container knows that one of another lives.
 *
 * The containers of a pod may share a region, and each has pids of its own: the number of a process means nothing in
 * another container. A process shows life twice a second, but one that is stopped, or that gets no CPU, does not, and
 * still has its memory. So it also locks one byte of the region's file, far behind its end, for as long as it lives. The
 * kernel releases the lock when the process dies, however it dies, and anybody who can open the file can ask for it.
 *
 * The lock belongs to an open file (not to the process, or closing any other descriptor of the region would release it).
 * The child of a fork has a copy of the descriptor and closes it. A program may close it too: then signs of life alone
 * count, until the keeper takes the seat again.
 */
#define _GNU_SOURCE
#include "seat.h"

#include <errno.h>

#include "file.h"
#include "lock.h"

#define SEATS_AT (1ll << 40) /* regions are never as large */

static struct kept_file mine;
static int my_number;
static struct lock lock;

static struct flock byte_of(int number) {
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = SEATS_AT + number, .l_len = 1};
}

static bool sits(const char *region, int number) {
    struct stat status;
    return my_number == number && file_is_kept(&mine) && file_status(-1, region, &status) && status.st_ino == mine.inode &&
           status.st_dev == mine.device;
}

static void sit(const char *region, int number) {
    struct flock byte = byte_of(number);
    int file = file_move_up(open(region, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (file < 0) return;
    if (fcntl(file, F_OFD_SETLK, &byte) || !file_keep(&mine, file)) close(file);
    my_number = number;
}

void seat_take(const char *region, int number) {
    lock_take(&lock);
    if (!sits(region, number)) {
        file_leave(&mine);
        sit(region, number);
    }
    lock_release(&lock);
}

bool seat_taken(const char *region, int number) {
    struct flock byte = byte_of(number);
    int file = open(region, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0) return errno != ENOENT; /* this program may have no descriptor left */
    bool taken = !fcntl(file, F_OFD_GETLK, &byte) && byte.l_type != F_UNLCK;
    close(file);
    return taken;
}

void seat_forked(void) {
    lock_forked(&lock);
    file_leave(&mine);
}
