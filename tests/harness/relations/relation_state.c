/* Relations of options, repeats, threads and history (bugs.md R17, F14, F16). */
#include <stdio.h>

#include "tests/harness/relations/relation_fixture.h"

/* ---- R17 ------------------------------------------------------------------------------------- */

/* The same case by other specs, one option of each varied.  A refusal by such a spec says nothing
 * about the case. */
struct walk {
    int option, value; /* the next ones */
    struct attn_spec spec;
};

/* Every value of a choice; of an integer its least, 2, 7, 16, and twice its preset. */
static int values_of(const struct attn_option *o)
{
    int words = 1;
    if (o->choices == NULL)
        return 5;
    for (const char *p = o->choices; *p != '\0'; p++)
        words += *p == ' ';
    return o->choices[0] == '@' ? attn_impl_count() : words;
}

/* 0: the option cannot have value n of those. */
static int vary(const struct attn_option *o, int option, int n, struct attn_spec *spec)
{
    const int64_t number[] = {o->min, 2, 7, 16, 2 * o->preset};
    if (o->choices != NULL && o->choices[0] == '@') {
        attn_options_set_local(&spec->options, attn_impl_at(n));
        return attn_impl_at(n)->ranks == NULL;
    }
    spec->options.value[option] = o->choices != NULL ? n : number[n];
    return o->choices != NULL || (number[n] >= o->min && number[n] <= o->max);
}

static int next_spec(struct attn_fixture *f)
{
    const struct attn_option *options = f->spec->impl->options;
    struct walk *x = f->arg;
    for (; options[x->option].name != NULL; x->option++, x->value = 0)
        while (x->value < values_of(&options[x->option])) {
            x->spec = *f->spec;
            f->other = &x->spec;
            if (vary(&options[x->option], x->option, x->value++, &x->spec))
                return 1;
        }
    return 0;
}

static void vary_options(struct attn_fixture *f)
{
    static const struct attn_relation_plan plan = {.pass = ATTN_BACKWARD,
                                                   .mask = "causal(br)",
                                                   .fill = "normal:s3",
                                                   .trials = 2,
                                                   .next = next_spec};
    const struct attn_option *options = f->spec->impl->options;
    struct walk walk = {0, 0, *f->spec};
    char name[96];
    if (options == NULL || options[0].name == NULL) {
        snprintf(f->refusal, sizeof f->refusal, "%s has no options", f->spec->impl->name);
        return;
    }
    f->arg = &walk;
    attn_fixture_follow(f, &plan);
    attn_spec_print(&walk.spec, name, sizeof name);
    if (f->result->verdict == ATTN_FAILED && f->other != NULL)
        attn_fixture_explain(f, "by %s", name);
    f->other = NULL;
}

static const struct attn_relation_plan one = {.trials = 1};

/* ---- D1, D2 ---------------------------------------------------------------------------------- */

static uint64_t digest(const struct attn_trial *t)
{
    return attn_setup_digest(&t->setup, NULL, t->setup.given.pass);
}

/* Equal digests, or a failure that says what was done. */
static void same_bits(struct attn_fixture *f, uint64_t got, uint64_t want, const char *what)
{
    if (!attn_fixture_repeats(f))
        return;
    f->compared++;
    if (got != want)
        attn_fixture_fail(f, ATTN_F_EXACT, "%s: other bits (digest %016llx, before %016llx)", what,
                          (unsigned long long)got, (unsigned long long)want);
}

/* threads 0: one more in each run.  Every run is made: a difference seen once is a failure, and how
 * often it is seen tells a race from a state. */
static void again(struct attn_fixture *f, int runs, int threads, const char *what)
{
    struct attn_trial *x = &f->trial[0];
    int others = 0, first_other = 0, done = 1;
    uint64_t bits = 0;
    attn_fixture_settle(f, &one);
    if (!attn_fixture_open(f, x, &f->shape, "causal(br)", "normal:s1", ATTN_BACKWARD, ""))
        return;
    if (attn_fixture_call(f, x, f->spec, NULL, 1)) {
        const uint64_t first = digest(x);
        for (; done < runs &&
               attn_fixture_call(f, x, f->spec, NULL, threads > 0 ? threads : done + 1);
             done++)
            if (digest(x) != first && others++ == 0) {
                first_other = done + 1;
                bits = digest(x);
            }
        if (done == runs || others > 0) {
            char words[160];
            snprintf(words, sizeof words, "%s: %d of %d, first run %d", what, others, done - 1,
                     first_other);
            same_bits(f, others > 0 ? bits : first, first, words);
        }
    }
    attn_fixture_close(x);
}

static void repeats(struct attn_fixture *f)
{
    again(f, 30, 1, "repeats in thirty runs");
}

static void threads(struct attn_fixture *f)
{
    again(f, 4, 0, "with 2, 3 or 4 threads");
}

/* ---- D3 -------------------------------------------------------------------------------------- */

/* Calls that leave much, or something else, behind: sizes, heads, masks, types of problem. */
static const struct {
    struct attn_fixture_shape shape;
    const char *mask, *fill, *fields;
} call[] = {{{2, 8, 4, 16, 24, 8, 6}, "causal(br)", "normal:s1", ""},
            {{1, 4, 4, 8, 64, 16, 16}, "none", "offset+120:s2", ""},
            {{3, 12, 4, 12, 8, 4, 8}, "causal(br)", "hetero:s3", ":poison=nan"},
            {{2, 8, 8, 32, 32, 8, 8}, "window(5,0,br)", "stairs-up:s4", ":softcap=30"},
            {{1, 16, 4, 4, 4, 24, 4}, "keys(x0111)", "normal:s5", ":scale=-0.5"},
            {{2, 6, 3, 19, 37, 7, 5}, "random(0.4,3)", "normal:s6", ""},
            {{1, 4, 4, 4, 4, 4, 4}, "none", "ones:s7", ""}};
enum { CALLS = sizeof call / sizeof *call };

/* One call in a ledger; 0 when it is refused.  *bits: what came out. */
static int make_call(struct attn_fixture *f, int n, struct attn_ledger *ledger, uint64_t *bits)
{
    struct attn_trial *x = &f->trial[0];
    f->shape = call[n].shape;
    attn_fixture_settle(f, &one);
    if (!attn_fixture_open(f, x, &f->shape, call[n].mask, call[n].fill, ATTN_BACKWARD,
                           call[n].fields))
        return 0;
    int ran = attn_fixture_call(f, x, f->spec, ledger, 1);
    if (ran)
        *bits = digest(x);
    attn_fixture_close(x);
    return ran;
}

static void history(struct attn_fixture *f)
{
    uint64_t alone[CALLS], now;
    int ran[CALLS];
    struct attn_ledger ledger;
    if (f->shape.q != 16) /* the calls bring their own shapes: once is enough */
        return;
    for (int n = 0; n < CALLS; n++)
        ran[n] = make_call(f, n, NULL, &alone[n]);
    attn_ledger_init(&ledger, NULL);
    for (int step = 1; step < CALLS; step++) /* each after each other one */
        for (int k = 0, n = 0; k < CALLS; k++, n = (n + step) % CALLS)
            if (ran[n] && f->result->verdict == ATTN_PASS && make_call(f, n, &ledger, &now)) {
                char what[160];
                snprintf(what, sizeof what, "b%lldh%lldq%lldk%lld:%s after other calls",
                         (long long)call[n].shape.b, (long long)call[n].shape.h,
                         (long long)call[n].shape.q, (long long)call[n].shape.k, call[n].mask);
                same_bits(f, now, alone[n], what);
            }
    attn_ledger_clear(&ledger);
}

const struct attn_relation_plan attn_relations_of_state[] = {{"R17", .run = vary_options},
                                                             {"D1", .run = repeats},
                                                             {"D2", .run = threads},
                                                             {"D3", .run = history},
                                                             {.id = NULL}};
