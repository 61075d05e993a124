/* Relations of heads, batches, options and layouts (bugs.md R14, R15, R17, R20). */
#include <stdio.h>
#include <string.h>

#include "tests/harness/relations/relation_fixture.h"

/* ---- R14 ------------------------------------------------------------------------------------- */

enum { CHANGED_HEAD = 1, CHANGED_BATCH = 1 };

static double quite_other(double old, const int64_t at[4], const void *arg)
{
    int whole_batch = *(const int *)arg;
    int here = at[0] == CHANGED_BATCH ? 1 : !whole_batch && at[1] == CHANGED_HEAD;
    return here ? 3 - 2 * old : old;
}

/* What the change may show in: the batch, the head, and for dK and dV the head's group. */
static void elsewhere(const void *arg, struct attn_fixture_want *want)
{
    want->skip = want->at[0] == CHANGED_BATCH || want->at[1] == *(const int64_t *)arg;
}

void attn_relation_independence(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    const int head_too = 0, batch_only = 1;
    const int64_t head = CHANGED_HEAD, group = CHANGED_HEAD / (shape->h / shape->g);
    struct attn_trial x, y;
    if (!attn_fixture_open(f, &x, shape, "causal(br)", "normal:s1", ATTN_BACKWARD, ""))
        return;
    if (attn_fixture_open(f, &y, shape, "causal(br)", "normal:s1", ATTN_BACKWARD, "")) {
        attn_fixture_change(&y, ATTN_T_Q, quite_other, &head_too);
        attn_fixture_change(&y, ATTN_T_DO, quite_other, &head_too);
        attn_fixture_change(&y, ATTN_T_K, quite_other, &batch_only);
        attn_fixture_change(&y, ATTN_T_V, quite_other, &batch_only);
        if (attn_fixture_run_both(f, &x, &y))
            for (int o = 0; o <= ATTN_DV; o++)
                attn_fixture_compare(f, &x, &y, (enum attn_output)o, ATTN_FIXTURE_BOUNDS, elsewhere,
                                     o > ATTN_DQ ? &group : &head);
        attn_fixture_close(&y);
    }
    attn_fixture_close(&x);
}

/* ---- R15 ------------------------------------------------------------------------------------- */

static void repeat_heads(struct attn_trial *y, const struct attn_trial *x, enum attn_slot slot,
                         const struct attn_fixture_shape *s)
{
    for (int64_t b = 0; b < s->b; b++)
        for (int64_t h = 0; h < s->h; h++)
            for (int64_t j = 0; j < s->k; j++) {
                const int64_t to[3] = {b, h, j}, from[3] = {b, h / (s->h / s->g), j};
                attn_fixture_copy_row(y, x, slot, to, from);
            }
}

/* The gradient of a kv head is the sum over its group. */
static void check_sum(struct attn_fixture *f, const struct attn_trial *x,
                      const struct attn_trial *y, enum attn_output output, int64_t group)
{
    int64_t e[4], at[4];
    if (!attn_fixture_has(x, output))
        return;
    attn_fixture_extent(x, output, e);
    for (at[0] = 0; at[0] < e[0]; at[0]++)
        for (at[1] = 0; at[1] < e[1]; at[1]++)
            for (at[2] = 0; at[2] < e[2]; at[2]++)
                for (at[3] = 0; at[3] < e[3]; at[3]++) {
                    double sum = 0, bound = attn_fixture_bound(x, output, at);
                    for (int64_t n = 0; n < group; n++) {
                        const int64_t from[4] = {at[0], at[1] * group + n, at[2], at[3]};
                        sum += attn_fixture_get(y, output, from);
                        bound += attn_fixture_bound(y, output, from);
                    }
                    attn_fixture_near(f, attn_output_name(output), at,
                                      attn_fixture_get(x, output, at), sum, bound);
                }
}

void attn_relation_gqa_is_mha(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    struct attn_fixture_shape all = *shape;
    all.g = all.h;
    struct attn_trial x, y;
    if (!attn_fixture_open(f, &x, shape, "causal(br)", "normal:s2", ATTN_BACKWARD, ""))
        return;
    if (attn_fixture_open(f, &y, &all, "causal(br)", "normal:s2", ATTN_BACKWARD, "")) {
        repeat_heads(&y, &x, ATTN_T_K, shape);
        repeat_heads(&y, &x, ATTN_T_V, shape);
        if (attn_fixture_run_both(f, &x, &y)) {
            for (int o = 0; o <= ATTN_DQ; o++)
                attn_fixture_compare(f, &x, &y, (enum attn_output)o, ATTN_FIXTURE_BOUNDS, NULL,
                                     NULL);
            check_sum(f, &x, &y, ATTN_DK, shape->h / shape->g);
            check_sum(f, &x, &y, ATTN_DV, shape->h / shape->g);
        }
        attn_fixture_close(&y);
    }
    attn_fixture_close(&x);
}

/* ---- R17 ------------------------------------------------------------------------------------- */

/* Run the same case by another spec.  What that spec refuses says nothing about it. */
static void compare_spec(struct attn_fixture *f, const struct attn_trial *x,
                         const struct attn_fixture_shape *s, const struct attn_spec *other)
{
    struct attn_trial y;
    struct attn_fixture own = *f;
    own.spec = other;
    if (!attn_fixture_open(&own, &y, s, "causal(br)", "normal:s3", ATTN_BACKWARD, ""))
        return;
    if (attn_fixture_run(&own, &y)) {
        attn_fixture_compare_all(&own, x, &y, ATTN_FIXTURE_BOUNDS);
        f->compared = own.compared;
    }
    attn_fixture_close(&y);
    if (f->result->verdict == ATTN_FAILED) { /* name the spec that differs */
        char text[400], name[96];
        snprintf(text, sizeof text, "%.380s", f->result->text);
        attn_spec_print(other, name, sizeof name);
        snprintf(f->result->text, sizeof f->result->text, "by %s: %s", name, text);
    }
}

/* Every value of a choice; of an integer its least, 2, 7, 16, and twice its preset. */
static void vary(struct attn_fixture *f, const struct attn_trial *x,
                 const struct attn_fixture_shape *s, int option)
{
    const struct attn_option *o = &f->spec->impl->options[option];
    const int64_t number[] = {o->min, 2, 7, 16, 2 * o->preset};
    struct attn_spec other = *f->spec;
    int words = 1;
    if (o->choices != NULL && o->choices[0] == '@') {
        for (int i = 0; i < attn_impl_count(); i++)
            if (attn_impl_at(i)->ranks == NULL && f->result->verdict == ATTN_PASS) {
                other.options.local = attn_impl_at(i);
                compare_spec(f, x, s, &other);
            }
        return;
    }
    for (const char *p = o->choices; p != NULL && *p != '\0'; p++)
        words += *p == ' ';
    for (int n = 0; n < (o->choices != NULL ? words : 5); n++) {
        other.options.value[option] = o->choices != NULL ? n : number[n];
        int legal = o->choices != NULL || (number[n] >= o->min && number[n] <= o->max);
        if (legal && f->result->verdict == ATTN_PASS)
            compare_spec(f, x, s, &other);
    }
}

void attn_relation_options(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    const struct attn_option *options = f->spec->impl->options;
    struct attn_trial x;
    if (options == NULL || options[0].name == NULL) {
        snprintf(f->refusal, sizeof f->refusal, "%s has no options", f->spec->impl->name);
        return;
    }
    if (!attn_fixture_open(f, &x, shape, "causal(br)", "normal:s3", ATTN_BACKWARD, ""))
        return;
    if (attn_fixture_run(f, &x))
        for (int o = 0; options[o].name != NULL; o++)
            vary(f, &x, shape, o);
    attn_fixture_close(&x);
}

/* ---- R20 ------------------------------------------------------------------------------------- */

void attn_relation_layouts(struct attn_fixture *f, const struct attn_fixture_shape *shape)
{
    static const char *const layout[] = {":layout=blhd", ":layout=padded", ":layout=packed",
                                         ":layout=mixed"};
    struct attn_trial x, y;
    if (!attn_fixture_needs(f, ATTN_CAP_STRIDES) ||
        !attn_fixture_open(f, &x, shape, "causal(br)", "normal:s4", ATTN_BACKWARD, ""))
        return;
    if (attn_fixture_run(f, &x))
        for (size_t n = 0; n < sizeof layout / sizeof *layout; n++) {
            if (!attn_fixture_open(f, &y, shape, "causal(br)", "normal:s4", ATTN_BACKWARD,
                                   layout[n]))
                continue;
            if (attn_fixture_run(f, &y))
                attn_fixture_compare_all(f, &x, &y, ATTN_FIXTURE_BOUNDS);
            attn_fixture_close(&y);
        }
    attn_fixture_close(&x);
}
