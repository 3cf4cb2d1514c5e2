/*
 * What the driver has handed out in this process: one table of numbered objects under one mutex.
 *
 * An object's number is what the program holds (a pointer or a handle). Numbers of memory are far apart, so that an
 * address inside a block is no number of another.
 */
#ifndef SIMULATED_OBJECTS_H
#define SIMULATED_OBJECTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kind { LINEAR = 1, SMALL, MANAGED, POOLED, BLOCK, HANDLE, MAPPING, RANGE, ARRAY, TILE, POOL, CONTEXT, STREAM,
            EVENT, MODULE, FUNCTION, GRAPH, NODE, EXEC, IPC, EXTERNAL, MULTICAST, BINDING, HOST };

struct object {
    uint64_t number;
    enum kind kind;
    int device;
    uint64_t bytes;
    uint64_t owner; /* context of memory, pool of a pooled block, block of a handle or mapping, graph of a node */
    uint64_t used, threshold, mark;
    int references, mappings;
    bool capturing, host, managed, destroyed;
    uint64_t nanoseconds; /* of a function, graph or exec */
    uint64_t graph;       /* being captured into; of an event: where it was last recorded, if that was a capture */
    bool blocking, global, broken; /* a stream that waits for the legacy one; how it is captured, and that it went wrong */
    char name[64];
    struct object *next;
};

void objects_lock(void);
void objects_unlock(void);

/* All of these with the lock held. */
struct object *objects_add(enum kind kind, uint64_t number);
struct object *objects_find(uint64_t number, enum kind kind);
void objects_remove(struct object *object);
uint64_t objects_number(uint64_t bytes);
void objects_each(enum kind kind, void (*visit)(struct object *object, void *argument), void *argument);

/* A file in memory, for what one process shows another. */
int objects_file(void);

#endif
