/* See objects.h. */
#define _GNU_SOURCE
#include "objects.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BUCKETS = 1 << 8 };
static struct object *table[BUCKETS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t next_number = 0x700000000000ull;

void objects_lock(void) { pthread_mutex_lock(&mutex); }
void objects_unlock(void) { pthread_mutex_unlock(&mutex); }

static struct object **bucket(uint64_t number) { return &table[(number * 0x9E3779B97F4A7C15ull) >> 56]; }

uint64_t objects_number(uint64_t bytes) {
    uint64_t number = next_number;
    next_number += (bytes + 0x3fffff) & ~0x1fffffull; /* at least 2 MiB and a gap */
    return number;
}

struct object *objects_add(enum kind kind, uint64_t number) {
    struct object *object = calloc(1, sizeof *object);
    object->kind = kind;
    object->number = number ? number : objects_number(0);
    object->next = *bucket(object->number);
    return *bucket(object->number) = object;
}

struct object *objects_find(uint64_t number, enum kind kind) {
    for (struct object *object = *bucket(number); object; object = object->next)
        if (object->number == number && object->kind == kind) return object;
    return NULL;
}

void objects_remove(struct object *object) {
    struct object **link = bucket(object->number);
    while (*link && *link != object) link = &(*link)->next;
    if (*link) *link = object->next;
    free(object);
}

void objects_each(enum kind kind, void (*visit)(struct object *object, void *argument), void *argument) {
    for (int i = 0; i < BUCKETS; i++)
        for (struct object *object = table[i], *next; object; object = next) {
            next = object->next;
            if (object->kind == kind) visit(object, argument);
        }
}

/* By number: glibc has memfd_create since 2.27. */
int objects_file(void) { return (int)syscall(SYS_memfd_create, "simulated-memory", MFD_CLOEXEC); }
