/*
 * How far the GPU has come, told by events without timing.
 *
 * Each stream in use has three events of ours. Two are marks that launching threads put into the queue every so many
 * launches, so that they never run further ahead than two marks. The third is recorded behind everything when the
 * helper wants to know whether the stream has run dry. Recording takes 0.12 us and asking 0.11 us on an H200; waiting
 * is done by asking again, because an event that blocks tells 80-250 us late.
 *
 * Three things must never happen. Recording into a stream that is being captured would become part of the program's
 * graph; recording on the legacy stream while a blocking stream is captured would break the capture; so the driver is
 * asked before every record, and no capture begins between the answer and the record. A stream that the program has
 * destroyed must not be named again; so its destruction is announced here first. And the per-thread default stream has no
 * name outside its thread; so that thread records behind each of its launches.
 *
 * What the driver refuses (a context gone, a fault in a kernel) counts as finished: nobody waits for it. Neither does
 * anybody for work that has been given up, until the event behind it tells that it ended after all.
 */
#define _GNU_SOURCE
#include "streams.h"

#include <string.h>

#include "clock.h"
#include "hooks.h"

/* Held for well under a microsecond, so that sleeping would cost a launch more than waiting. */
static void take(struct streams *streams) {
    for (int i = 0; i < 100; i++) {
        if (lock_try(&streams->lock)) return;
        __builtin_ia32_pause();
    }
    lock_take(&streams->lock);
}

int streams_relax(void) {
    int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    return REAL(cuThreadExchangeStreamCaptureMode)(&mode) == CUDA_SUCCESS ? mode : CU_STREAM_CAPTURE_MODE_RELAXED;
}

void streams_restore(int mode) {
    if (mode != CU_STREAM_CAPTURE_MODE_RELAXED) REAL(cuThreadExchangeStreamCaptureMode)(&mode);
}

bool streams_capturing(CUstream stream) {
    int status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = REAL(cuStreamIsCapturing)(stream, &status);
    return result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static long this_thread(void) {
    static _Thread_local long id;
    if (!id) id = syscall(SYS_gettid);
    return id;
}

/* Makes a context current for the calls up to `leave`; false if it is no more. */
static bool enter(CUcontext context, bool *pushed) {
    CUcontext current = NULL;
    *pushed = REAL(cuCtxGetCurrent)(&current) != CUDA_SUCCESS || current != context;
    return !*pushed || REAL(cuCtxPushCurrent_v2)(context) == CUDA_SUCCESS;
}

static void leave(bool pushed) {
    CUcontext ours;
    if (pushed) REAL(cuCtxPopCurrent_v2)(&ours);
}

static bool record(struct used_stream *used, CUevent event) {
    if (used->gone || (used->thread && used->thread != this_thread()) || streams_capturing(used->stream)) return false;
    return REAL(cuEventRecord)(event, used->stream) == CUDA_SUCCESS;
}

static bool passed(CUevent event) { return REAL(cuEventQuery)(event) != CUDA_ERROR_NOT_READY; }

/* ---- captures ------------------------------------------------------------------------------------------- */

void streams_hold(struct streams *streams, CUstream stream) {
    int mode = streams_relax(); /* this thread may be capturing another one */
    take(streams);
    for (int i = 0; i < streams->high; i++) {
        struct used_stream *used = &streams->used[i];
        if (!used->context || used->stream != stream || used->recorded == used->launches) continue;
        if (record(used, used->last)) used->recorded = used->launches;
    }
    streams_restore(mode);
}

void streams_let_go(struct streams *streams) { lock_release(&streams->lock); }

/* ---- entries -------------------------------------------------------------------------------------------- */

static bool same(const struct used_stream *used, CUcontext context, CUstream stream, long thread) {
    return used->context == context && used->stream == stream && used->thread == thread && !used->gone;
}

static void destroy_events(struct used_stream *used) {
    CUevent *events[] = {&used->marks[0], &used->marks[1], &used->last};
    for (int i = 0; i < 3; i++)
        if (*events[i]) REAL(cuEventDestroy_v2)(*events[i]);
}

static bool create_events(struct used_stream *used) {
    CUevent *events[] = {&used->marks[0], &used->marks[1], &used->last};
    for (int i = 0; i < 3; i++)
        if (REAL(cuEventCreate)(events[i], CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return false;
    return true;
}

static void free_entry(struct used_stream *used) {
    bool pushed;
    if (used->context && enter(used->context, &pushed)) {
        destroy_events(used);
        leave(pushed);
    }
    memset(used, 0, sizeof *used);
}

/* A new entry, a free one, or the one that has rested longest; one with work in flight only if all have. */
static struct used_stream *make_room(struct streams *streams) {
    struct used_stream *oldest = NULL;
    if (streams->high < STREAMS) return &streams->used[streams->high++];
    for (int i = 0; i < STREAMS; i++) {
        struct used_stream *used = &streams->used[i];
        if (!used->context) return used;
        bool rests = used->finished == used->launches, oldest_rests = oldest && oldest->finished == oldest->launches;
        if (!oldest || rests > oldest_rests || (rests == oldest_rests && used->used < oldest->used)) oldest = used;
    }
    free_entry(oldest);
    return oldest;
}

static struct used_stream *entry_of(struct streams *streams, CUcontext context, CUstream stream) {
    long thread = stream == CU_STREAM_PER_THREAD ? this_thread() : 0;
    for (int i = 0; i < streams->high; i++)
        if (same(&streams->used[i], context, stream, thread)) return &streams->used[i];
    struct used_stream *used = make_room(streams);
    bool pushed;
    *used = (struct used_stream){.context = context, .stream = stream, .thread = thread};
    if (!enter(context, &pushed)) return memset(used, 0, sizeof *used), NULL;
    bool created = create_events(used);
    leave(pushed);
    if (!created) free_entry(used);
    return created ? used : NULL;
}

/* ---- launches ------------------------------------------------------------------------------------------- */

static unsigned active_streams(const struct streams *streams) {
    unsigned active = 0;
    for (int i = 0; i < streams->high; i++) active += streams->used[i].finished < streams->used[i].launches;
    return active ? active : 1;
}

struct mark streams_launched(struct streams *streams, CUcontext context, CUstream stream, unsigned spacing) {
    struct mark mark = {.wait = false};
    take(streams);
    struct used_stream *used = entry_of(streams, context, stream);
    if (used) {
        used->used = ++streams->uses;
        used->launches++;
        used->since++;
        if (used->thread && record(used, used->last)) used->recorded = used->launches;
        if (used->since * active_streams(streams) >= spacing && record(used, used->marks[(used->marked + 1) % 2])) {
            mark = (struct mark){.entry = (unsigned)(used - streams->used), .number = used->marked, .stream = stream,
                                 .wait = used->marked > 0};
            used->marked++;
            used->since = 0;
        }
    }
    lock_release(&streams->lock);
    return mark;
}

bool streams_passed(struct streams *streams, const struct mark *mark) {
    struct used_stream *used = &streams->used[mark->entry];
    int mode = streams_relax(); /* another thread may begin to capture at any time, and the question would break that */
    take(streams);
    bool gone = !used->context || used->stream != mark->stream || used->marked < mark->number;
    bool done = gone || used->endless || passed(used->marks[mark->number % 2]);
    lock_release(&streams->lock);
    streams_restore(mode);
    return done;
}

/* ---- the helper's questions ----------------------------------------------------------------------------- */

static bool finish(struct used_stream *used) {
    bool pushed;
    if (!enter(used->context, &pushed)) {
        memset(used, 0, sizeof *used);
        return true;
    }
    used->endless = used->endless && !passed(used->last);
    bool current = used->endless || used->recorded == used->launches;
    /* A stream may have joined a capture while we recorded; an event in there must not be asked for. */
    if (!current && (current = record(used, used->last) && !streams_capturing(used->stream)))
        used->recorded = used->launches;
    if (!current || used->endless || passed(used->last)) used->finished = used->launches;
    leave(pushed);
    if (used->gone && used->finished == used->launches) free_entry(used);
    return !used->context || used->finished == used->launches;
}

bool streams_busy(struct streams *streams) {
    bool busy = false;
    take(streams);
    for (int i = 0; i < streams->high && !busy; i++) {
        struct used_stream *used = &streams->used[i];
        if (used->context && used->finished < used->launches) busy = !finish(used);
    }
    lock_release(&streams->lock);
    return busy;
}

void streams_give_up(struct streams *streams) {
    take(streams);
    for (int i = 0; i < streams->high; i++)
        if (streams->used[i].finished < streams->used[i].launches) streams->used[i].endless = true;
    lock_release(&streams->lock);
}

unsigned streams_in_flight(struct streams *streams, unsigned spacing) {
    uint64_t launches = 0;
    take(streams);
    for (int i = 0; i < streams->high; i++) {
        const struct used_stream *used = &streams->used[i];
        uint64_t unfinished = used->launches - used->finished, ahead = used->since + (used->marked ? spacing : 0);
        launches += unfinished < ahead ? unfinished : ahead;
    }
    lock_release(&streams->lock);
    return (unsigned)launches;
}

void streams_forget(struct streams *streams, CUcontext context, CUstream stream) {
    take(streams);
    for (int i = 0; i < streams->high; i++) {
        struct used_stream *used = &streams->used[i];
        if (!used->context || (context && used->context != context) || (stream && used->stream != stream)) continue;
        if (context) {
            memset(used, 0, sizeof *used); /* its events go with it */
            continue;
        }
        if (used->finished < used->launches && used->recorded < used->launches && record(used, used->last))
            used->recorded = used->launches;
        if (used->recorded < used->launches) used->finished = used->launches;
        used->gone = true;
        if (used->finished == used->launches) free_entry(used);
    }
    lock_release(&streams->lock);
}
