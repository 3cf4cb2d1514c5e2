/*
 * The streams of one GPU on which this process has launched, and how far the GPU has come on them. See streams.c.
 */
#ifndef SUBAK_STREAMS_H
#define SUBAK_STREAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_abi.h"
#include "lock.h"

enum { STREAMS = 32 };

struct used_stream {
    CUcontext context; /* NULL: the entry is free */
    CUstream stream;
    long thread; /* of a per-thread default stream, which only its own thread can name; else 0 */
    bool gone;   /* destroyed by the program; its work may still run */
    bool endless; /* its work is not waited for until it is done after all */
    CUevent marks[2], last;
    uint64_t launches, recorded, finished; /* so many launched, covered by `last`, known to be done */
    unsigned since;                        /* launches since the newest mark */
    unsigned marked;                       /* marks recorded; number n is in marks[n % 2] */
    uint64_t used;
};

struct streams {
    struct lock lock;
    uint64_t uses;
    int high; /* entries from here on were never used */
    struct used_stream used[STREAMS];
};

/* A place in a stream's queue that a launching thread waits for. */
struct mark {
    unsigned entry, number;
    CUstream stream;
    bool wait;
};

/* After a launch. Every `spacing` launches the queue is marked, and the mark before that one is to be waited for. */
struct mark streams_launched(struct streams *streams, CUcontext context, CUstream stream, unsigned spacing);

/* Whether the GPU has passed a mark. */
bool streams_passed(struct streams *streams, const struct mark *mark);

/* Whether the GPU has anything left to do for us, as far as it can be known. */
bool streams_busy(struct streams *streams);

/* What the GPU has not done by now is not waited for any more: it may wait for what the program launches next. */
void streams_give_up(struct streams *streams);

/* How long it takes to give up. */
#define STREAMS_PATIENCE (60 * SECOND)

/* Launches that may not be done, without asking the driver. */
unsigned streams_in_flight(struct streams *streams, unsigned spacing);

/* Before the program destroys them. `stream` or `context` may be NULL: any. */
void streams_forget(struct streams *streams, CUcontext context, CUstream stream);

/* Whether launches into this stream are only written down, for a graph. */
bool streams_capturing(CUstream stream);

/* Between these two nothing is recorded: a capture begins on the stream. What lies in front of it is marked before, since
 * nobody could ask for it afterwards. */
void streams_hold(struct streams *streams, CUstream stream);
void streams_let_go(struct streams *streams);

/* Lets the calling thread use events although another captures; gives what to put back. */
int streams_relax(void);
void streams_restore(int mode);

#endif
