/*
 * The slice: what `subak run` holds of the cards for a command and all that it starts.
 *
 * It lives while any process has its pipe open for reading (src/subak/local/notices.py): then its part of the cards is not
 * given to others. The command inherits the pipe, but launchers close inherited files in the programs that they start.
 * So each program that uses a card opens the pipe for itself, and keeps it until it ends.
 *
 * One that comes when nobody has the pipe open any more is refused: somebody else may have the cards by now. The kernel
 * tells it to whoever opens the pipe for writing, which is allowed to all users; opening it for reading is not.
 */
#define _GNU_SOURCE
#include "slice.h"

#include <errno.h>
#include <string.h>

#include "config.h"
#include "file.h"
#include "lock.h"
#include "log.h"

static struct kept_file pipe_end;
static struct lock lock;

static int open_pipe(int mode) { return open(config()->slice, mode | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); }

/* Whether the pipe is open in this process. */
static bool sit(void) {
    int file = file_is_kept(&pipe_end) ? -1 : file_move_up(open_pipe(O_RDONLY));
    if (file >= 0 && !file_keep(&pipe_end, file)) close(file);
    return file_is_kept(&pipe_end);
}

bool slice_join(void) {
    if (!config()->slice[0]) return true;
    lock_take(&lock);
    int others = open_pipe(O_WRONLY);
    int error = others < 0 ? errno : 0;
    bool joined = !error && sit();
    if (!error && !joined) error = errno;
    if (others >= 0) close(others);
    lock_release(&lock);
    if (!joined && (error == ENXIO || error == ENOENT))
        log_line(LOG_REFUSAL, "the slice of this program has ended (%s), and its cards may be somebody else's: start it "
                 "with `subak run`", config()->slice);
    else if (!joined)
        log_line(LOG_REFUSAL, "the slice of this program (%s) cannot be kept: %s", config()->slice, strerror(error));
    return joined;
}

void slice_stay(void) {
    if (!config()->slice[0]) return;
    lock_take(&lock);
    sit();
    lock_release(&lock);
}

void slice_forked(void) { lock_forked(&lock); } /* the child has the pipe open as well */
