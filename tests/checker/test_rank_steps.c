/* Ranks judged step by step: the engine's own, and a ring in numpy, right and wrong. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/problem.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/external_fixture.h"
#include "tests/fixtures/scratch.h"
#include "tests/harness/base/files.h"
#include "tests/harness/subject/rank_steps.h"
#include "tests/suites.h"

SUITE(rank_steps, .open = scratch_open, .close = scratch_close);

/* ---- the engine's own ------------------------------------------------------------------------ */

/* Elements of a view as OUT/c/rank-R[/step-S]/NAME.npy, BHLD. */
static void put(int rank, int step, const char *name, const struct attn_view *view,
                const int64_t extent[4])
{
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/case-1/rank-%d", scratch_path("out"), rank);
    if (step >= 0)
        n += snprintf(path + n, sizeof path - (size_t)n, "/step-%d", step);
    ck_assert_int_eq(fixture_shell("mkdir -p '%s'", path), 0);
    snprintf(path + n, sizeof path - (size_t)n, "/%s.npy", name);
    double *number = calloc((size_t)(extent[0] * extent[1] * extent[2] * extent[3]) + 1, 8);
    struct attn_file_tensor t = {
        .dtype = ATTN_FILE_F64, .n_axes = strcmp(name, "lse") == 0 ? 3 : 4, .data = number};
    const struct attn_cview from = {
        view->data,
        view->dtype,
        {view->stride[0], view->stride[1], view->stride[2], view->stride[3]}};
    memcpy(t.extent, extent, 4 * sizeof *extent);
    for (int64_t at[4] = ATTN_START; attn_each(at, extent);)
        *number++ = attn_cview_get(&from, at[0], at[1], at[2], at[3]);
    ck_assert_int_eq(attn_npy_write(path, &t, NULL), ATTN_OK);
    free(t.data);
}

static void take_held(void *arg, const struct attn_holding *x)
{
    pthread_mutex_lock(arg);
    put(x->rank, x->step, x->tensor, &x->view, x->extent);
    pthread_mutex_unlock(arg);
}

static void ignore(void *arg, const struct attn_note *note)
{
    (void)arg, (void)note;
}

/* Puts the parts of inputs and results: those of each rank at the end and, of ulysses, at each
 * step. */
static void put_parts(const char *spec, struct attn_setup *setup)
{
    struct attn_rank_steps x;
    struct attn_setup piece;
    ck_assert_int_eq(attn_rank_steps_open(spec, &(struct attn_claims){0}, setup, &x, NULL),
                     ATTN_OK);
    for (int n = 0; n < x.ranks * (x.steps + 1); n++) {
        const struct attn_rank_held held = attn_rank_held(&x, n % x.ranks, n / x.ranks);
        if (x.is_ring && held.step < x.steps)
            continue;
        ck_assert_int_eq(attn_rank_piece_open(&x, &held, 0, &piece, NULL), ATTN_OK);
        attn_rank_piece_copy(&held, &piece, setup, 0);
        for (int slot = 0; slot < ATTN_SLOTS; slot++) {
            const struct attn_tensor *t = &piece.tensor[slot];
            const struct attn_view view = attn_tensor_view(t);
            if (t->map != NULL)
                put(held.rank, held.step < x.steps ? held.step : -1, t->name, &view, t->extent);
        }
        attn_rank_piece_close(&piece);
    }
    attn_rank_steps_close(&x);
}

/* Cases of a scheme in "cases"; what the engine's ranks of a spec hold and give in "out". */
static void run_engine(const char *spec, const char *scheme, const char *text)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const struct attn_log log = {.note = ignore, .arg = &lock, .held = take_held};
    const struct attn_spec parsed = spec_of(spec);
    struct running x;
    static const char claims[] =
        "{\"claims\": [\"f64\", \"f32\", \"backward\", \"gqa\", \"cross\", \"dv\", "
        "\"band\", \"dense\", \"dlse\"]}";
    scratch_expect(0, "1 cases", "vectors '%s' --scheme '%s' --case '%s' --claims '%s'",
                   scratch_path("cases"), scheme, text,
                   scratch_put("claims.json", claims, sizeof claims - 1));
    running_open(&x, &parsed, text);
    x.ctx.log = &log;
    running_well(&x, ATTN_FORWARD);
    if (x.setup.given.pass == ATTN_BACKWARD)
        running_well(&x, ATTN_BACKWARD);
    put_parts(scheme, &x.setup);
    attn_saved_drop(&x.saved, &x.ledger);
    running_close(&x);
}

/* A scheme whose schedule, shards or travelling sums are not as they are described here. */
static const char *const own[][3] = {
    {"ring:ranks=4", "b2h4g2q23k23d8v6:causal(br):f32:normal:s1:pass=bwd"},
    {"ring:ranks=3,order=striped", "h2q20k29d8:window(7,3,br):f64:normal:s2:pass=bwd:dlse=1"},
    {"ring:ranks=4,order=zigzag,inner=2", "h4g1q37d8:causal(br):f32:select:s3:pass=bwd"},
    {"ulysses:ranks=3", "b2h6g6q13d8:causal(br):f32:normal:s4:pass=bwd"},
    {"ulysses:ranks=2", "h4g4q5k9d8:none:f32:reveal:s5"},
    {"ring:ranks=3", "h4g2q9k12d8:causal(br):f64:normal:s6:pass=bwd:dlse=1",
     "ring-textbook:ranks=3"},
    {"ulysses:ranks=2", "h4q8d8:causal(br):f32:normal:s7:pass=bwd", "ulysses-textbook:ranks=2"}};

TEST_EACH(ranks_of_our_own_agree, COUNT(own))
{
    run_engine(own[_i][0], own[_i][2] != NULL ? own[_i][2] : own[_i][0], own[_i][1]);
    scratch_expect(0, "PASS: 1 pass", "check --results '%s' --vectors '%s'", scratch_path("out"),
                   scratch_path("cases"));
}

/* Files that are damaged, by lines of a shell in OUT/case-1: never a pass, and it is said where.
 * The last two are faults of rings, known by their numbers. */
static const struct {
    const char *edit;
    int status;
    const char *says;
} damages[] = {
    {"rm -r rank-1/step-2", 1, "rank 1, step 2: no folder case-1/rank-1/step-2"},
    {"rm rank-3/step-0/dk.npy", 1, "rank 3, step 0: dk.npy is missing"},
    {"rm rank-2/*.npy", 1, "rank 2, results: o.npy is missing"},
    {"cp rank-0/dq.npy rank-0/step-1", 1, "rank 0, step 1: dq is given"},
    {"cp -r rank-0 rank-4", 1, "case-1/rank-4 is given: there are ranks 0 to 3"},
    {"cp -r rank-0/step-0 rank-2/step-4", 1, "case-1/rank-2/step-4 is given"},
    {"cp rank-1/step-1/lse.npy rank-1/step-1/o.npy", 1, "rank 1, step 1: o.npy: o has shape"},
    {"rm rank-1/step-3/*; echo fused >rank-1/step-3/refused.txt", 2,
     "the results agree, but 1 of 16 steps are left out: rank 1, step 3: fused"},
    {"echo fused >rank-1/step-3/refused.txt", 1, "rank 1, step 3: refused.txt lies beside"},
    {"echo q >rank-2/step-1/changed.txt", 1, "rank 2, step 1: inputs were changed in place: q"},
    {"rm rank-1/*.npy; echo no >rank-1/refused.txt", 1, "rank 1, results: refused.txt leaves out"},
    {"cp rank-1/step-0/lse.npy rank-1/step-2", 1, "rank 1, step 2: lse["},
    {"cp rank-1/step-0/lse.npy rank-1/step-1", 1,
     "looks like: fits a merge by the LSE of the wrong block: that of the first one is kept"},
    {"for t in dk dv; do mv rank-0/$t.npy $t.npy; for r in 0 1 2; do mv rank-$((r + 1))/$t.npy "
     "rank-$r; done; mv $t.npy rank-3; done",
     1, "looks like: fits gradients not brought home"}};

TEST(damaged_files_are_no_pass)
{
    run_engine("ring:ranks=4", "ring:ranks=4", "h2q24d8:none:f32:normal:s1:pass=bwd");
    for (size_t n = 0; n < sizeof damages / sizeof *damages; n++) {
        ck_assert_int_eq(fixture_shell("cd '%s' && rm -rf bad && cp -r out bad && cd bad/case-1 && "
                                       "%s",
                                       scratch_path(""), damages[n].edit),
                         0);
        scratch_expect(damages[n].status, damages[n].says, "check --results '%s' --vectors '%s'",
                       scratch_path("bad"), scratch_path("cases"));
    }
}

/* An all-to-all brings heads or tokens to the wrong rank, or in the wrong order. */
static const struct {
    const char *edit, *says;
} moves[] = {{"mv rank-0/step-0 away; mv rank-1/step-0 rank-0; mv rank-2/step-0 rank-1; mv away "
              "rank-2/step-0",
              "looks like: fits heads rotated: those that belong 1 rank further on"},
             {"/usr/bin/python3 -c \"import glob, numpy as n; [n.save(f, n.roll(n.load(f), -4, "
              "axis=2)) for f "
              "in glob.glob('rank-*/step-0/*')]\"",
              "looks like: fits tokens rotated: those of rank 1 come first"}};

TEST(moved_inputs_are_named)
{
    run_engine("ulysses:ranks=3", "ulysses:ranks=3", "h6q12d8:none:f32:normal:s1");
    for (size_t n = 0; n < COUNT(moves) && fixture_python("numpy"); n++) {
        ck_assert_int_eq(fixture_shell("cd '%s' && rm -rf bad && cp -r out bad && cd bad/case-1 && "
                                       "%s",
                                       scratch_path(""), moves[n].edit),
                         0);
        scratch_expect(1, moves[n].says, "check --results '%s' --vectors '%s'", scratch_path("bad"),
                       scratch_path("cases"));
    }
}

TEST(schemes_whose_steps_are_not_known)
{
    static const struct scratch_row row[] = {
        {"vectors $folder/d --scheme allgather:ranks=2", 2,
         "the steps of ring and ulysses are known"},
        {"vectors $folder/d --scheme dense", 2, "the steps of ring and ulysses are known"},
        {"vectors $folder/d --scheme ring:sizes=pad", 2,
         "sizes=uneven and sizes=strict would work"},
        {"vectors $folder/d --scheme ring-textbook --case 'q10d8:none:f32:normal:s1'", 2,
         "of the last: ring-textbook:ranks=4 needs ranks that divide"},
        {"vectors $folder/d --scheme ulysses-textbook --case 'h4g2q8d8:none:f32:normal:s1'", 2,
         "ulysses-textbook lacks what this case needs; ulysses would work"},
        {"vectors $folder/d --scheme ring --case 'q8d8:none:f64:normal:s1'", 2, "no case"}};
    scratch_rows(row, COUNT(row));
}

/* ---- a ring elsewhere ------------------------------------------------------------------------ */

/* docs/examples/numpy_ring.py with an edit by sed, and where it shows first. */
static const struct {
    const char *edit, *cases, *where, *likely;
} rings[] = {
    {"", "zigzag", "1 pass", ""},
    {"", "subsets", "1 pass", ""},
    {"s/sent\\[-1:\\] + sent\\[:-1\\]/sent[1:] + sent[:1]/", "zigzag",
     "rank 0, step 1: ", "a hop in the wrong direction"},
    {"s/kv = home$/kv = yield home/", "striped", "rank 0, step 0: ", "a hop off by one"},
    {"s/^        .kv, dk, dv = yield.*/        mine = dk, dv\\n&\\n        dk, dv = mine if step "
     "== "
     "ranks - 1 else (dk, dv)/",
     "zigzag", "rank 0, results: dk", "gradients not brought home"},
    {"s/o, lse = merge(.*/&; lse = part[1]/", "striped", "rank 0, step 1: lse",
     "a merge by the LSE of the wrong block"},
    {"s/, i, j), lse)$/, i, j), attend(scores(case, q, wide(k), i, j), wide(v))[1])/", "contiguous",
     "rank 1, step 0: dk", "the LSE of the wrong block"},
    {"s/^    s = case/    i, j = np.arange(len(i)), np.arange(len(j))\\n&/", "contiguous",
     "rank 0, step 1: ", "a mask not offset by the places of the shards"},
    {"s/(a \\* o + b \\* part)/(b * o + a * part)/", "contiguous", "rank 0, step 0: o",
     "a merge that weighs the first part by 0: the two LSE are swapped"},
    {"s/return (a \\* o + b \\* part)/a, b = (b, a) if step else (a, b)\\n    &/; s/def merge(o, "
     "lse/def merge(step, o, lse/; s/= merge(o, /= merge(step, o, /",
     "zigzag", "rank 0, step 1: o", "a merge that weighs what is there by the LSE of the part"},
    {"s/, m + np.log(l)/, (m + np.log(l)) * 1.4426950408889634/", "striped", "rank 0, step 0: lse",
     "LSE in base 2"},
    {"s/a, b = weights(lse, m), weights(part_lse, m)/a, b = np.exp2(lse - m), np.exp2(part_lse - "
     "m)/",
     "zigzag", "rank 0, step 1: o", "parts and their LSE merged by 2^difference"},
    {"s/m + np.log(a + b)$/np.where(np.isinf(lse), part_lse, lse + part_lse)/", "contiguous",
     "rank 0, step 1: lse", "a merge whose LSE is the sum of two"},
    {"s/m + np.log(a + b)$/part_lse/", "contiguous", "rank 0, step 1: lse",
     "that of the last one alone is kept"},
    {"s/^        ds = case/        delta = (p * (t[\"do\"] @ wide(v).swapaxes(-1, "
     "-2))).sum(-1, keepdims=True)\\n&/",
     "contiguous", "rank 1, step 0: dk", "delta of each block alone: the sum of P dP"},
    {"s/k, v, j = kv$/k, v, j = home[0], kv[1], kv[2]/", "striped", "rank 0, step 1: o", "stale K"},
    {"s/k, v, j = kv$/k, v, j = kv[0], home[1], kv[2]/", "zigzag", "rank 0, step 1: o", "stale V"},
    {"s/^        part = attend/        k = k if step < 3 else k + np.nan\\n&/; s/s = "
     "np.where((dist/s = np.where(np.isnan(s), -np.inf, s)\\n        &/",
     "contiguous", "rank 3, step 3: o", "a last step that is not computed"},
    {"s/x += each.*/x += each[:, 1::2]/", "striped", "rank 0, step 0: dk",
     "not summed: those of its last head"},
    {"s/s = case\\[.scale.\\] \\*/s = case[\"scale\"] ** 2 */", "contiguous", "rank 0, step 0: o",
     "scale squared"},
    {"s/ds.swapaxes(-1, -2) @/case[\"scale\"] * &/", "zigzag", "rank 0, step 0: dk",
     "dK with the scale twice"},
    {"s/dq = dq + ds/dq = ds/", "striped", "rank 0, results: dq", "dQ overwritten at every step"},
    {"s/np.repeat(x, group, axis=1)/np.tile(x, (1, group, 1, 1))/", "contiguous",
     "rank 0, step 0: o", "heads mapped h mod G"},
    {"s/np.repeat(x, group, axis=1)/np.roll(&, -group, axis=1)/", "zigzag", "rank 0, step 0: o",
     "kv heads rotated: that of the next group"},
    {"s/return (a .* \\(np.where.*\\), m/return o - b \\/ \\1 * (o - part), m/", "infinite",
     "rank 0, step ", "a merge o - w (o - o_n), which is NaN where V is infinite"}};

/* One start of Python runs them all. */
TEST(rings_in_numpy)
{
    static const char causal[] = "h4g2q32d8:causal(br):f32:normal:s1:pass=bwd";
    static const char *const vectors[][3] = {
        {"contiguous", "contiguous", causal},
        {"zigzag", "zigzag", causal},
        {"striped", "striped", causal},
        {"infinite", "contiguous", "h4g2q32d8:none:f32:normal:s1:special=v-inf"},
        {"subsets", "contiguous", "h2g1q18k21d32:causal(br):f32:subsets:s1:pass=bwd"}};
    if (!fixture_python("numpy"))
        return;
    for (int n = 0; n < COUNT(vectors); n++)
        scratch_expect(0, "1 cases", "vectors '%s' --scheme ring:ranks=4,order=%s --case '%s'",
                       scratch_path(vectors[n][0]), vectors[n][1], vectors[n][2]);
    for (int n = 0; n < COUNT(rings); n++)
        scratch_shell(0, "",
                      "sed '%s' docs/examples/numpy_ring.py >'%s/ring%d.py'; "
                      "echo 'import attnlab, ring%d; attnlab.batch(\"%s\", \"out%d\", "
                      "ring%d.ring)' >>'%s'",
                      rings[n].edit, scratch_path(""), n, n, rings[n].cases, n, n,
                      scratch_path("all.py"));
    scratch_shell(0, "", "cd '%s' && /usr/bin/python3 all.py", scratch_path(""));
    for (int n = 0; n < COUNT(rings); n++) {
        scratch_expect(strcmp(rings[n].edit, "") != 0, rings[n].where,
                       "check --results '%s%d' --vectors '%s'", scratch_path("out"), n,
                       scratch_path(rings[n].cases));
        scratch_has(rings[n].likely);
    }
}

/* Between processes; five starts of PyTorch take many seconds. */
TEST_EACH(a_ring_in_torch, getenv("ATTN_FULL") != NULL)
{
    if (!fixture_python("torch"))
        return;
    scratch_expect(0, "1 cases",
                   "vectors '%s' --scheme ring:ranks=4,order=zigzag --case "
                   "'b2h4g2q63d16v8:causal(br):f32:normal:s1:pass=bwd'",
                   scratch_path("cases"));
    scratch_shell(0, "", "/usr/bin/python3 docs/examples/torch_ring.py '%s' '%s'",
                  scratch_path("cases"), scratch_path("out"));
    scratch_expect(_i, "1 pass", "check --results '%s' --vectors '%s'", scratch_path("out"),
                   scratch_path("cases"));
}
