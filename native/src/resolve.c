/*
 * dlsym, dlvsym, dlopen and dlmopen as the program sees them.
 *
 * The C library looks at the return address to know who asks: RTLD_NEXT starts behind the caller, and dlopen uses
 * the caller's RUNPATH. A wrapper that calls on would make every caller look like libsubak. So each entry is a few
 * instructions that ask a C function where to go and then *jump* there with the arguments as they were; the return
 * address stays the program's. The answer is the next dlsym behind us, or for one of our own names a function that
 * looks the name up and exchanges what it finds for the wrapper.
 *
 * The next dlsym cannot be found with dlsym, since that is us, nor with dlvsym. It is found by walking the symbol
 * tables of the objects loaded behind this one, in search order: what RTLD_NEXT does, without calling anything that
 * is hooked. Not even dl_iterate_phdr: programs and sanitizers have one of their own, which looks the next one up.
 *
 * RTLD_DEEPBIND would let a plugin bind past every preloaded library, so it is cleared. A second namespace (dlmopen)
 * would bring a driver that we do not stand in front of, so the driver is always opened in the first one, and so is a
 * file that turns out to be linked to it. Only of files that are named by a path: where a bare name is searched for
 * depends on who asks, and we would find another file than the program.
 */
#define _GNU_SOURCE
#include "resolve.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "hooks.h"

#ifndef __x86_64__
#error "resolve.c knows the calling convention of x86-64 only"
#endif

enum loader { DLSYM, DLVSYM, DLOPEN, DLMOPEN, LOADERS };
static const char *const loader_names[LOADERS] = {"dlsym", "dlvsym", "dlopen", "dlmopen"};
static _Atomic(void *) next[LOADERS];

/* strcmp and strstr of our own: memory checkers hook those, and look functions up before they are ready to be called. */
static bool same(const char *left, const char *right) {
    while (*left && *left == *right) left++, right++;
    return *left == *right;
}

static bool contains(const char *text, const char *part) {
    for (; *text; text++) {
        const char *a = text, *b = part;
        while (*b && *a == *b) a++, b++;
        if (!*b) return true;
    }
    return false;
}

/* ---- loaded objects -------------------------------------------------------------------------------------- */

static bool holds(const struct dl_phdr_info *object, const void *address) {
    for (int i = 0; i < object->dlpi_phnum; i++) {
        uintptr_t start = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr;
        if (object->dlpi_phdr[i].p_type == PT_LOAD && (uintptr_t)address - start < object->dlpi_phdr[i].p_memsz)
            return true;
    }
    return false;
}

static bool is_us(const struct dl_phdr_info *object) { return holds(object, &next); }

static bool is_vdso(const struct dl_phdr_info *object) {
    return object->dlpi_name && contains(object->dlpi_name, "vdso");
}

static bool is_driver(const char *file) { return contains(file, "libcuda.so") || contains(file, "libnvidia-ml.so"); }

struct tables {
    const ElfW(Sym) *symbols;
    const char *strings;
    const uint32_t *hash, *old_hash; /* of one at least */
};

static const void *loaded_at(ElfW(Addr) base, ElfW(Addr) value) {
    /* glibc has relocated most of these in place, musl and the vDSO have not. */
    return (const void *)(value < base ? value + base : value);
}

static bool read_tables(ElfW(Addr) base, const ElfW(Dyn) *entry, struct tables *tables) {
    *tables = (struct tables){0};
    for (; entry && entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB) tables->symbols = loaded_at(base, entry->d_un.d_ptr);
        if (entry->d_tag == DT_STRTAB) tables->strings = loaded_at(base, entry->d_un.d_ptr);
        if (entry->d_tag == DT_GNU_HASH) tables->hash = loaded_at(base, entry->d_un.d_ptr);
        if (entry->d_tag == DT_HASH) tables->old_hash = loaded_at(base, entry->d_un.d_ptr);
    }
    return tables->symbols && tables->strings && (tables->hash || tables->old_hash);
}

static const ElfW(Dyn) *dynamic_of(const struct dl_phdr_info *object) {
    for (int i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == PT_DYNAMIC)
            return (const ElfW(Dyn) *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
    return NULL;
}

static bool is(const struct tables *tables, uint32_t index, const char *name) {
    const ElfW(Sym) *symbol = &tables->symbols[index];
    return symbol->st_shndx != SHN_UNDEF && same(tables->strings + symbol->st_name, name);
}

/* The number of a symbol, or 0. */
static uint32_t find_hashed(const struct tables *tables, const char *name) {
    uint32_t buckets = tables->hash[0], first = tables->hash[1], bloom_words = tables->hash[2], hash = 5381;
    for (const char *c = name; *c; c++) hash = hash * 33 + (unsigned char)*c;
    const uint32_t *bucket = tables->hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / 4), *chain = bucket + buckets;
    uint32_t index = buckets ? bucket[hash % buckets] : 0;
    if (index < first) return 0;
    for (;; index++) {
        uint32_t link = chain[index - first];
        if ((link | 1) == (hash | 1) && is(tables, index, name)) return index;
        if (link & 1) return 0;
    }
}

/* The older table tells how many symbols there are. */
static uint32_t find_listed(const struct tables *tables, const char *name) {
    for (uint32_t index = 1; index < tables->old_hash[1]; index++)
        if (is(tables, index, name)) return index;
    return 0;
}

static void *symbol_in(ElfW(Addr) base, const ElfW(Dyn) *dynamic, const char *name) {
    struct tables tables;
    if (!read_tables(base, dynamic, &tables)) return NULL;
    uint32_t index = tables.hash ? find_hashed(&tables, name) : find_listed(&tables, name);
    return index ? (void *)(base + tables.symbols[index].st_value) : NULL;
}

/* ---- the next dlsym and its kin ------------------------------------------------------------------------- */

/* The loader's own list, in search order, as debuggers read it. Another C library may not export it. */
extern struct r_debug _r_debug __attribute__((weak));

struct search {
    bool passed_us;
    void *behind[LOADERS], *anywhere[LOADERS];
};

static void look_into(struct search *search, ElfW(Addr) base, const ElfW(Dyn) *dynamic) {
    for (enum loader loader = 0; loader < LOADERS; loader++) {
        void *found = symbol_in(base, dynamic, loader_names[loader]);
        if (found && !search->anywhere[loader]) search->anywhere[loader] = found;
        if (found && search->passed_us && !search->behind[loader]) search->behind[loader] = found;
    }
}

static int look_into_next(struct dl_phdr_info *object, size_t size, void *argument) {
    (void)size;
    struct search *search = argument;
    if (is_us(object)) search->passed_us = true;
    else if (!is_vdso(object)) look_into(search, object->dlpi_addr, dynamic_of(object));
    return 0;
}

static bool found_all(const struct search *search) {
    for (enum loader loader = 0; loader < LOADERS; loader++)
        if (!search->behind[loader]) return false;
    return true;
}

/* No further than to what is wanted, which is in the C library. What the program started with comes first and stays; what
 * it opened comes behind that, and another thread may close it while we look. */
static void look_everywhere(struct search *search) {
    const struct link_map *each = &_r_debug ? _r_debug.r_map : NULL;
    if (!each) dl_iterate_phdr(look_into_next, search);
    for (; each && !found_all(search); each = each->l_next) {
        if (each->l_ld == _DYNAMIC) search->passed_us = true;
        else if (!each->l_name || !contains(each->l_name, "vdso")) look_into(search, each->l_addr, each->l_ld);
    }
}

static void *next_of(enum loader loader) {
    void *found = atomic_load_explicit(&next[loader], memory_order_acquire);
    if (__builtin_expect(found != NULL, 1)) return found;
    struct search search = {0};
    look_everywhere(&search);
    for (enum loader each = 0; each < LOADERS; each++) {
        found = search.behind[each] ? search.behind[each] : search.anywhere[each];
        if (found) atomic_store_explicit(&next[each], found, memory_order_release);
    }
    return atomic_load_explicit(&next[loader], memory_order_acquire);
}

void *resolve_open(const char *soname, int flags) {
    void *(*open)(const char *, int) = (void *(*)(const char *, int))next_of(DLOPEN);
    return open ? open(soname, flags) : NULL;
}

void *resolve_symbol(void *library, const char *name) {
    void *(*symbol)(void *, const char *) = (void *(*)(void *, const char *))next_of(DLSYM);
    return symbol ? symbol(library, name) : NULL;
}

static void close_again(void *opened) {
    int (*close)(void *) = (int (*)(void *))resolve_symbol(RTLD_DEFAULT, "dlclose");
    if (close) close(opened);
}

/* ---- who asks ------------------------------------------------------------------------------------------- */

struct question {
    const void *caller;
    const char *name, *file; /* what is looked for, and the caller's file */
    bool passed_us, passed_caller, behind_us;
    void *behind_caller;
};

static int answer(struct dl_phdr_info *object, size_t size, void *argument) {
    (void)size;
    struct question *question = argument;
    if (is_us(object)) {
        question->passed_us = true;
    } else if (holds(object, question->caller)) {
        question->passed_caller = true;
        question->behind_us = question->passed_us;
        question->file = object->dlpi_name;
    } else if (question->passed_caller && !question->behind_caller && !is_vdso(object)) {
        question->behind_caller = symbol_in(object->dlpi_addr, dynamic_of(object), question->name);
    }
    return 0;
}

/* ---- what the program gets for our names ---------------------------------------------------------------- */

static void *exchanged(void *found, const char *name) {
    if (!found) return NULL;
    hooks_ready(name[0] == 'n'); /* so that the exchange knows this library */
    return hooks_exchange(found);
}

/* What RTLD_DEFAULT and RTLD_NEXT mean depends on who asks. Our own export comes first in the program's scope; whether
 * the driver is there is what the caller wants to know. So the search begins behind us, or behind a caller that is itself
 * behind us (another preloaded library that passes calls on). One that was opened with a scope of its own also sees what it
 * is linked to, near or far. */
static void *found_for(const void *caller, void *handle, const char *name) {
    void *behind_us = resolve_symbol(RTLD_NEXT, name);
    struct question question = {.caller = caller, .name = name};
    dl_iterate_phdr(answer, &question);
    if (handle == RTLD_NEXT && behind_us && question.behind_us) return question.behind_caller;
    if (handle == RTLD_DEFAULT && !behind_us && question.file && *question.file) {
        void *scope = resolve_open(question.file, RTLD_LAZY | RTLD_NOLOAD);
        void *found = scope ? resolve_symbol(scope, name) : NULL;
        if (scope) close_again(scope);
        return found ? found : resolve_symbol(RTLD_NEXT, name); /* once more, so that dlerror tells of this */
    }
    return behind_us;
}

static void *our_dlsym(void *handle, const char *name) {
    const void *caller = __builtin_return_address(0); /* the program's: we were jumped to */
    bool special = handle == RTLD_DEFAULT || handle == RTLD_NEXT;
    void *found = special ? found_for(caller, handle, name) : resolve_symbol(handle, name);
    if (!special && found == hooks_wrapper(name)) found = resolve_symbol(RTLD_NEXT, name);
    return exchanged(found, name);
}

static void *our_dlvsym(void *handle, const char *name, const char *version) {
    void *(*real)(void *, const char *, const char *) =
        (void *(*)(void *, const char *, const char *))next_of(DLVSYM);
    void *found = real ? real(handle == RTLD_DEFAULT ? RTLD_NEXT : handle, name, version) : NULL;
    return exchanged(found, name);
}

/* Whether the namespace of a file that was opened has a driver. In glibc a handle is the file's entry in the list. */
static bool brings_driver(void *handle) {
    const struct link_map *each = handle;
    while (each->l_prev) each = each->l_prev;
    for (; each; each = each->l_next)
        if (each->l_name && is_driver(each->l_name)) return true;
    return false;
}

static void *our_dlmopen(long namespace, const char *file, int flags) {
    void *(*real)(long, const char *, int) = (void *(*)(long, const char *, int))next_of(DLMOPEN);
    if (is_driver(file)) return resolve_open(file, flags);
    void *opened = real(namespace, file, flags);
    if (!opened || !brings_driver(opened)) return opened;
    close_again(opened);
    return resolve_open(file, flags);
}

static bool is_ours(const char *name) {
    if (!name) return false;
    bool cuda = name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
    bool nvml = name[0] == 'n' && name[1] == 'v' && name[2] == 'm' && name[3] == 'l';
    return (cuda || nvml) && hooks_wrapper(name);
}

__attribute__((used, visibility("hidden"))) void *resolve_dlsym_target(void *handle, const char *name) {
    (void)handle;
    return __builtin_expect(is_ours(name), 0) ? (void *)our_dlsym : next_of(DLSYM);
}

__attribute__((used, visibility("hidden"))) void *resolve_dlvsym_target(void *handle, const char *name) {
    (void)handle;
    return __builtin_expect(is_ours(name), 0) ? (void *)our_dlvsym : next_of(DLVSYM);
}

__attribute__((used, visibility("hidden"))) void *resolve_dlopen_target(void) { return next_of(DLOPEN); }

__attribute__((used, visibility("hidden"))) void *resolve_dlmopen_target(long namespace, const char *file) {
    bool ours = file && (is_driver(file) || contains(file, "/"));
    return namespace != LM_ID_BASE && ours ? (void *)our_dlmopen : next_of(DLMOPEN);
}

#ifndef __SANITIZE_THREAD__ /* whose run-time library looks its own functions up before it can be called back */
/* Keep the arguments, ask for the target, put them back, go there. Three pushes also align the stack. */
#define JUMP(name, prepare) \
    __asm__(".pushsection .text\n.globl " #name "\n.type " #name ", @function\n" #name ":\n" \
            ".cfi_startproc\nendbr64\n" \
            "push %rdi\n.cfi_adjust_cfa_offset 8\npush %rsi\n.cfi_adjust_cfa_offset 8\n" \
            "push %rdx\n.cfi_adjust_cfa_offset 8\n" \
            "call resolve_" #name "_target\n" \
            "pop %rdx\n.cfi_adjust_cfa_offset -8\npop %rsi\n.cfi_adjust_cfa_offset -8\n" \
            "pop %rdi\n.cfi_adjust_cfa_offset -8\n" prepare "jmp *%rax\n" \
            ".cfi_endproc\n.size " #name ", .-" #name "\n.popsection\n")
JUMP(dlsym, "");
JUMP(dlvsym, "");
_Static_assert(RTLD_DEEPBIND == 8, "the jumps below clear this bit");
JUMP(dlopen, "and $~8, %esi\n");
JUMP(dlmopen, "and $~8, %edx\n");
#endif
