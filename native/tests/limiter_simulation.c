/*
 * Turns in simulated time: gate.c, turn.c, token.c, turns.c and credit.c as they are, with a clock, futexes and a GPU
 * that exist only here.
 *
 * Each tenant is two coroutines, the program that launches and its helper. Sleeping hands over to whoever is due next,
 * so a minute of turns takes seconds, every run is the same to the nanosecond, and shares can be held to tenths of a
 * point on any machine. The GPU serves tenants whose work is there at the same time in equal slices, and takes
 * SWITCH to change contexts; waking a thread takes WAKE.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "futex.h"
#include "gate.h"

#define WAKE (30 * US)
#define SWITCH (150 * US)
#define COLD (500 * US) /* what a thread that works much between launches loses after a wait */
enum { GAP_EVERY = 50, TENANTS = 24, STACK = 128 * 1024 };

/* ---- coroutines and time ------------------------------------------------------------------------------------ */

struct routine {
    void *at; /* its stack pointer while it does not run */
    char *stack;
    int64_t due; /* INT64_MAX: never by itself */
    const void *word; /* the futex it waits on */
    void (*body)(int);
    int number;
};

static struct routine routines[2 * TENANTS];
static struct routine *running;
static int routine_count;
static int64_t now_ns;
static void *scheduler;

/* Saves what a call must keep, changes stacks, and goes on there. swapcontext would make two system calls. */
void change_stacks(void **from, void **to);
__asm__(".text\n.globl change_stacks\nchange_stacks:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp, (%rdi)\nmov (%rsi), %rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");

int64_t clock_now(void) {
    now_ns += 40; /* looking at the clock takes time, so that loops that only look end */
    return now_ns;
}

static void hand_over(int64_t due) {
    struct routine *me = running;
    me->due = due;
    change_stacks(&me->at, &scheduler);
}

void clock_sleep(int64_t nanoseconds) {
    if (nanoseconds > 0) hand_over(now_ns + nanoseconds + 5 * US);
}

void clock_pause(void) { hand_over(now_ns + US); }

static uint32_t value_at(const void *word, enum futex_scope scope);

bool futex_wait(const void *word, uint32_t value, int64_t timeout, enum futex_scope scope) {
    if (value_at(word, scope) != value) return true;
    running->word = word;
    hand_over(timeout ? now_ns + timeout : INT64_MAX);
    running->word = NULL;
    return true;
}

/* The futexes of a token are addresses in each tenant's own map of the file; they stand for the same page offset. */
static uintptr_t same_word(const void *word, enum futex_scope scope) {
    return scope == FUTEX_SHARED ? (uintptr_t)word % 4096 : (uintptr_t)word;
}

void futex_wake(const void *word, enum futex_scope scope) {
    for (int i = 0; i < routine_count; i++)
        if (routines[i].word && same_word(routines[i].word, scope) == same_word(word, scope) &&
            routines[i].due > now_ns + WAKE)
            routines[i].due = now_ns + WAKE;
}

static void run_until(int64_t end) {
    for (;;) {
        struct routine *next = NULL;
        for (int i = 0; i < routine_count; i++)
            if (!next || routines[i].due < next->due) next = &routines[i];
        if (!next || next->due > end) break;
        if (next->due > now_ns) now_ns = next->due;
        running = next;
        change_stacks(&scheduler, &next->at);
    }
    if (now_ns < end) now_ns = end;
}

/* ---- the shared file, in memory so that a second of polls costs nothing (see the Makefile) ------------------- */

static char file[sizeof(struct turns)];

ssize_t simulated_pread(int fd, void *to, size_t bytes, off_t at) {
    (void)fd;
    memcpy(to, file + at, bytes);
    return (ssize_t)bytes;
}

static int doomed = -1, writes_left; /* who is killed in the middle of which of its writes */
static void die(int number);

ssize_t simulated_pwrite(int fd, const void *from, size_t bytes, off_t at) {
    (void)fd;
    bool last = running && running->number == doomed && --writes_left == 0;
    if (last && bytes > 8) bytes = 8;
    memcpy(file + at, from, bytes);
    if (last) die(doomed);
    return (ssize_t)bytes;
}

static uint32_t value_at(const void *word, enum futex_scope scope) {
    uint32_t value;
    if (scope == FUTEX_HERE) return *(const volatile uint32_t *)word;
    memcpy(&value, file + (uintptr_t)word % 4096, sizeof value); /* slots in use lie in the first page */
    return value;
}

int simulated_flock(int fd, int operation) {
    (void)fd, (void)operation;
    return 0;
}

/* ---- the GPU ------------------------------------------------------------------------------------------------ */

static int64_t gpu_at; /* how far it has been simulated */
static int gpu_tenant = -1;

/* What streams.c tells about the real one, for one stream a tenant. Work is counted in ns of a GPU of one's own. */
struct simulated {
    int64_t given, done, marks[2];
    unsigned since, marked;
    bool endless;
} queues[TENANTS];

/* Tenants whose work is there at the same time are served in equal slices. */
static void advance(void) {
    while (gpu_at < now_ns) {
        int64_t least = INT64_MAX, tenants = 0;
        for (int i = 0; i < TENANTS; i++) {
            int64_t left = queues[i].given - queues[i].done;
            if (left > 0 && left < least) least = left;
            tenants += left > 0;
        }
        int64_t each = tenants ? (now_ns - gpu_at + tenants - 1) / tenants : 0;
        if (each > least) each = least;
        for (int i = 0; i < TENANTS; i++)
            if (queues[i].given > queues[i].done) queues[i].done += each;
        gpu_at = tenants ? gpu_at + each * tenants : now_ns;
    }
}

static int64_t unfinished(const struct simulated *queue) {
    advance();
    return queue->given - queue->done;
}

static int tenant_of(const struct streams *streams);

struct mark streams_launched(struct streams *streams, CUcontext context, CUstream stream, unsigned spacing) {
    (void)context;
    int tenant = tenant_of(streams);
    struct simulated *queue = &queues[tenant];
    struct mark mark = {.wait = false};
    advance();
    queue->given += (int64_t)(uintptr_t)stream + (gpu_tenant != tenant ? SWITCH : 0);
    gpu_tenant = tenant;
    if (++queue->since >= spacing) {
        mark = (struct mark){.entry = 0, .number = queue->marked, .wait = queue->marked > 0};
        queue->marks[++queue->marked % 2] = queue->given;
        queue->since = 0;
    }
    return mark;
}

bool streams_passed(struct streams *streams, const struct mark *mark) {
    struct simulated *queue = &queues[tenant_of(streams)];
    now_ns += 100;
    advance();
    return queue->endless || queue->marks[mark->number % 2] <= queue->done;
}

bool streams_busy(struct streams *streams) {
    struct simulated *queue = &queues[tenant_of(streams)];
    now_ns += 200;
    if (unfinished(queue) <= 0) queue->endless = false;
    return unfinished(queue) > 0 && !queue->endless;
}

void streams_give_up(struct streams *streams) {
    queues[tenant_of(streams)].endless = unfinished(&queues[tenant_of(streams)]) > 0;
}

unsigned streams_in_flight(struct streams *streams, unsigned spacing) {
    struct simulated *queue = &queues[tenant_of(streams)];
    return unfinished(queue) > 0 ? queue->since + (queue->marked ? spacing : 0) : 0;
}

/* ---- tenants ------------------------------------------------------------------------------------------------ */

struct tenant {
    struct gate gate;
    int64_t kernel, host, pause, queue; /* ns of a kernel, of CPU work before it, of a pause after it; in flight */
    int64_t gap;                        /* ns of more CPU work before every GAP_EVERY-th kernel */
    int64_t copy;                       /* ns of a copy from the host in place of that kernel, for which it waits */
    int64_t done, began, longest, last;
    double full_rate;
    int64_t latencies[4096];
    int requests;
    bool stopped; /* nothing of it runs */
} *tenants;
static int tenant_count;
static double scale = 0.4; /* of all durations; TEST_SIZE=big: 3 */
static size_t stride = 1;  /* from one kind of work to the next that is tried; TEST_SIZE=small: 6 */
static char folder[] = "/tmp/subak-simulation-XXXXXX";

static int tenant_of(const struct streams *streams) {
    for (int i = 0; i < tenant_count; i++)
        if (&tenants[i].gate.streams == streams) return i;
    abort();
}

static void sleep_if_stopped(struct tenant *tenant) {
    while (tenant->stopped) clock_sleep(MS);
}

static void program(int number) {
    struct tenant *tenant = &tenants[number];
    struct simulated *queue = &queues[number];
    for (;;) {
        if (tenant->host) hand_over(now_ns + tenant->host + (tenant->done % GAP_EVERY ? 0 : tenant->gap));
        int64_t asked = now_ns;
        sleep_if_stopped(tenant);
        bool gated = tenant->gate.engaged;
        if (gated) gate_enter(&tenant->gate);
        if (tenant->host && now_ns - asked > 5 * MS) hand_over(now_ns + COLD);
        hand_over(now_ns + (tenant->copy && tenant->done % GAP_EVERY == 0 ? tenant->copy : 3 * US)); /* the launch */
        if (gated) gate_leave(&tenant->gate, NULL, (CUstream)(uintptr_t)tenant->kernel, true);
        else streams_launched(&tenant->gate.streams, NULL, (CUstream)(uintptr_t)tenant->kernel, 1000);
        for (int64_t left; (left = unfinished(queue) - tenant->queue * tenant->kernel) > 0;) clock_sleep(left);
        tenant->done++;
        if (tenant->last && now_ns - tenant->last > tenant->longest) tenant->longest = now_ns - tenant->last;
        tenant->last = now_ns;
        if (tenant->pause) {
            if (tenant->requests < 4096) tenant->latencies[tenant->requests++] = now_ns - asked;
            clock_sleep(tenant->pause - (now_ns - asked));
        }
    }
}

static void helper(int number) {
    struct tenant *tenant = &tenants[number];
    for (;;) {
        sleep_if_stopped(tenant);
        turn_step(&tenant->gate);
    }
}

static void start(void) {
    running->body(running->number);
    abort(); /* routines never end */
}

static void add_routine(void (*body)(int), int number) {
    struct routine *routine = &routines[routine_count++];
    *routine = (struct routine){.stack = aligned_alloc(16, STACK), .due = now_ns + number * 10 * US};
    routine->body = body;
    routine->number = number;
    void **top = (void **)(routine->stack + STACK) - 3; /* a function begins with the stack off by 8 */
    *--top = (void *)start; /* where the first change returns to, past six saved registers */
    routine->at = top - 6;
}

static double full_rate(int64_t kernel, int64_t queue, int64_t host);

static struct tenant *add(unsigned percent, int64_t kernel, int64_t queue, int64_t host) {
    struct tenant *tenant = &tenants[tenant_count];
    *tenant = (struct tenant){.kernel = kernel, .queue = queue, .host = host};
    tenant->full_rate = full_rate(kernel, queue, host);
    gate_init(&tenant->gate, 0, percent);
    token_init(&tenant->gate.token, folder, "gpu");
    tenant->gate.engaged = true;
    add_routine(program, tenant_count);
    add_routine(helper, tenant_count);
    tenant_count++;
    return tenant;
}

static void reset(void) {
    for (int i = 0; i < tenant_count; i++) token_close(&tenants[i].gate.token);
    for (int i = 0; i < routine_count; i++) free(routines[i].stack);
    memset(queues, 0, sizeof queues);
    memset(routines, 0, sizeof routines);
    tenant_count = routine_count = 0;
    gpu_tenant = -1;
    now_ns += SECOND;
    memset(file, 0, sizeof file);
}

/* Lets a second pass, then counts for `seconds`. */
static void measure(double seconds) {
    run_until(now_ns + SECOND);
    for (int i = 0; i < tenant_count; i++) tenants[i].done = tenants[i].longest = tenants[i].requests = 0;
    int64_t began = now_ns;
    run_until(now_ns + (int64_t)(seconds * scale * 1e9));
    for (int i = 0; i < tenant_count; i++) tenants[i].began = now_ns - began;
}

static double rate(const struct tenant *tenant) { return (double)tenant->done / (double)tenant->began; }

/* Work done, relative to the same work alone and without any gate. */
static double share(const struct tenant *tenant) { return rate(tenant) / tenant->full_rate * 100; }

/* Known without a simulation: work takes turns between CPU and GPU, or the slower of them decides. */
static double full_rate(int64_t kernel, int64_t queue, int64_t host) {
    int64_t launching = host + 3 * US;
    int64_t each = queue ? (kernel > launching ? kernel : launching) : kernel + launching + 5 * US;
    return 1.0 / (double)each;
}

static int failures;

static void expect(const char *what, double got, double wanted, double within) {
    bool good = fabs(got - wanted) <= within;
    if (!good || getenv("VERBOSE")) printf("%s %-58s %7.2f, wanted %.1f +- %.1f\n", good ? "ok  " : "FAIL", what, got, wanted, within);
    failures += !good;
}

/* ---- what is promised --------------------------------------------------------------------------------------- */

static const struct kind {
    const char *name;
    int64_t kernel, queue, host, gap;
} kinds[] = {
    {.name = "2 ms one at a time", .kernel = 2 * MS},
    {.name = "2 ms queued", .kernel = 2 * MS, .queue = 50},
    {.name = "0.3 ms one at a time", .kernel = 300 * US},
    {.name = "1 ms queued", .kernel = 1 * MS, .queue = 50},
    {.name = "20 ms one at a time", .kernel = 20 * MS},
    {.name = "2 us, bound by the CPU", .kernel = 2 * US, .queue = 1000, .host = 4 * US},
    {.name = "50 us, bound by the CPU", .kernel = 50 * US, .queue = 4, .host = 60 * US},
    {.name = "training step", .kernel = 20 * US, .queue = 1000, .host = 35 * US, .gap = 600 * US},
};
enum { TRAINING = sizeof kinds / sizeof *kinds - 1 };

static struct tenant *add_kind(const struct kind *kind, unsigned percent) {
    struct tenant *tenant = add(percent, kind->kernel, kind->queue, kind->host);
    tenant->gap = kind->gap;
    tenant->full_rate = full_rate(kind->kernel, kind->queue, kind->host + kind->gap / GAP_EVERY);
    return tenant;
}

static void alone(void) {
    static const unsigned limits[] = {5, 10, 25, 50, 75, 90};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k += stride)
        for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
            char what[96];
            reset();
            struct tenant *tenant = add_kind(&kinds[k], limits[i]);
            measure(10);
            snprintf(what, sizeof what, "%s, alone at %u", kinds[k].name, limits[i]);
            expect(what, share(tenant), limits[i], kinds[k].host ? 2.0 : 1.0);
        }
}

static void contended(void) {
    static const unsigned sets[][5] = {{30, 60}, {50, 50}, {25, 25, 25, 25}, {10, 90}, {30, 100}, {20, 20, 20}, {80, 80}};
    static const double wanted[][5] = {{30, 60}, {50, 50}, {25, 25, 25, 25}, {10, 90}, {30, 70}, {20, 20, 20}, {50, 50}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k += stride)
        for (size_t s = 0; s < sizeof sets / sizeof *sets; s++) {
            char what[96];
            double total = 0, sum = 0;
            reset();
            for (int i = 0; sets[s][i]; i++) add_kind(&kinds[k], sets[s][i] == 100 ? 0 : sets[s][i]);
            measure(10);
            for (int i = 0; sets[s][i]; i++) {
                snprintf(what, sizeof what, "%s, tenant %d of %u+%u...", kinds[k].name, i, sets[s][0], sets[s][1]);
                expect(what, share(&tenants[i]), wanted[s][i], kinds[k].host ? 4.0 : 2.0);
                total += share(&tenants[i]);
                sum += wanted[s][i];
            }
            snprintf(what, sizeof what, "%s, total of %u+%u...", kinds[k].name, sets[s][0], sets[s][1]);
            expect(what, total, sum, kinds[k].host ? 4.0 : 3.0);
        }
}

static void unequal(void) {
    for (size_t a = 0; a < sizeof kinds / sizeof *kinds; a++)
        for (size_t b = (a - 1) % stride; b < a; b += stride) {
            char what[96];
            reset();
            add_kind(&kinds[a], 50);
            add_kind(&kinds[b], 50);
            measure(10);
            for (int i = 0; i < 2; i++) {
                snprintf(what, sizeof what, "%s beside %s", kinds[i ? b : a].name, kinds[i ? a : b].name);
                expect(what, share(&tenants[i]), 50, kinds[i ? b : a].host ? 4.0 : 3.0);
            }
        }
}

/* A turn that ends in a copy looks as if the GPU were behind; the tenant is bound by its CPU all the same. */
static void training_with_copies(void) {
    const struct kind *kind = &kinds[TRAINING];
    for (int count = 1; count <= 2; count++) {
        unsigned limit = count == 1 ? 60 : 50, quick = 0, looks = 0;
        reset();
        for (int i = 0; i < count; i++) {
            struct tenant *tenant = add_kind(kind, limit);
            tenant->copy = 5 * MS;
            tenant->full_rate = full_rate(kind->kernel, kind->queue, kind->host + (kind->gap + tenant->copy) / GAP_EVERY);
        }
        measure(10);
        for (int i = 0; i < count; i++)
            expect(count == 1 ? "training with copies, alone at 60" : "training with copies, one of two at 50",
                   share(&tenants[i]), limit, 3.0);
        for (; looks < 500; looks++, run_until(now_ns + 10 * MS)) quick += tenants[0].gate.quick;
        expect("training with copies is taken for bound by its CPU", quick * 100.0 / looks, 100, 5);
    }
}

static void training_beside_gemm(void) {
    reset();
    add(70, 1600 * US, 4, 0);
    add_kind(&kinds[TRAINING], 30);
    measure(10);
    expect("gemm at 70 beside a training step", share(&tenants[0]), 70, 2.0);
    expect("a training step at 30 beside gemm", share(&tenants[1]), 30, 3.0);
}

static void many(void) {
    double least = 100, most = 0;
    reset();
    for (int i = 0; i < 20; i++) add(5, 1 * MS, 50, 0);
    measure(20);
    for (int i = 0; i < 20; i++) {
        least = fmin(least, share(&tenants[i]));
        most = fmax(most, share(&tenants[i]));
    }
    expect("the least of 20 tenants at 5", least, 5, 0.6);
    expect("the most of 20 tenants at 5", most, 5, 0.6);
    reset();
    for (int i = 0; i < 8; i++) add(0, 2 * MS, 50, 0);
    add(20, 2 * MS, 50, 0);
    measure(10);
    expect("20 beside eight without limit", share(&tenants[8]), 11, 3.0);
}

static void processes_of_a_container(void) {
    static struct account shared;
    reset();
    atomic_store(&shared.paid, now_ns);
    for (int i = 0; i < 2; i++) add(50, 2 * MS, 0, 0)->gate.account = &shared;
    measure(10);
    expect("two processes of a container at 50, together", share(&tenants[0]) + share(&tenants[1]), 50, 1.0);
    expect("the first of them", share(&tenants[0]), 25, 3.0);
    add(50, 2 * MS, 0, 0);
    measure(10);
    expect("the same beside another container at 50", share(&tenants[0]) + share(&tenants[1]), 50, 2.0);
    expect("the first of them now", share(&tenants[0]), 25, 3.0);
    expect("that other container", share(&tenants[2]), 50, 2.0);
}

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static void a_light_request(void) {
    reset();
    add(50, 1600 * US, 50, 0);
    struct tenant *light = add(50, 1 * MS, 0, 0);
    light->pause = 20 * MS;
    measure(20);
    qsort(light->latencies, (size_t)light->requests, sizeof(int64_t), by_value);
    double p99 = (double)light->latencies[light->requests * 99 / 100] / 1e6;
    expect("p99 in ms of 1 ms every 20 ms beside gemm at 50", p99, 3, 2);
    expect("gemm meanwhile", share(&tenants[0]), 50, 2.0);
}

static void long_kernels_are_paid_back(void) {
    reset();
    add(10, 1000 * MS, 0, 0);
    measure(1000);
    expect("kernels of 1 s at 10", share(&tenants[0]), 10, 1.0);
    reset();
    add(25, 3000 * MS, 0, 0); /* longer than a drain waits */
    add(50, 2 * MS, 50, 0);
    measure(500);
    expect("50 beside kernels of 3 s at 25", share(&tenants[1]), 37, 5);
    expect("and those", share(&tenants[0]), 25, 3);
}

/* It may wait for what its program launches next, so that must come to pass at last. */
static void work_that_never_ends(void) {
    reset();
    add(50, 1000000 * SECOND, 1000, 0);
    run_until(now_ns + 200 * SECOND);
    expect("launches behind a kernel that never ends (or 100)", fmin((double)tenants[0].done, 100), 100, 0);
    reset();
    add(30, 1000000 * SECOND, 1000, 0);
    add(60, 2 * MS, 0, 0);
    run_until(now_ns + 400 * SECOND);
    expect("the same beside another tenant", fmin((double)tenants[0].done, 100), 100, 0);
    expect("who goes on (or 10000 times)", fmin((double)tenants[1].done, 10000), 10000, 0);
}

/* Work that outlasted its turn and ended long ago has left no debt behind. */
static void a_pause_after_long_work(void) {
    reset();
    struct tenant *tenant = add(50, 3000 * MS, 0, 0);
    add(50, 2 * MS, 50, 0);
    tenant->pause = 30 * SECOND;
    run_until(now_ns + 20 * SECOND);
    tenant->kernel = 2 * MS, tenant->pause = 0, tenant->full_rate = full_rate(2 * MS, 0, 0);
    run_until(now_ns + 11 * SECOND);
    measure(10);
    expect("after 3 s of work and a long pause", share(tenant), 50, 2.0);
}

/* Who had no limit has saved nothing up when it gets one. */
static void a_new_limit(void) {
    reset();
    add(30, 2 * MS, 50, 0);
    add(0, 2 * MS, 50, 0);
    measure(2);
    tenants[1].gate.percent = 60;
    tenants[1].done = 0;
    int64_t began = now_ns;
    run_until(now_ns + SECOND);
    tenants[1].began = now_ns - began;
    expect("the first second with a limit of 60, beside 30", share(&tenants[1]), 60, 2.0);
}

/* An account in a file of the container, which the gate looks after. */
static struct account in_a_file;
static void look_at_file(void) {}

static void add_with_account_in_a_file(unsigned percent) {
    struct tenant *tenant = add(percent, 2 * MS, 0, 0);
    atomic_store(&in_a_file.paid, 0);
    tenant->gate.account = &in_a_file;
    tenant->gate.look = look_at_file;
}

/* Whatever somebody wrote there, or left there before a reboot: the tenant works on, and within its limit. */
static void nonsense_in_the_account(void) {
    static const int64_t words[] = {0, INT64_MIN, -1, 1, INT64_MAX - SECOND, INT64_MAX};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        reset();
        add_with_account_in_a_file(25);
        run_until(now_ns + SECOND);
        atomic_store(&in_a_file.paid, words[i] ? words[i] : now_ns + 24 * 3600 * SECOND);
        measure(5);
        expect("25 after nonsense was written into the account", share(&tenants[0]), 25, 1.0);
    }
}

/* Who deletes the file again and again has a new account each time, and no more GPU time. */
static void an_account_that_is_deleted(void) {
    reset();
    add_with_account_in_a_file(25);
    run_until(now_ns + SECOND);
    tenants[0].done = 0;
    int64_t began = now_ns;
    for (int i = 0; i < 200; i++) {
        atomic_store(&in_a_file.paid, 0);
        run_until(now_ns + 30 * MS);
    }
    tenants[0].began = now_ns - began;
    expect("25 while the account is deleted again and again", share(&tenants[0]), 25, 2.0);
}

/* The monitor's word also counts in the middle of a turn that nothing else would end. */
static void a_block_in_a_turn(void) {
    reset();
    add(0, 2 * MS, 50, 0);
    run_until(now_ns + SECOND);
    tenants[0].gate.blocked = true;
    run_until(now_ns + SECOND);
    tenants[0].done = 0;
    run_until(now_ns + SECOND);
    expect("launches of a tenant that is blocked in its turn", (double)tenants[0].done, 0, 0);
    tenants[0].gate.blocked = false;
    run_until(now_ns + SECOND);
    expect("and afterwards (or 400)", fmin((double)tenants[0].done, 400), 400, 0);
}

static void a_stopped_neighbour(void) {
    reset();
    add(50, 2 * MS, 0, 0);
    add(50, 2 * MS, 0, 0);
    measure(2);
    tenants[0].longest = 0;
    tenants[1].stopped = true; /* its heartbeat too */
    run_until(now_ns + SECOND);
    expect("longest pause in ms beside a stopped tenant", (double)tenants[0].longest / 1e6, 35, 25);
    tenants[1].stopped = false;
    measure(5);
    expect("after it goes on", share(&tenants[0]), 50, 2.0);
    expect("and the one that was stopped has no debt", share(&tenants[1]), 50, 2.0);
}

/* SIGKILL: nothing of it runs any more, and the GPU drops its work. */
static void die(int number) {
    for (int i = 0; i < routine_count; i++)
        if (routines[i].number == number) routines[i].due = INT64_MAX, routines[i].word = NULL;
    queues[number].given = queues[number].done;
    hand_over(INT64_MAX);
}

/* 38, for the table of the turns: whatever it wrote last, nobody waits for it, and another can take its place. */
static void death_at_every_write(void) {
    double longest = 0, least = 100;
    for (int write = 1; write <= 60; write += (int)stride) {
        reset();
        add(50, 2 * MS, 0, 0);
        add(50, 2 * MS, 50, 0);
        measure(0.5);
        doomed = 1, writes_left = write, tenants[0].longest = 0;
        run_until(now_ns + SECOND);
        expect("writes that are left of it", writes_left, 0, 0);
        doomed = -1;
        longest = fmax(longest, (double)tenants[0].longest / 1e6);
        struct tenant *next = add(50, 2 * MS, 50, 0);
        measure(1);
        least = fmin(least, fmin(share(&tenants[0]), share(next)));
    }
    expect("longest pause in ms beside a tenant that is killed at a write", longest, 35, 25);
    expect("the least share after that, with another in its place", least, 50, 3.0);
}

static void a_change_of_kernels(void) {
    reset();
    add(50, 20 * US, 50000, 0);
    add(50, 2 * MS, 50, 0);
    measure(3);
    tenants[0].kernel = 5 * MS;
    tenants[0].full_rate = full_rate(5 * MS, 50000, 0);
    tenants[1].longest = 0;
    run_until(now_ns + SECOND);
    expect("pause in ms when a neighbour's kernels grow from 20 us to 5 ms", (double)tenants[1].longest / 1e6, 0, 700);
    measure(10);
    expect("then its share", share(&tenants[0]), 50, 2.0);
}

int main(void) {
    tenants = calloc(TENANTS, sizeof *tenants);
    if (!mkdtemp(folder)) return 1;
    const char *size = getenv("TEST_SIZE");
    if (size && !strcmp(size, "small")) stride = 6;
    else if (size) scale = 3;
    alone();
    contended();
    unequal();
    training_beside_gemm();
    training_with_copies();
    many();
    processes_of_a_container();
    a_light_request();
    long_kernels_are_paid_back();
    work_that_never_ends();
    a_pause_after_long_work();
    a_new_limit();
    nonsense_in_the_account();
    an_account_that_is_deleted();
    a_block_in_a_turn();
    a_stopped_neighbour();
    death_at_every_write();
    a_change_of_kernels();
    reset();
    char path[256];
    snprintf(path, sizeof path, "%s/subak-gpu", folder);
    unlink(path);
    rmdir(folder);
    printf("limiter_simulation: %s\n", failures ? "FAILED" : "ok");
    return failures != 0;
}
