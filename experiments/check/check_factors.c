/* See check_factors.h. */
#include "experiments/check/check_factors.h"

#include <ctype.h>
#include <math.h>
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

/* The values of a factor in a case; how many. */
static int values_of(const struct attn_case *c, int factor, char word[][WORD])
{
    const char *text = NULL, *more = NULL;
    int64_t number = 0;
    double real = (double)NAN;
    switch (factor) {
    case MASK:
        return put_mask(word, c->mask);
    case QUERIES:
    case KEYS:
        put_length(word[0], factor == QUERIES ? c->n_query : c->n_key);
        return 1;
    case TYPE:
        text = attn_dtype_name(c->dtype);
        break;
    case PASS:
        text = c->pass == ATTN_BACKWARD ? "forward and backward" : "forward";
        more = c->d_lse ? "with dlse" : NULL;
        break;
    case BIAS:
        text = attn_case_bias_name(c->bias);
        more = c->d_bias ? "with dbias" : NULL;
        break;
    case LAYOUT:
        text = attn_case_layout_name(c->layout);
        break;
    case NUMBERS:
        text = attn_fill_name(c->fill);
        break;
    case SCALE:
        text = isnan(c->scale) ? "1/sqrt(d)" : NULL;
        real = c->scale;
        break;
    case SOFTCAP:
        text = c->softcap > 0 ? NULL : "none";
        real = c->softcap;
        break;
    case DV:
        text = c->d_value == c->d_key ? "= d" : NULL;
        number = c->d_value;
        break;
    case GROUP:
        number = c->kv_heads > 0 ? c->heads / c->kv_heads : 0;
        break;
    default:
        number = factor == D ? c->d_key : factor == HEADS ? c->heads : c->batch;
    }
    if (text != NULL)
        snprintf(word[0], WORD, "%s", text);
    else if (!isnan(real))
        snprintf(word[0], WORD, "%g", real);
    else
        snprintf(word[0], WORD, "%lld", (long long)number);
    if (more != NULL)
        snprintf(word[1], WORD, "%s", more);
    return more != NULL ? 2 : 1;
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
