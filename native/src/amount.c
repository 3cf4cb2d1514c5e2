/*
 * Amounts of memory and shares of a card, from text.
 *
 * The grammar is HAMi-core's and more: digits with an optional fraction, an optional unit (k, m, g or t in either
 * case, alone or followed by i, b or ib; always powers of 1024), blanks around and between them. As there, 0x starts
 * a hexadecimal number and a leading 0 an octal one. What HAMi-core reads as "no limit" because it cannot read it
 * (8Gi, 8GB, 1t) is read here, and what means nothing is an error: a typing mistake must not lift a limit.
 */
#include "amount.h"

#include <stddef.h>

static const char *past_blanks(const char *text) {
    while (*text == ' ' || *text == '\t' || *text == '\n' || *text == '\r') text++;
    return text;
}

static int digit(char c, unsigned base) {
    int value = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : 99;
    return value < (int)base ? value : -1;
}

/* Whole digits; NULL if there is none or the number does not fit. */
static const char *whole(const char *text, unsigned base, uint64_t *value) {
    const char *start = text;
    for (*value = 0; digit(*text, base) >= 0; text++)
        if (__builtin_mul_overflow(*value, (uint64_t)base, value) ||
            __builtin_add_overflow(*value, (uint64_t)digit(*text, base), value))
            return NULL;
    return text == start ? NULL : text;
}

/* The power of 1024 that a unit stands for; -1 if it is none. Steps over it. */
static int unit(const char **text) {
    static const char letters[] = "kmgt";
    const char *at = *text;
    int power = 0;
    for (int i = 0; letters[i]; i++)
        if ((*at | 32) == letters[i]) power = i + 1;
    if (power) at++;
    if (power && (*at | 32) == 'i') at++;
    if ((*at | 32) == 'b') at++;
    *text = at;
    return power;
}

bool amount_bytes(const char *text, uint64_t *bytes) {
    text = past_blanks(text);
    unsigned base = text[0] != '0' ? 10 : (text[1] | 32) == 'x' ? 16 : 8;
    uint64_t number, part = 0, scale = 1;
    bool something = false; /* behind the point */
    if (base == 16) text += 2;
    const char *end = whole(text, base, &number);
    if (base == 8 && end && *end == '.' && end == text + 1) base = 10; /* 0.5g */
    if (!end) return false;
    if (base == 10 && *end == '.') {
        const char *first = end + 1;
        for (end = first; digit(*end, 10) >= 0; end++) {
            something |= *end != '0';
            if (scale < 1000000000) part = part * 10 + (uint64_t)digit(*end, 10), scale *= 10;
        }
        if (end == first) return false;
    }
    end = past_blanks(end);
    int power = unit(&end);
    if (*past_blanks(end)) return false;
    uint64_t factor = 1ull << (10 * power);
    if (__builtin_mul_overflow(number, factor, bytes)) return false;
    uint64_t fraction = (uint64_t)((unsigned __int128)part * factor / scale);
    if (__builtin_add_overflow(*bytes, fraction, bytes) || *bytes > INT64_MAX) return false;
    return *bytes || !something; /* 0 is no limit: 0.5, whose unit was forgotten, must not become that */
}

bool amount_percent(const char *text, unsigned *percent) {
    uint64_t number;
    const char *end = whole(past_blanks(text), 10, &number);
    if (!end) return false;
    end = past_blanks(end);
    if (*end == '%') end++;
    if (*past_blanks(end)) return false;
    *percent = number > 100 ? 100 : (unsigned)number;
    return true;
}
