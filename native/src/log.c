/*
 * Messages of libsubak.
 *
 * A library that is preloaded into foreign programs must be silent: their stderr may be a protocol. So only the
 * reason for a refusal to start is always said. Everything else needs LIBCUDA_LOG_LEVEL (1 errors, 2 warnings,
 * 3 information, 4 debugging; default 0). SUBAK_LOG names a file that takes the messages instead of stderr.
 * A message is one line and one write(), so lines of several processes do not mix.
 */
#define _GNU_SOURCE
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "file.h"

static int chosen_level(void) {
    static _Atomic int cached = -1;
    int level = atomic_load_explicit(&cached, memory_order_relaxed);
    if (level < 0) {
        const char *text = getenv("LIBCUDA_LOG_LEVEL");
        level = text && *text >= '0' && *text <= '4' && !text[1] ? *text - '0' : 0;
        atomic_store_explicit(&cached, level, memory_order_relaxed);
    }
    return level;
}

/* A file that becomes larger than the program may write (ulimit -f) would be a signal that ends it. */
static bool may_grow(int fd, size_t bytes) {
    struct stat status;
    struct rlimit most;
    if (!file_status(fd, NULL, &status) || !S_ISREG(status.st_mode)) return true;
    return !getrlimit(RLIMIT_FSIZE, &most) && (uint64_t)status.st_size + bytes <= most.rlim_cur;
}

static void put(const char *line, size_t length) {
    const char *file = getenv("SUBAK_LOG");
    int fd = file && *file ? open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644) : -1;
    int to = fd >= 0 && may_grow(fd, length) ? fd : STDERR_FILENO;
    ssize_t written = may_grow(to, length) ? write(to, line, length) : 0;
    (void)written; /* a message that cannot be written has no better place to go */
    if (fd >= 0) close(fd);
}

void log_line(enum log_level level, const char *format, ...) {
    if ((int)level > chosen_level()) return;
    static const char *const names[] = {"refused", "error", "warning", "info", "debug"};
    int saved = errno;
    char line[512];
    int head = snprintf(line, sizeof line, "subak[%d]: %s: ", (int)getpid(), names[level]);
    va_list arguments;
    va_start(arguments, format);
    int body = vsnprintf(line + head, sizeof line - (size_t)head - 1, format, arguments);
    va_end(arguments);
    size_t length = strnlen(line, sizeof line - 2);
    if (body >= 0) {
        line[length++] = '\n';
        put(line, length);
    }
    errno = saved;
}
