/*
 * Messages of libsubak.
 *
 * A library that is preloaded into foreign programs must be silent: their stderr may be a protocol. So only the
 * reason for a refusal to start is always said. Everything else needs LIBCUDA_LOG_LEVEL (1 errors, 2 warnings,
 * 3 information, 4 debugging; default 0). SUBAK_LOG names a file that takes the messages instead of stderr.
 * A message is one line and one write(), so lines of several processes do not mix.
 */
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static void put(const char *line, size_t length) {
    const char *file = getenv("SUBAK_LOG");
    int fd = file && *file ? open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644) : -1;
    ssize_t written = write(fd < 0 ? STDERR_FILENO : fd, line, length);
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
