/* See check_factors.h. */
#include "experiments/check/check_factors.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* A value of one factor in one case.  A mask of several calls has several. */
enum { WORD = 48, MOST = 8 };

static const char *const factor_name[] = {
    "type", "pass", "d",     "dv",      "heads", "heads a kv head", "batch",  "queries",
    "keys", "mask", "scale", "softcap", "bias",  "layout",          "numbers"};
enum {
    TYPE,
    PASS,
    D,
    DV,
    HEADS,
    GROUP,
    BATCH,
    QUERIES,
    KEYS,
    MASK,
    SCALE,
    SOFTCAP,
    BIAS,
    LAYOUT,
    NUMBERS
};

/* Lengths by class: there are too many to list, and kernels know classes. */
static void put_length(char word[WORD], int64_t n)
{
    static const long long from[] = {2, 16, 64, 128, 512, 1024, 4096};
    enum { CLASSES = sizeof from / sizeof *from };
    int c = 0;
    while (c + 1 < CLASSES && n >= from[c + 1])
        c++;
    if (n < 2)
        snprintf(word, WORD, "%lld", (long long)n);
    else if (c + 1 < CLASSES)
        snprintf(word, WORD, "%lld to %lld", from[c], from[c + 1] - 1);
    else
        snprintf(word, WORD, "%lld and more", from[c]);
}

/* Every call of it once, causal with its alignment; how many. */
static int put_mask(char word[][WORD], const char *p)
{
    int n = 0;
    while (*p != '\0' && n < MOST) {
        size_t size = strcspn(p, "()&|");
        if (size > 0 && p[size] != ')') {
            int is_aligned = strncmp(p, "causal(", 7) == 0, seen = 0;
            size_t end = is_aligned ? size + strcspn(p + size, ")") + 1 : size;
            snprintf(word[n], WORD, "%.*s", (int)(end < WORD ? end : WORD - 1), p);
            while (seen < n && strcmp(word[seen], word[n]) != 0)
                seen++;
            n += seen == n;
        }
        p += size;
        p += p[0] == '(' && size > 0 ? strcspn(p, ")") : *p != '\0';
    }
    return n;
}

/* Beside n others; how many there are then. */
static int put(char word[][WORD], int n, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static int put(char word[][WORD], int n, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(word[n], WORD, format, args);
    va_end(args);
    return n + 1;
}

/* The values of a factor in a case; how many. */
static int values_of(const struct attn_case *c, int factor, char word[][WORD])
{
    int n;
    switch (factor) {
    case TYPE:
        return put(word, 0, "%s", attn_dtype_name(c->dtype));
    case PASS:
        n = put(word, 0, c->pass == ATTN_BACKWARD ? "forward and backward" : "forward");
        return c->d_lse ? put(word, n, "with dlse") : n;
    case D:
        return put(word, 0, "%lld", (long long)c->d_key);
    case DV:
        return c->d_value == c->d_key ? put(word, 0, "= d")
                                      : put(word, 0, "%lld", (long long)c->d_value);
    case HEADS:
        return put(word, 0, "%lld", (long long)c->heads);
    case GROUP:
        return put(word, 0, "%lld", (long long)(c->kv_heads > 0 ? c->heads / c->kv_heads : 0));
    case BATCH:
        return put(word, 0, "%lld", (long long)c->batch);
    case QUERIES:
    case KEYS:
        put_length(word[0], factor == QUERIES ? c->n_query : c->n_key);
        return 1;
    case MASK:
        return put_mask(word, c->mask);
    case SCALE:
        return isnan(c->scale) ? put(word, 0, "1/sqrt(d)") : put(word, 0, "%g", c->scale);
    case SOFTCAP:
        return c->softcap > 0 ? put(word, 0, "%g", c->softcap) : put(word, 0, "none");
    case BIAS:
        n = put(word, 0, "%s", attn_case_bias_name(c->bias));
        return c->d_bias ? put(word, n, "with dbias") : n;
    case LAYOUT:
        return put(word, 0, "%s", attn_case_layout_name(c->layout));
    default:
        return put(word, 0, "%s", attn_fill_name(c->fill));
    }
}

int attn_check_factor_count(void)
{
    return (int)(sizeof factor_name / sizeof *factor_name);
}

const char *attn_check_factor_name(int factor)
{
    return factor_name[factor];
}

/* ---- counting -------------------------------------------------------------------------------- */

struct value {
    char word[WORD];
    int judged, refused;
};

/* Numbers by size, before words; words by how often they are. */
static int in_order(const void *a, const void *b)
{
    const struct value *x = a, *y = b;
    int is_x = isdigit((unsigned char)x->word[0]) != 0;
    int is_y = isdigit((unsigned char)y->word[0]) != 0;
    if (is_x != is_y)
        return is_y - is_x;
    if (is_x && atof(x->word) != atof(y->word))
        return atof(x->word) < atof(y->word) ? -1 : 1;
    return y->judged != x->judged ? y->judged - x->judged : strcmp(x->word, y->word);
}

static void append(char *text, size_t size, const char *word, int n)
{
    size_t used = strlen(text);
    int got = snprintf(text + used, size - used, "%s%s (%d)", used > 0 ? ", " : "", word, n);
    if (got >= (int)(size - used)) /* cut, and seen to be */
        snprintf(text + (used < size - 8 ? used : size - 8), 8, ", ...");
}

void attn_check_factor(const struct attn_verdict_list *list, int factor, char *judged,
                       size_t judged_size, char *refused, size_t refused_size)
{
    enum { VALUES = 512 };
    static struct value value[VALUES];
    int n = 0;
    for (int e = 0; e < list->n; e++) {
        const struct attn_verdict_entry *x = &list->entry[e];
        char word[MOST][WORD];
        struct attn_case c;
        if (strcmp(x->kind, "relation") == 0 ||
            attn_case_parse(x->text, &c, NULL) != ATTN_OK) /* a word about the whole */
            continue;
        int is_refused = x->result.verdict == ATTN_REFUSED;
        for (int w = values_of(&c, factor, word) - 1; w >= 0; w--) {
            int at = 0;
            while (at < n && strcmp(value[at].word, word[w]) != 0)
                at++;
            if (at == n && n < VALUES)
                snprintf(value[n++].word, WORD, "%s", word[w]);
            if (at == n)
                continue;
            value[at].judged += !is_refused;
            value[at].refused += is_refused;
        }
    }
    qsort(value, (size_t)n, sizeof *value, in_order);
    judged[0] = refused[0] = '\0';
    for (int v = 0; v < n; v++) {
        if (value[v].judged > 0)
            append(judged, judged_size, value[v].word, value[v].judged);
        else
            append(refused, refused_size, value[v].word, value[v].refused);
        value[v] = (struct value){"", 0, 0};
    }
}
