/* Case strings: parse and print. */
#include "tests/harness/inputs/case.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/problem.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/inputs/slots.h"

static const char *const bias_name[] = {"none", "alibi", "full", "head", "row",
                                        "key",  "inf",   "nan",  NULL};
static const char *const sink_name[] = {"none", "normal", "zero", "large", NULL};
static const char *const bias_type_name[] = {"auto", "f32", "f64", NULL};
static const char *const kv_name[] = {"own", "shared", NULL};
static const char *const slopes_name[] = {"halves", "press", NULL};
static const char *const layout_name[] = {"bhld",      "blhd", "padded", "packed", "mixed",
                                          "broadcast", "neg",  "flip",   "sbhd",   NULL};
static const char *const poison_name[] = {"none", "nan", "big", NULL};
static const char *const special_name[] = {"none",  "q-nan", "k-nan",  "v-nan",  "do-nan", "q-inf",
                                           "k-inf", "v-inf", "do-inf", "k-huge", NULL};
static const char *const pass_name[] = {"fwd", "bwd", NULL};
static const char *const dtype_name[] = {"f64", "f32", "bf16", "f16", NULL};
static const char *const only_name[] = {"all", "q",   "k",  "v",  "bias", "sink",  "do",    "dlse",
                                        "o",   "lse", "dq", "dk", "dv",   "dbias", "dsink", NULL};
static const char *const flag_name[] = {"0", "1", NULL};

/* ---- words and numbers ----------------------------------------------------------------------- */

enum { WORD = 64 }; /* longest part beside the mask, with its end */

/* Index of word in a list; -1, and a failure that shows the list, when it is not there. */
static int find_word(const char *what, const char *word, const char *const *list,
                     struct attn_error *err)
{
    char legal[160] = "";
    for (int w = 0; list[w] != NULL; w++) {
        if (strcmp(list[w], word) == 0)
            return w;
        attn_append(legal, sizeof legal, "%s%s", w > 0 ? ", " : "", list[w]);
    }
    attn_fail(err, ATTN_EINVAL, "%s '%s' is unknown: there are %s", what, word, legal);
    return -1;
}

/* A run of digits, nothing else, up to max.  *end is behind it. */
static enum attn_status read_count(const char *what, const char *text, const char **end,
                                   uint64_t max, uint64_t *value, struct attn_error *err)
{
    uint64_t n = 0;
    const char *p = text;
    for (; *p >= '0' && *p <= '9'; p++) {
        unsigned digit = (unsigned)(*p - '0');
        if (n > (max - digit) / 10)
            return attn_fail(err, ATTN_EINVAL, "%s '%.*s' is too large: at most %" PRIu64, what,
                             (int)strcspn(text, ":"), text, max);
        n = 10 * n + digit;
    }
    if (p == text)
        return attn_fail(err, ATTN_EINVAL, "%s needs a whole number from 0 up: found '%.*s'", what,
                         (int)strcspn(text, ":"), text);
    *end = p;
    *value = n;
    return ATTN_OK;
}

static enum attn_status read_real(const char *what, const char *text, double *value,
                                  struct attn_error *err)
{
    char *end;
    *value = strtod(text, &end);
    if (strspn(text, "0123456789+-.eE") != strlen(text) || end == text || *end != '\0' ||
        !isfinite(*value))
        return attn_fail(err, ATTN_EINVAL, "%s '%s' is not a finite decimal number", what, text);
    return ATTN_OK;
}

/* The shortest decimal that reads back as the same double: 30, not 3e+01. */
static void print_real(char *text, size_t size, double value)
{
    char attempt[32];
    text[0] = '\0';
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(attempt, sizeof attempt, "%.*g", digits, value);
        if (strtod(attempt, NULL) == value && (text[0] == '\0' || strlen(attempt) < strlen(text)))
            snprintf(text, size, "%s", attempt);
    }
}

/* ---- parsing --------------------------------------------------------------------------------- */

static const char letters[ATTN_CASE_EXTENTS + 1] = "bhgqkdv";

/* An extent that is not given, by those before it; of queries and features there is none. */
static int64_t preset_of(const struct attn_case *c, int n)
{
    const int64_t preset[ATTN_CASE_EXTENTS] = {1, 1, c->heads, -1, c->n_query, -1, c->d_key};
    return preset[n];
}

static enum attn_status parse_shape(const char *text, struct attn_case *c, struct attn_error *err)
{
    int seen[ATTN_CASE_EXTENTS] = {0};
    for (const char *p = text; *p != '\0';) {
        const char *letter = strchr(letters, *p);
        if (letter == NULL)
            return attn_fail(err, ATTN_EINVAL,
                             "shape '%s': found '%c' where one of the letters b h g q k d v should "
                             "be, as in b2h4g2q127k129d64v64",
                             text, *p);
        char what[] = "extent x";
        what[7] = *letter;
        if (seen[letter - letters]++)
            return attn_fail(err, ATTN_EINVAL, "shape '%s': %c is given twice", text, *letter);
        uint64_t value;
        enum attn_status status = read_count(what, p + 1, &p, INT64_MAX, &value, err);
        if (status != ATTN_OK)
            return status;
        *attn_case_extent(c, (int)(letter - letters)) = (int64_t)value;
    }
    if (!seen[3] || !seen[5])
        return attn_fail(err, ATTN_EINVAL,
                         "shape '%s': q (queries) and d (features) must be there, as in q127d64",
                         text);
    for (int e = 0; e < ATTN_CASE_EXTENTS; e++)
        if (!seen[e])
            *attn_case_extent(c, e) = preset_of(c, e);
    return ATTN_OK;
}

/* The mask reaches to the first ':' outside parentheses; blanks are dropped. */
static enum attn_status parse_mask(const char **text, struct attn_case *c, struct attn_error *err)
{
    int depth = 0;
    size_t n = 0;
    const char *p = *text;
    for (; *p != '\0' && (*p != ':' || depth > 0); p++) {
        depth += (*p == '(') - (*p == ')');
        if (*p == ' ')
            continue;
        if (n + 1 == ATTN_CASE_MASK)
            return attn_fail(err, ATTN_EINVAL,
                             "the mask is longer than %d characters: name a tensor instead, as in "
                             "keys(k50)",
                             ATTN_CASE_MASK - 1);
        c->mask[n++] = *p;
    }
    c->mask[n] = '\0';
    if (depth > 0)
        return attn_fail(err, ATTN_EINVAL, "mask '%.200s': a '(' is not closed", *text);
    if (n == 0)
        return attn_fail(err, ATTN_EINVAL, "the mask is empty: 'none' shows every pair");
    *text = p;
    return ATTN_OK;
}

/* Copy up to the next ':' and step behind it; what is too long to be legal ends in "...", which
 * nothing understands.  0: there is no further part. */
static int next_part(const char **text, char part[WORD])
{
    if (**text != ':')
        return 0;
    size_t n = strcspn(*text + 1, ":");
    if (n < WORD)
        snprintf(part, WORD, "%.*s", (int)n, *text + 1);
    else
        snprintf(part, WORD, "%.*s...", WORD - 4, *text + 1);
    *text += n + 1;
    return 1;
}

/* Type, fill and seed: always there, always in this order. */
static enum attn_status parse_data(const char **text, struct attn_case *c, struct attn_error *err)
{
    char part[WORD];
    if (!next_part(text, part))
        return attn_fail(err, ATTN_EINVAL,
                         "after the mask, a type is missing: f64, f32, bf16 or f16");
    int dtype = find_word("type", part, dtype_name, err);
    if (dtype < 0)
        return ATTN_EINVAL;
    c->dtype = (enum attn_dtype)dtype;
    const char *fills[ATTN_FILLS + 1] = {NULL};
    for (int f = 0; f < ATTN_FILLS; f++)
        fills[f] = attn_fill_name((enum attn_fill)f);
    if (!next_part(text, part))
        return attn_fail(err, ATTN_EINVAL, "after the type, a fill is missing, such as normal");
    int fill = find_word("fill", part, fills, err);
    if (fill < 0)
        return ATTN_EINVAL;
    c->fill = (enum attn_fill)fill;
    if (!next_part(text, part) || part[0] != 's')
        return attn_fail(err, ATTN_EINVAL, "after the fill, a seed is missing, such as s42");
    const char *end;
    enum attn_status status = read_count("seed", part + 1, &end, UINT64_MAX, &c->seed, err);
    if (status == ATTN_OK && *end != '\0')
        return attn_fail(err, ATTN_EINVAL, "seed '%s': digits only, such as s42", part);
    return status;
}

/* The fields, in canonical order.  Each is neutral at 0, or at its first word; scale at NaN. */
enum kind {
    WORD_OF,   /* an int or an enum: the place of a word in a list */
    REAL,      /* a double                                         */
    COUNT,     /* an int from least to most                        */
    ALIBI_FROM /* has_alibi_offset and alibi_offset                */
};
struct field {
    const char *name;
    enum kind kind;
    size_t at; /* in struct attn_case */
    const char *const *words;
    int least, most;
};
_Static_assert(sizeof(enum attn_case_bias) == sizeof(int), "enums are read as ints");
#define AT(member) offsetof(struct attn_case, member)
static const struct field fields[] = {
    {"pass", WORD_OF, AT(pass), pass_name, 0, 0},
    {"scale", REAL, AT(scale), NULL, 0, 0},
    {"softcap", REAL, AT(softcap), NULL, 0, 0},
    {"bias", WORD_OF, AT(bias), bias_name, 0, 0},
    {"biastype", WORD_OF, AT(bias_type), bias_type_name, 0, 0},
    {"sink", WORD_OF, AT(sink), sink_name, 0, 0},
    {"kv", WORD_OF, AT(kv_shared), kv_name, 0, 0},
    {"slopes", WORD_OF, AT(slopes), slopes_name, 0, 0},
    {"alibioffset", ALIBI_FROM, AT(alibi_offset), NULL, 0, 0},
    {"layout", WORD_OF, AT(layout), layout_name, 0, 0},
    {"offset", COUNT, AT(offset), NULL, 0, 63},
    {"only", WORD_OF, AT(only), only_name, 0, 0},
    {"poison", WORD_OF, AT(poison), poison_name, 0, 0},
    {"special", WORD_OF, AT(special), special_name, 0, 0},
    {"dlse", WORD_OF, AT(d_lse), flag_name, 0, 0},
    {"dbias", WORD_OF, AT(d_bias), flag_name, 0, 0},
    {"wide", WORD_OF, AT(wide), flag_name, 0, 0},
    {"threads", COUNT, AT(threads), NULL, 1, 64},
};
enum { FIELDS = sizeof fields / sizeof *fields };

static int int_of(const struct attn_case *c, const struct field *field)
{
    int value;
    memcpy(&value, (const char *)c + field->at, sizeof value);
    return value;
}

/* br, tl, or a whole number with its sign. */
static enum attn_status parse_alibi_offset(const char *value, struct attn_case *c,
                                           struct attn_error *err)
{
    uint64_t n = 0;
    const char *end = value + 2;
    enum attn_status status = ATTN_OK;
    c->has_alibi_offset = strcmp(value, "br") != 0;
    if (c->has_alibi_offset && strcmp(value, "tl") != 0) {
        if (value[0] != '+' && value[0] != '-')
            return attn_fail(err, ATTN_EINVAL,
                             "alibioffset '%s': br, tl, or a number with its sign, as in +3",
                             value);
        status = read_count("alibioffset", value + 1, &end, UINT64_C(1) << 40, &n, err);
    }
    if (status == ATTN_OK && *end != '\0')
        status = attn_fail(err, ATTN_EINVAL, "alibioffset '%s': digits only after the sign", value);
    c->alibi_offset = value[0] == '-' ? -(int64_t)n : (int64_t)n;
    return status;
}

static enum attn_status parse_real(const struct field *field, const char *value,
                                   struct attn_case *c, struct attn_error *err)
{
    double real;
    enum attn_status status = read_real(field->name, value, &real, err);
    if (status == ATTN_OK && field->at == AT(softcap) && !(real >= 0))
        return attn_fail(err, ATTN_EINVAL, "softcap '%s' is negative: 0 means none", value);
    memcpy((char *)c + field->at, &real, sizeof real);
    return status;
}

static enum attn_status parse_count(const struct field *field, const char *value, int *count,
                                    struct attn_error *err)
{
    uint64_t n;
    const char *end;
    enum attn_status status = read_count(field->name, value, &end, (uint64_t)field->most, &n, err);
    if (status != ATTN_OK)
        return status;
    if (*end != '\0')
        return attn_fail(err, ATTN_EINVAL, "%s '%s': digits only, at most %d", field->name, value,
                         field->most);
    if ((int)n < field->least)
        return attn_fail(err, ATTN_EINVAL, "%s '%d': from %d to %d", field->name, (int)n,
                         field->least, field->most);
    *count = (int)n;
    return ATTN_OK;
}

static enum attn_status parse_field(const struct field *field, const char *value,
                                    struct attn_case *c, struct attn_error *err)
{
    int number = 0;
    enum attn_status status = ATTN_OK;
    if (field->kind == ALIBI_FROM)
        return parse_alibi_offset(value, c, err);
    if (field->kind == REAL)
        return parse_real(field, value, c, err);
    if (field->kind == COUNT)
        status = parse_count(field, value, &number, err);
    else if ((number = find_word(field->name, value, field->words, err)) < 0)
        status = ATTN_EINVAL;
    if (status == ATTN_OK)
        memcpy((char *)c + field->at, &number, sizeof number);
    return status;
}

enum attn_status attn_case_fields(const char *text, struct attn_case *c, struct attn_error *err)
{
    int seen[FIELDS] = {0};
    char part[WORD];
    const char *names[FIELDS + 1] = {NULL};
    for (int f = 0; f < FIELDS; f++)
        names[f] = fields[f].name;
    while (next_part(&text, part)) {
        char *equals = strchr(part, '=');
        if (equals == NULL)
            return attn_fail(err, ATTN_EINVAL, "'%s' is not a field: key=value, as in pass=bwd",
                             part);
        *equals = '\0';
        int field = find_word("field", part, names, err);
        if (field < 0)
            return ATTN_EINVAL;
        if (seen[field]++)
            return attn_fail(err, ATTN_EINVAL, "field '%s' is given twice", part);
        enum attn_status status = parse_field(&fields[field], equals + 1, c, err);
        if (status != ATTN_OK)
            return status;
    }
    return ATTN_OK;
}

/* Refuses only= where the case has no such tensor, or the layout does nothing to it. */
static enum attn_status check_only(const struct attn_case *c, struct attn_error *err)
{
    const char *name = only_name[c->only];
    if (!attn_case_has(c, c->only - 1))
        return attn_fail(err, ATTN_EINVAL,
                         "only=%s: this case has no such tensor; pass=bwd, dlse=1, a bias, "
                         "dbias=1 or a sink would make it",
                         name);
    if (c->layout == ATTN_LAYOUT_PACKED)
        return attn_fail(err, ATTN_EINVAL,
                         "only=%s with layout=packed: q, k and v are packed together or not at all",
                         name);
    if (c->layout == ATTN_LAYOUT_BROADCAST && strchr("kv", name[0]) == NULL &&
        strcmp(name, "do") != 0)
        return attn_fail(err, ATTN_EINVAL,
                         "only=%s with layout=broadcast: k, v and do are what it broadcasts", name);
    if (c->layout == ATTN_LAYOUT_BHLD && c->offset == 0)
        return attn_fail(err, ATTN_EINVAL, "only=%s says nothing without a layout or an offset",
                         name);
    return ATTN_OK;
}

/* V is a view of K: refused where its numbers, or its place, have to be its own. */
static enum attn_status check_shared(const struct attn_case *c, struct attn_error *err)
{
    static const enum attn_fill own[] = {
        ATTN_FILL_REVEAL, ATTN_FILL_SELECT, ATTN_FILL_SUBSETS, ATTN_FILL_POWERS, ATTN_FILL_TIES,
        ATTN_FILL_FLAT,   ATTN_FILL_LEVEL,  ATTN_FILL_ONES,    ATTN_FILL_TINY,   ATTN_FILL_HUGE};
    const char *only = only_name[c->only];
    if (c->d_value > c->d_key)
        return attn_fail(err, ATTN_EINVAL, "kv=shared: v has the first features of k, up to v%lld",
                         (long long)c->d_key);
    for (size_t f = 0; f < sizeof own / sizeof *own; f++)
        if (c->fill == own[f])
            return attn_fail(err, ATTN_EINVAL,
                             "kv=shared with fill %s, which makes V by itself: normal would work",
                             attn_fill_name(c->fill));
    if (strcmp(only, "v") == 0 || strcmp(only, "dv") == 0 || c->layout == ATTN_LAYOUT_PACKED)
        return attn_fail(err, ATTN_EINVAL,
                         "kv=shared: v and dv have the layout of k and dk, and are not packed with "
                         "them; any other layout, or only=k, would work");
    return ATTN_OK;
}

/* Fields that say nothing without another are refused: nothing is silently ignored. */
static enum attn_status check_together(const struct attn_case *c, struct attn_error *err)
{
    if (c->pass == ATTN_FORWARD && (c->d_lse || c->d_bias))
        return attn_fail(err, ATTN_EINVAL, "%s=1 is about gradients: it needs pass=bwd",
                         c->d_lse ? "dlse" : "dbias");
    if (c->d_bias && (c->bias == ATTN_CASE_BIAS_NONE || c->bias == ATTN_CASE_BIAS_ALIBI))
        return attn_fail(
            err, ATTN_EINVAL,
            "dbias=1 with bias=%s: only a tensor has a gradient; bias=full, head, row, "
            "key or inf would work",
            bias_name[c->bias]);
    if (c->wide && c->dtype != ATTN_BF16 && c->dtype != ATTN_F16)
        return attn_fail(err, ATTN_EINVAL,
                         "wide=1 with %s: results are no narrower; bf16 or f16 would work",
                         attn_dtype_name(c->dtype));
    if (c->bias_type != ATTN_BIAS_TYPE_AS_LSE && c->bias <= ATTN_CASE_BIAS_ALIBI)
        return attn_fail(err, ATTN_EINVAL,
                         "biastype=%s with bias=%s: there is no tensor to store; bias=full, head, "
                         "row, key, inf or nan would work",
                         bias_type_name[c->bias_type], bias_name[c->bias]);
    if (attn_case_special_is_backward(c->special) && c->pass == ATTN_FORWARD)
        return attn_fail(err, ATTN_EINVAL, "special=%s is about gradients: it needs pass=bwd",
                         special_name[c->special]);
    if (c->special != ATTN_SPECIAL_NONE &&
        (c->fill == ATTN_FILL_REVEAL || c->fill == ATTN_FILL_SELECT))
        return attn_fail(err, ATTN_EINVAL,
                         "special=%s with fill %s, whose results are exact: any other fill would "
                         "work",
                         special_name[c->special], attn_fill_name(c->fill));
    if ((c->slopes != ATTN_SLOPES_HALVES || c->has_alibi_offset) && c->bias != ATTN_CASE_BIAS_ALIBI)
        return attn_fail(err, ATTN_EINVAL, "%s says nothing without bias=alibi",
                         c->has_alibi_offset ? "alibioffset" : "slopes");
    enum attn_status status = c->kv_shared ? check_shared(c, err) : ATTN_OK;
    return status == ATTN_OK && c->only != 0 ? check_only(c, err) : status;
}

enum attn_status attn_case_parse(const char *text, struct attn_case *c, struct attn_error *err)
{
    *c = (struct attn_case){.scale = (double)NAN};
    if (strlen(text) >= ATTN_CASE_TEXT)
        return attn_fail(err, ATTN_EINVAL, "a case string has at most %d characters, not %zu",
                         ATTN_CASE_TEXT - 1, strlen(text));
    char shape[7 * 20 + 1];
    size_t n = strcspn(text, ":");
    if (n >= sizeof shape)
        return attn_fail(err, ATTN_EINVAL, "shape '%.40s...' is too long", text);
    memcpy(shape, text, n);
    shape[n] = '\0';
    enum attn_status status = parse_shape(shape, c, err);
    if (status != ATTN_OK)
        return status;
    if (text[n] == '\0')
        return attn_fail(err, ATTN_EINVAL,
                         "after the shape, a mask is missing, such as causal(br)");
    text += n + 1;
    status = parse_mask(&text, c, err);
    if (status == ATTN_OK)
        status = parse_data(&text, c, err);
    if (status == ATTN_OK)
        status = attn_case_fields(text, c, err);
    if (status == ATTN_OK)
        status = check_together(c, err);
    /* Defaults are left out. */
    if (c->bias_type == (c->dtype == ATTN_F64 ? ATTN_BIAS_TYPE_F64 : ATTN_BIAS_TYPE_F32))
        c->bias_type = ATTN_BIAS_TYPE_AS_LSE;
    return status;
}

/* ---- printing -------------------------------------------------------------------------------- */

static void print_shape(struct attn_case c, char text[ATTN_CASE_TEXT])
{
    for (int e = 0; e < ATTN_CASE_EXTENTS; e++)
        if (*attn_case_extent(&c, e) != preset_of(&c, e))
            attn_append(text, ATTN_CASE_TEXT, "%c%" PRId64, letters[e], *attn_case_extent(&c, e));
}

static void print_field(const struct field *field, const struct attn_case *c,
                        char text[ATTN_CASE_TEXT])
{
    char number[32];
    if (field->kind == REAL) {
        double value;
        memcpy(&value, (const char *)c + field->at, sizeof value);
        print_real(number, sizeof number, value);
        if (field->at == AT(scale) ? !isnan(value) : value != 0)
            attn_append(text, ATTN_CASE_TEXT, ":%s=%s", field->name, number);
    } else if (field->kind == ALIBI_FROM) {
        if (c->has_alibi_offset && c->alibi_offset == 0)
            attn_append(text, ATTN_CASE_TEXT, ":%s=tl", field->name);
        else if (c->has_alibi_offset)
            attn_append(text, ATTN_CASE_TEXT, ":%s=%+" PRId64, field->name, c->alibi_offset);
    } else if (field->kind == COUNT) {
        if (int_of(c, field) > field->least)
            attn_append(text, ATTN_CASE_TEXT, ":%s=%d", field->name, int_of(c, field));
    } else if (int_of(c, field) != 0)
        attn_append(text, ATTN_CASE_TEXT, ":%s=%s", field->name, field->words[int_of(c, field)]);
}

void attn_case_print(const struct attn_case *c, char text[ATTN_CASE_TEXT])
{
    text[0] = '\0';
    print_shape(*c, text);
    attn_append(text, ATTN_CASE_TEXT, ":%s:%s:%s:s%" PRIu64, attn_case_mask(c),
                attn_dtype_name(c->dtype), attn_fill_name(c->fill), c->seed);
    for (int f = 0; f < FIELDS; f++)
        print_field(&fields[f], c, text);
}
