/* See check_factors.h. */
#include "experiments/check/check_factors.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A value of one factor in one case.  A mask of several calls has several. */
enum { WORD = 48, MOST = 8 };

static int whole(char word[][WORD], int64_t n)
{
    snprintf(word[0], WORD, "%lld", (long long)n);
    return 1;
}

/* Lengths by class: there are too many to list, and kernels know classes. */
static int length(char word[][WORD], int64_t n)
{
    static const int64_t from[] = {2, 16, 64, 128, 512, 1024, 4096};
    enum { CLASSES = sizeof from / sizeof *from };
    int c = 0;
    if (n < 2)
        return whole(word, n);
    while (c + 1 < CLASSES && n >= from[c + 1])
        c++;
    if (c + 1 < CLASSES)
        snprintf(word[0], WORD, "%lld to %lld", (long long)from[c], (long long)from[c + 1] - 1);
    else
        snprintf(word[0], WORD, "%lld and more", (long long)from[c]);
    return 1;
}

static int put_word(char word[][WORD], const char *text)
{
    snprintf(word[0], WORD, "%s", text);
    return 1;
}

static int head_width(const struct attn_case *c, char word[][WORD])
{
    return whole(word, c->d_key);
}

static int value_width(const struct attn_case *c, char word[][WORD])
{
    return c->d_value == c->d_key ? put_word(word, "= d") : whole(word, c->d_value);
}

static int heads(const struct attn_case *c, char word[][WORD])
{
    return whole(word, c->heads);
}

static int group(const struct attn_case *c, char word[][WORD])
{
    return whole(word, c->kv_heads > 0 ? c->heads / c->kv_heads : 0);
}

static int batch(const struct attn_case *c, char word[][WORD])
{
    return whole(word, c->batch);
}

static int queries(const struct attn_case *c, char word[][WORD])
{
    return length(word, c->n_query);
}

static int keys(const struct attn_case *c, char word[][WORD])
{
    return length(word, c->n_key);
}

/* Every call of it once, causal with its alignment. */
static int mask(const struct attn_case *c, char word[][WORD])
{
    int n = 0;
    for (const char *p = c->mask; *p != '\0' && n < MOST;) {
        size_t size = strcspn(p, "()&|");
        if (size > 0 && p[size] != ')') {
            int is_aligned = strncmp(p, "causal(", 7) == 0;
            size_t end = is_aligned ? size + strcspn(p + size, ")") + 1 : size;
            snprintf(word[n], WORD, "%.*s", (int)(end < WORD ? end : WORD - 1), p);
            int seen = 0;
            while (seen < n && strcmp(word[seen], word[n]) != 0)
                seen++;
            n += seen == n;
        }
        p += size;
        p += p[0] == '(' && size > 0 ? strcspn(p, ")") : *p != '\0';
    }
    return n;
}

static int scale(const struct attn_case *c, char word[][WORD])
{
    snprintf(word[0], WORD, "%g", c->scale);
    return isnan(c->scale) ? put_word(word, "1/sqrt(d)") : 1;
}

static int softcap(const struct attn_case *c, char word[][WORD])
{
    snprintf(word[0], WORD, "%g", c->softcap);
    return c->softcap > 0 ? 1 : put_word(word, "none");
}

static int bias(const struct attn_case *c, char word[][WORD])
{
    int n = put_word(word, attn_case_bias_name(c->bias));
    return c->d_bias ? n + put_word(word + n, "with dbias") : n;
}

static int layout(const struct attn_case *c, char word[][WORD])
{
    return put_word(word, attn_case_layout_name(c->layout));
}

static int dtype(const struct attn_case *c, char word[][WORD])
{
    return put_word(word, attn_dtype_name(c->dtype));
}

static int fill(const struct attn_case *c, char word[][WORD])
{
    return put_word(word, attn_fill_name(c->fill));
}

static int pass(const struct attn_case *c, char word[][WORD])
{
    int n = put_word(word, c->pass == ATTN_BACKWARD ? "forward and backward" : "forward");
    return c->d_lse ? n + put_word(word + n, "with dlse") : n;
}

static const struct {
    const char *name;
    int (*of)(const struct attn_case *c, char word[][WORD]); /* how many values it has */
} factor_of[] = {{"type", dtype},     {"pass", pass},       {"d", head_width},
                 {"dv", value_width}, {"heads", heads},     {"heads a kv head", group},
                 {"batch", batch},    {"queries", queries}, {"keys", keys},
                 {"mask", mask},      {"scale", scale},     {"softcap", softcap},
                 {"bias", bias},      {"layout", layout},   {"numbers", fill}};

int attn_check_factor_count(void)
{
    return (int)(sizeof factor_of / sizeof *factor_of);
}

const char *attn_check_factor_name(int factor)
{
    return factor_of[factor].name;
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
        for (int w = factor_of[factor].of(&c, word) - 1; w >= 0; w--) {
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
