/* One place for messages. See log.c. */
#ifndef SUBAK_LOG_H
#define SUBAK_LOG_H

enum log_level {
    LOG_REFUSAL = 0, /* why the GPU cannot be used: always said, once */
    LOG_ERROR = 1,
    LOG_WARNING = 2,
    LOG_INFO = 3,
    LOG_DEBUG = 4,
};

__attribute__((format(printf, 2, 3))) void log_line(enum log_level level, const char *format, ...);

#endif
