/* The layer around attention over ranks (experiments/rim/layer/schemes): right against loops in a
 * wider type, with every scheme, and what it sends to the byte; the command; and planted bugs are
 * found (experiments/rim/layer/tests/mutants.def). */
#include <dlfcn.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/rim/layer/schemes/layer_scheme.h"
#include "experiments/rim/layer/tests/layer_fixture.h"
#include "ref/textbook.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/message_log.h"
#include "tests/fixtures/scheme_walk.h"
#include "tests/fixtures/scratch.h"
#include "tests/harness/base/fill.h"
#include "tests/suites.h"

SUITE(layer_ranks, .open = scratch_open, .close = scratch_close);

/* The calls of a layer's scheme, of this library or of one with a bug in it. */
struct layer_calls {
    __typeof__(attn_layer_spec_parse) *parse;
    __typeof__(attn_layer_ranks_run) *run;
};
static const struct layer_calls ours = {attn_layer_spec_parse, attn_layer_ranks_run};

static struct attn_layer_spec layer_spec(const struct layer_calls *calls, const char *text,
                                         enum attn_boundary boundary)
{
    struct attn_layer_spec spec;
    struct attn_error err = {0};
    ck_assert_msg(calls->parse(text, &spec, &err) == ATTN_OK, "%s", err.text);
    spec.boundary = boundary;
    return spec;
}

/* Prices against ledgers and counters, each rank. */
static void check_use(const char *what, const struct attn_layer_spec *spec,
                      const struct attn_layer *layer, enum attn_pass pass,
                      const struct attn_rank_use *use, int counts_only)
{
    for (int r = 0; r < attn_layer_ranks(spec); r++) {
        struct attn_cost cost;
        struct attn_error err = {0};
        char text[300];
        snprintf(text, sizeof text, "%s, %s, rank %d", what, attn_pass_name(pass), r);
        ck_assert_msg(attn_layer_ranks_cost(spec, layer, pass, r, &cost, &err) == ATTN_OK, "%s",
                      err.text);
        if (!counts_only) /* then the local implementation takes nothing */
            ck_priced(text, &cost, use[r].live, use[r].n_live, use[r].peak_bytes);
        ck_assert_msg(cost.bytes_sent == use[r].bytes_sent && cost.messages == use[r].messages,
                      "%s: %lld bytes in %lld messages, priced %lld in %lld", text,
                      (long long)use[r].bytes_sent, (long long)use[r].messages,
                      (long long)cost.bytes_sent, (long long)cost.messages);
    }
}

enum { MOST_RANKS = 16 };

/* Run both passes; the results are in f->got.  Returns how many copies differ. */
static int run_ranks(struct layer_fixture *f, const struct layer_calls *calls,
                     const struct attn_layer_spec *spec, const char *what, int counts_only)
{
    static struct attn_rank_use use[2][MOST_RANKS];
    struct attn_error err = {0};
    struct attn_ledger ledger;
    attn_ledger_init(&ledger, NULL);
    ledger.poison = !counts_only;
    struct attn_ctx ctx = {.ledger = &ledger, .error = &err, .counts_only = counts_only};
    struct attn_layer_call call = {&f->layer, &f->forward, &f->backward, {use[0], use[1]}, 0};
    enum attn_status status = calls->run(spec, &ctx, &call);
    ck_assert_msg(status == ATTN_OK, "%s: %s", what, err.text);
    ck_assert_int_eq(attn_ledger_clear(&ledger), 0);
    ck_assert_int_eq(ledger.damaged, 0);
    for (int pass = 0; pass < 2 && calls == &ours; pass++)
        check_use(what, spec, &f->layer, (enum attn_pass)pass, use[pass], counts_only);
    return call.differ;
}

/* All of one small layer by one spec.  0: refused. */
static int check_ranks(const int64_t n[7], const char *mask, const char *text,
                       enum attn_boundary boundary, enum attn_dtype dtype)
{
    char what[300];
    struct attn_layer_spec spec = layer_spec(&ours, text, boundary);
    struct layer_fixture f;
    struct attn_cost cost;
    struct attn_error err = {0};
    snprintf(what, sizeof what, "%s, boundary %d, b%d l%d c%d h%d g%d d%d dv%d %s", text, boundary,
             (int)n[0], (int)n[1], (int)n[2], (int)n[3], (int)n[4], (int)n[5], (int)n[6], mask);
    layer_open(&f, n, mask, dtype, 11);
    enum attn_status status = attn_layer_ranks_cost(&spec, &f.layer, ATTN_BACKWARD, 0, &cost, &err);
    if (status == ATTN_OK) {
        ck_assert_msg(run_ranks(&f, &ours, &spec, what, 0) == 0, "%s: copies differ", what);
        layer_compare(&f, what, ATTN_LAYER_Y, ATTN_LAYER_DWO);
        run_ranks(&f, &ours, &spec, what, 1);
    }
    layer_close(&f);
    ck_assert_msg(status == ATTN_OK || status == ATTN_ENOTSUP, "%s: %s", what, err.text);
    return status == ATTN_OK;
}

/* Every scheme around the layer, and every sequence-parallel implementation. */
static int schemes(void)
{
    return attn_layer_scheme_count() + attn_impl_count();
}

static const char *scheme_name(int scheme)
{
    int own = attn_layer_scheme_count();
    if (scheme < own)
        return attn_layer_scheme_at(scheme)->record.name;
    return attn_impl_at(scheme - own)->scheme != NULL ? attn_impl_at(scheme - own)->name : NULL;
}

static void spec_text(int scheme, int ranks, char text[80])
{
    const char *name = scheme_name(scheme);
    snprintf(text, 80, "%s:ranks=%d%s", name, ranks,
             strcmp(name, "ring") == 0 && ranks % 2 ? ",order=zigzag" : "");
}

/* Shards of heads are no shards of a sequence: the one that must refuse. */
static int is_refused(int scheme)
{
    return strcmp(scheme_name(scheme), "heads") == 0;
}

struct walking {
    int runs, turn, one_in;
};

static void run_next(void *arg, const struct attn_impl *impl, const char *text)
{
    static const char *const mask[] = {"causal(br)", "window(0,0,tl)&spatial(5,2,1)",
                                       "window(0,0,tl)|skiparse(group,2)"};
    static const int64_t extents[7] = {2, 10, 5, 4, 2, 2, 3};
    struct walking *x = arg;
    int never = strstr(text, "sizes=pad") != NULL || strstr(text, "save=kv") != NULL ||
                strstr(text, "keys=whole") != NULL || strcmp(impl->name, "heads") == 0;
    if (attn_hash(1, 2, (uint64_t)x->turn++) % (uint64_t)x->one_in != 0)
        return;
    int ran = check_ranks(extents, mask[x->turn % 3], text, (enum attn_boundary)(x->turn % 2),
                          x->turn % 4 < 2 ? ATTN_F64 : ATTN_F32);
    ck_assert_msg(never ? !ran : ran || may_be_refused(text), "%s: %s", text,
                  ran ? "not refused" : "refused");
    x->runs += ran;
}

/* With all words of all options; some of these ways, all of them under ATTN_FULL. */
TEST_EACH(ways_agree_with_loops, 2)
{
    struct walking x = {.one_in = getenv("ATTN_FULL") != NULL ? 1 : 3};
    scheme_walk(3 + _i, run_next, &x);
    ck_assert_int_gt(5 * x.runs, x.turn / x.one_in); /* pads are refused, and most of strict */
}

/* The layers of one process, and all small (B, H, G, L, P), of which a few in an ordinary run.  As
 * a video of one frame or of several where tokens are a multiple of 2 or 3. */
TEST_EACH(ranks_agree_with_loops, schemes())
{
    static const int64_t heads[5][2] = {{1, 1}, {2, 1}, {4, 2}, {3, 3}, {6, 2}};
    const int full = getenv("ATTN_FULL") != NULL;
    int runs = 0;
    for (int n = 0; n < 6 * 10 * 2 * COUNT(heads) && scheme_name(_i) != NULL; n++) {
        const int64_t l = n / 6 % 10, shape = n / 60, *h = heads[shape / 2];
        const int64_t frames = l % 3 == 0 ? 3 : l % 2 == 0 ? 2 : 1;
        const int64_t drawn[7] = {1 + shape % 2, l, 3 + l % 3, h[0], h[1], 2, 3};
        const int is_listed = n < 5 * LAYERS_SMALL, ranks = 1 + (is_listed ? n % 5 : n % 6);
        char text[80], video[80] = "none";
        if (!is_listed && !full && attn_hash(5, (uint64_t)_i, (uint64_t)n) % 8 != 0)
            continue;
        if (l > 0)
            snprintf(video, sizeof video, "spatial(%d,%d,1)", (int)frames, (int)(l / frames));
        spec_text(_i, ranks, text);
        runs +=
            ranks > 1 && check_ranks(is_listed ? layers_small[n / 5].n : drawn,
                                     is_listed ? layers_small[n / 5].mask : video, text,
                                     (enum attn_boundary)(n % 2), n % 4 < 2 ? ATTN_F64 : ATTN_F32);
    }
    ck_assert(scheme_name(_i) == NULL || (runs > 20) == !is_refused(_i));
}

/* Without the factors dW is 1/P of what it should be, and all else is right. */
TEST(unscaled_is_one_pth)
{
    struct attn_layer_spec spec = layer_spec(&ours, "ulysses:ranks=4", ATTN_BOUNDARY_UNSCALED);
    struct layer_fixture f;
    layer_open(&f, (const int64_t[7]){2, 9, 5, 4, 2, 2, 3}, "causal(br)", ATTN_F64, 3);
    ck_assert_int_eq(run_ranks(&f, &ours, &spec, "unscaled", 0), 0);
    layer_compare(&f, "unscaled", ATTN_LAYER_Y, ATTN_LAYER_DX);
    for (int r = ATTN_LAYER_DWQKV; r <= ATTN_LAYER_DWO; r++)
        for (int64_t i = 0; i < attn_layer_result_count(&f.layer, r); i++)
            f.truth[r][i] /= 4;
    layer_compare(&f, "unscaled", ATTN_LAYER_DWQKV, ATTN_LAYER_DWO);
    layer_close(&f);
}

/* systems.md's units: M (R-1)/R^2 with M = e B T S C, of the forward of each block. */
static int64_t units(const char *text, const char *mask)
{
    struct attn_layer layer = {2, 64, 16, 4, 4, 4, 4, 0.5, ATTN_F32, NULL};
    struct attn_layer_spec spec = layer_spec(&ours, text, ATTN_BOUNDARY_NONE);
    struct attn_mask *bound = mask_of(mask, (struct attn_mask_shape){2, 4, 64, 64});
    struct attn_cost cost;
    struct attn_error err = {0};
    layer.mask = bound;
    ck_assert_msg(attn_layer_ranks_cost(&spec, &layer, ATTN_FORWARD, 1, &cost, &err) == ATTN_OK,
                  "%s", err.text);
    attn_mask_free(bound);
    int64_t lse = 0, unit = 4 * 2 * 64 * 16 * 3 / 16;
    if (spec.scheme == NULL && cost.bytes_sent > 0) /* lse goes home with o: a number a row */
        lse = 4 * 2 * 64 * 4 * 3 / 16;
    ck_assert_int_eq((cost.bytes_sent - lse) % unit, 0);
    return (cost.bytes_sent - lse) / unit;
}

TEST(published_volumes)
{
    static const char spatial[] = "spatial(8,8,1)", temporal[] = "temporal(8,8,1)";
    ck_assert_int_eq(units("video:ranks=4,home=frames,exchange=always", spatial), 4);
    ck_assert_int_eq(units("video:ranks=4,home=frames,exchange=always", temporal), 4);
    ck_assert_int_eq(units("video:ranks=4", spatial), 4);
    ck_assert_int_eq(units("video:ranks=4", temporal), 0);
    ck_assert_int_eq(units("dsp:ranks=4", spatial), 2);
    ck_assert_int_eq(units("dsp:ranks=4", temporal), 0);
    ck_assert_int_eq(units("ulysses:ranks=4", spatial), 4);
    ck_assert_int_eq(units("fastseq:ranks=4", spatial), 5); /* M (R-1)/R, and o */
}

/* ---- planted bugs ---------------------------------------------------------------------------- */

/* Which results are wrong, as bits. */
static unsigned wrong_results(const struct layer_fixture *f)
{
    struct attn_layer_bound bound = attn_layer_bound(&f->layer, f->x, f->wqkv, f->wo, f->dy);
    unsigned wrong = 0;
    for (int r = 0; r < ATTN_LAYER_RESULTS; r++)
        for (int64_t i = 0; i < attn_layer_result_count(&f->layer, r); i++)
            if (!(fabs(((const double *)f->got[r])[i] - f->truth[r][i]) <= bound.at[r]))
                wrong |= 1u << r;
    return wrong;
}

enum { WRONG_Y = 1 << ATTN_LAYER_Y, WRONG_DX = 1 << ATTN_LAYER_DX };
enum { WRONG_DWQKV = 1 << ATTN_LAYER_DWQKV, WRONG_DWO = 1 << ATTN_LAYER_DWO };

/* The effect of each on two batches; on one, if that is another. */
static const struct {
    const char *id, *spec;
    enum attn_boundary boundary;
    int64_t batch;
    unsigned wrong;
} planted[] = {
    {"LY-01", "fastseq:ranks=4", ATTN_BOUNDARY_NONE, 2, WRONG_DX},
    {"LY-01", "fastseq:ranks=3", ATTN_BOUNDARY_NONE, 2, WRONG_DX},
    {"LY-02", "ulysses:ranks=4", ATTN_BOUNDARY_SCALED, 2, WRONG_DX | WRONG_DWQKV | WRONG_DWO},
    {"LY-03", "ulysses:ranks=4", ATTN_BOUNDARY_SCALED, 2, WRONG_DX},
    {"LY-04", "ulysses:ranks=4", ATTN_BOUNDARY_NONE, 2, WRONG_DWQKV | WRONG_DWO},
    {"LY-04", "fastseq:ranks=4", ATTN_BOUNDARY_NONE, 2, WRONG_DWO},
    {"LY-05", "fastseq:ranks=4", ATTN_BOUNDARY_NONE, 2, WRONG_DWQKV},
    {"LY-07", "fastseq:ranks=4", ATTN_BOUNDARY_NONE, 1, 0},
    {"LY-07", "fastseq:ranks=4", ATTN_BOUNDARY_NONE, 2,
     WRONG_Y | WRONG_DX | WRONG_DWQKV | WRONG_DWO},
    {"LY-08", "dsp:ranks=2", ATTN_BOUNDARY_NONE, 2, WRONG_DWQKV},
};

TEST_EACH(planted_bugs_are_found, COUNT(planted))
{
    char path[512];
    snprintf(path, sizeof path, "%s/mutants/%s.so", test_build(), planted[_i].id);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(library != NULL, "%s", dlerror());
    struct layer_calls theirs;
    *(void **)&theirs.parse = dlsym(library, "attn_layer_spec_parse");
    *(void **)&theirs.run = dlsym(library, "attn_layer_ranks_run");
    ck_assert(theirs.parse != NULL && theirs.run != NULL);
    for (int mutated = 0; mutated < 2; mutated++) {
        const struct layer_calls *calls = mutated ? &theirs : &ours;
        struct attn_layer_spec spec = layer_spec(calls, planted[_i].spec, planted[_i].boundary);
        struct layer_fixture f;
        layer_open(&f, (const int64_t[7]){planted[_i].batch, 8, 12, 4, 2, 3, 3}, "spatial(2,4,1)",
                   ATTN_F64, 5);
        run_ranks(&f, calls, &spec, planted[_i].id, 0);
        ck_assert_uint_eq(wrong_results(&f), mutated ? planted[_i].wrong : 0);
        layer_close(&f);
    }
    dlclose(library);
}

/* Every one that is planted is looked for. */
TEST(every_planted_bug_has_a_line)
{
    char line[4096];
    FILE *file = fopen("experiments/rim/layer/tests/mutants.def", "r");
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof line, file) != NULL) {
        int found = strncmp(line, "LY-", 3) != 0;
        for (int n = 0; n < COUNT(planted); n++)
            found |= strncmp(line, planted[n].id, 5) == 0 && planted[n].wrong != 0;
        ck_assert_msg(found, "no line for %s", line);
    }
    fclose(file);
}

/* ---- the command ----------------------------------------------------------------------------- */

/* A layer's file names its own tensors, and its sums are what ranks counted. */
TEST_EACH(layer_writes_its_own, 3)
{
    static const struct {
        const char *spec, *tensor[4];
        int ranks;
    } of[] = {{"fastseq:ranks=2", {"x", "o", "do", "dwo"}, 2},
              {"ring:ranks=3", {"k", "dv", "dwq", "dwk"}, 3},
              {"ulysses:ranks=4 --boundary scaled", {"q", "y", "dx", "dwv"}, 4}};
    struct logged_rank sent[2][8] = {0};
    json_t *said, *rank;
    size_t n;
    scratch_shell(0, "", "%s/attnlab layer %s --format json --log %s > %s", test_build(),
                  of[_i].spec, scratch_path("layer.jsonl"), scratch_path("layer.json"));
    char *log = log_text(scratch_path("layer.jsonl"));
    for (int t = 0; t < 4; t++) {
        char name[32];
        snprintf(name, sizeof name, "\"tensor\":\"%s\"", of[_i].tensor[t]);
        ck_assert_msg(strstr(log, name) != NULL, "%s: no %s", of[_i].spec, of[_i].tensor[t]);
    }
    log_sum(log, of[_i].ranks, "f64", sent);
    said = json_load_file(scratch_path("layer.json"), 0, NULL);
    const json_t *ranks = json_object_get(json_array_get(said, 0), "ranks");
    ck_assert_uint_eq(json_array_size(ranks), 2 * (size_t)of[_i].ranks);
    json_array_foreach(ranks, n, rank)
    {
        const struct logged_rank *x = &sent[(int)n / of[_i].ranks][(int)n % of[_i].ranks];
        ck_assert_int_eq(json_integer_value(json_object_get(rank, "bytes_sent")), x->bytes);
        ck_assert_int_eq(json_integer_value(json_object_get(rank, "messages")), x->messages);
    }
    json_decref(said);
    free(log);
}

TEST(words)
{
    static const struct scratch_row rows[] = {
        {"layer", 2, "SPEC"},
        {"layer tiled", 2,
         "tiled: has no layouts for a layer; schemes for a layer are: fastseq, dsp"},
        {"layer fastseq:sizes=pad", 2, "a layer has no pads; sizes=uneven would work"},
        {"layer heads --heads 4", 2, "as a layer that is fastseq"},
        {"layer dsp", 2, "a mask such as spatial(T,S,1)"},
        {"layer fastseq --hidden 30", 2, "heads must divide hidden; --hidden 64 would work"},
        {"layer fastseq --pass fwd --length 8", 0, "y  agrees "},
        {"layer ulysses --length 8 --boundary scaled", 0, "dwo    agrees "},
        {"layer ulysses --length 8 --boundary unscaled", 1, "DISAGREES"},
        {"layer fastseq --length 1400 --hidden 128 --heads 1", 2, "cannot be judged"},
        {"layer list", 0, "x gathered, heads on each rank"},
        {"layer dsp fastseq --log $folder/log", 2, "of one SPEC"},
        {"layer dsp --length 512k --hidden 4 --log /proc/x", 3, "/proc/x"},
        {"layer ulysses --length 8 >/dev/full", 3, "No space left"},
    };
    scratch_rows(rows, COUNT(rows));
}
