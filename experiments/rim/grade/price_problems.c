/* See prices.h: problems drawn by a seed, each made for real and small, and its bytes read off a
 * ledger.  No price of ours has a say. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/machine.h"
#include "experiments/rim/grade/prices.h"
#include "experiments/rim/studies/study.h"
#include "experiments/rim/studies/xformers_order.h"
#include "optimized/registry.h"
#include "ref/problem.h"
#include "tests/harness/base/fileio.h"
#include "tests/harness/inputs/setup.h"

/* ---- what is asked --------------------------------------------------------------------------- */

/* An implementation: its spec with %lld of these numbers, which of its buffers count (NULL: all),
 * and what it is asked. */
static const struct priced {
    const char *of, *spec, *buffers;
    int has_tiles, has_ranks, has_backward, has_f64;
} priced[] = {
    {"dense", "dense", NULL, 0, 0, 1, 1},
    {"csr-textbook", "csr-textbook", NULL, 0, 0, 1, 1},
    {"tiled-textbook", "tiled-textbook:br=%lld,bc=%lld", NULL, 1, 0, 1, 1},
    {"gemm", "gemm@portable", "scores probs dscores", 0, 0, 1, 0},
    {"chunked", "chunked:q=%lld,k=%lld@portable", "part.o part.lse", 1, 0, 0, 0},
    {"ring-textbook", "ring-textbook:ranks=%lld", NULL, 0, 1, 1, 1},
};

/* A number from..to, by the seed, the criterion, the problem and what it is for. */
struct draw {
    const char *seed, *of;
    int problem, n;
};

static int64_t draw(struct draw *d, int64_t from, int64_t to)
{
    char text[300];
    int n = snprintf(text, sizeof text, "%.160s:%s:%d:%d", d->seed, d->of, d->problem, d->n++);
    uint64_t hash = attn_digest_bytes(ATTN_DIGEST_BEGIN, text, (size_t)n);
    return from + (int64_t)((hash >> 32) % (uint64_t)(to - from + 1));
}

static void add_part(struct attn_priced_problem *x, const char *name, int64_t bytes)
{
    x->want += bytes;
    for (int p = 0; p < x->parts; p++)
        if (strcmp(x->part[p].name, name) == 0) {
            x->part[p].bytes += bytes;
            return;
        }
    if (x->parts < ATTN_PRICE_PARTS)
        x->part[x->parts++] = (struct attn_price_part){name, bytes};
}

/* ---- implementations ------------------------------------------------------------------------- */

static void draw_extents(const struct priced *what, struct draw *d, struct price_problem *x)
{
    static const int64_t tiles[] = {8, 16, 24, 32};
    x->of = what->of;
    x->backward = what->has_backward && d->problem % 2;
    x->kv_heads = draw(d, 1, 3);
    x->heads = x->kv_heads * draw(d, 1, 3);
    x->batch = draw(d, 1, 3);
    x->ranks = what->has_ranks ? 2 + d->problem / 2 : 0; /* two of them are always the least */
    int64_t unit = x->ranks > 0 ? x->ranks : 1;
    x->n_query = draw(d, 33 / unit + 1, 100 / unit) * unit;
    x->n_key = draw(d, 33 / unit + 1, 100 / unit) * unit;
    x->d_key = draw(d, 3, 40);
    x->d_value = draw(d, 3, 40);
    x->bytes = what->has_f64 && draw(d, 0, 2) == 0 ? 8 : 4;
    x->tile_query = what->has_tiles ? tiles[draw(d, 0, 3)] : 0;
    x->tile_key = what->has_tiles ? tiles[draw(d, 0, 3)] : 0;
}

/* The live set at the peak of one pass, of rank 0 where there are ranks. */
static enum attn_status read_ledger(const struct attn_spec *spec, const struct attn_setup *setup,
                                    const struct priced *what, enum attn_pass pass,
                                    struct attn_priced_problem *x, struct attn_error *err)
{
    struct attn_ledger ledger;
    struct attn_rank_use *use =
        attn_cli_need(calloc((size_t)attn_ranks(spec->impl, &spec->options), sizeof *use));
    struct attn_ctx ctx = {
        .ledger = &ledger, .options = &spec->options, .error = err, .ranks = use};
    enum attn_status status = ATTN_OK;
    attn_ledger_init(&ledger, NULL);
    for (int p = 0; p <= (int)pass && status == ATTN_OK; p++) {
        attn_ledger_restart(&ledger);
        status = attn_setup_call(setup, spec->impl, &ctx, (enum attn_pass)p);
    }
    const int of_rank = spec->impl->ranks != NULL, n = of_rank ? use->n_live : ledger.n_at_peak;
    const struct attn_account *live = of_rank ? use->live : ledger.at_peak;
    for (int a = 0; a < n && status == ATTN_OK; a++)
        if (what->buffers == NULL || attn_cli_listed(what->buffers, " ", live[a].name))
            add_part(x, live[a].name, live[a].bytes);
    attn_ledger_clear(&ledger);
    free(use);
    return status;
}

static enum attn_status ask_implementation(const struct priced *what, struct draw *d,
                                           struct attn_priced_problem *x, struct attn_error *err)
{
    static const char *const masks[] = {"none", "causal(br)", "causal(tl)", "window(%lld,%lld,br)"};
    struct price_problem *p = &x->problem;
    struct attn_setup setup;
    struct attn_spec spec;
    struct attn_case c;
    char mask[64], name[80];
    draw_extents(what, d, p);
    const int64_t which = draw(d, 0, 3), left = draw(d, 0, 30), right = draw(d, 0, 30);
    p->has_mask = which > 0;
    snprintf(mask, sizeof mask, masks[which], (long long)left, (long long)right);
    snprintf(name, sizeof name, what->spec, (long long)(what->has_ranks ? p->ranks : p->tile_query),
             (long long)p->tile_key);
    snprintf(x->text, sizeof x->text, "b%lldh%lldg%lldq%lldk%lldd%lldv%lld:%s:%s:normal:s1%s",
             (long long)p->batch, (long long)p->heads, (long long)p->kv_heads,
             (long long)p->n_query, (long long)p->n_key, (long long)p->d_key, (long long)p->d_value,
             mask, p->bytes == 8 ? "f64" : "f32", p->backward ? ":pass=bwd" : "");
    enum attn_status status = attn_spec_parse(name, &spec, err);
    if (status == ATTN_OK)
        status = attn_case_parse(x->text, &c, err);
    if (status == ATTN_OK)
        status = attn_setup_open(&c, &setup, err);
    if (status != ATTN_OK)
        return status;
    int counted = 0;
    p->pairs = attn_problem_pairs(&setup.problem, 0, 0, &counted);
    status = read_ledger(&spec, &setup, what, (enum attn_pass)p->backward, x, err);
    attn_setup_close(&setup);
    return status;
}

/* ---- incidents ------------------------------------------------------------------------------- */

/* The last problems of an incident have the published sizes, which no machine here holds: there the
 * tape counts the blocks that it takes for real at the small ones. */
enum { PUBLISHED = 2 };

static void read_tape(const struct attn_tape *tape, int is_kept, struct attn_priced_problem *x)
{
    for (int b = 0; b < (is_kept ? tape->n : tape->n_at_peak); b++)
        add_part(x, (is_kept ? tape->block : tape->at_peak)[b].name,
                 (is_kept ? tape->block : tape->at_peak)[b].bytes);
}

/* expand_mask_4d: its peak, and what it returns. */
static void ask_open_sora(struct draw *d, struct attn_priced_problem *x)
{
    const int is_published = d->problem >= ATTN_PRICES - PUBLISHED, is_kept = d->problem % 2;
    struct price_problem *p = &x->problem;
    struct attn_tape tape = {.is_real = !is_published};
    char mask[40];
    p->of = is_kept ? "open-sora-kept" : "open-sora-peak";
    p->batch = is_published ? 5 : draw(d, 1, 4);
    p->heads = p->kv_heads = draw(d, 1, 16);
    p->n_query = p->n_key = is_published ? 196608 : draw(d, 16, 120);
    const struct attn_mask_shape shape = {p->batch, p->heads, p->n_query, p->n_key};
    snprintf(mask, sizeof mask, "keys(%lld)", (long long)p->n_key);
    snprintf(x->text, sizeof x->text, "B=%lld, L=%lld", (long long)p->batch, (long long)p->n_query);
    attn_ledger_init(&tape.ledger, NULL);
    attn_study_store(&tape, "int32", mask, &shape);
    read_tape(&tape, is_kept, x);
    attn_ledger_clear(&tape.ledger);
}

static void ask_xformers(struct draw *d, struct attn_priced_problem *x)
{
    const int is_published = d->problem >= ATTN_PRICES - PUBLISHED;
    struct price_problem *p = &x->problem;
    struct attn_tape tape = {.is_real = !is_published};
    p->of = "xformers";
    p->is_first = d->problem % 2 == 0;
    p->batch = is_published ? 16 : draw(d, 1, 4);
    p->n_query = p->n_key = is_published ? 1024 : draw(d, 8, 64);
    p->d_key = p->d_value = is_published ? 1024 : draw(d, 8, 64);
    p->flush = !p->is_first ? 0 : is_published ? 256000000 : draw(d, 1, 200000);
    p->workspace = is_published ? 8519680 : draw(d, 0, 1) * 4096;
    snprintf(x->text, sizeof x->text, "B=%lld, L=%lld, d=%lld, %s run", (long long)p->batch,
             (long long)p->n_query, (long long)p->d_key, p->is_first ? "first" : "second");
    attn_ledger_init(&tape.ledger, NULL);
    attn_study_xformers_call(
        &tape,
        &(struct attn_xformers_call){p->batch, p->n_query, p->d_key, p->flush, p->workspace, 0},
        (int)p->is_first);
    read_tape(&tape, 0, x);
    attn_ledger_clear(&tape.ledger);
}

/* ---- any of them ----------------------------------------------------------------------------- */

enum attn_status attn_price_ask(const char *of, const char *seed, int n,
                                struct attn_priced_problem *x, struct attn_error *err)
{
    struct draw d = {seed, of, n, 0};
    memset(x, 0, sizeof *x);
    for (size_t i = 0; i < sizeof priced / sizeof *priced; i++)
        if (strcmp(priced[i].of, of) == 0)
            return ask_implementation(&priced[i], &d, x, err);
    if (strcmp(of, "open-sora") == 0)
        ask_open_sora(&d, x);
    else if (strcmp(of, "xformers") == 0)
        ask_xformers(&d, x);
    else
        return attn_fail(err, ATTN_EINVAL, "there are no prices of '%s'", of);
    return ATTN_OK;
}
