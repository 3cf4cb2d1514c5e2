/* A file of ours in a foreign program. */
#ifndef SUBAK_FILE_H
#define SUBAK_FILE_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What fstat or stat says of a descriptor, or of a path where one is given. By number: their symbols changed in glibc
 * 2.33, and older ones must load us. */
static inline bool file_status(int file, const char *path, struct stat *status) {
    return !(path ? syscall(SYS_newfstatat, AT_FDCWD, path, status, 0)
                  : syscall(SYS_newfstatat, file, "", status, AT_EMPTY_PATH));
}

/* Out of the way of programs that put files at numbers of their choice. Not above 63: the kernel would have to make the
 * process a larger table of files, and with several threads that takes 15 ms. */
static inline int file_move_up(int file) {
    int high = file < 0 ? -1 : fcntl(file, F_DUPFD_CLOEXEC, 60);
    if (high < 0) return file;
    close(file);
    return high;
}

/* A descriptor that we keep. Programs close descriptors that they did not open, and the number may by now be a file of
 * theirs. */
struct kept_file {
    int number; /* plus one; 0: none */
    uint64_t inode, device;
};

static inline bool file_is_kept(const struct kept_file *kept) {
    struct stat status;
    return kept->number && file_status(kept->number - 1, NULL, &status) && status.st_ino == kept->inode &&
           status.st_dev == kept->device;
}

static inline bool file_keep(struct kept_file *kept, int file) {
    struct stat status;
    if (!file_status(file, NULL, &status)) return false;
    *kept = (struct kept_file){file + 1, status.st_ino, status.st_dev};
    return true;
}

static inline void file_leave(struct kept_file *kept) {
    if (file_is_kept(kept)) close(kept->number - 1);
    kept->number = 0;
}

#endif
