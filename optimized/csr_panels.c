/* Dense runs of a sparse pattern: which panels of queries are better off in tiles.
 *
 * The row kernel's time goes with the stored pairs.  The tile kernel's goes with the queries of the
 * panel times the keys that any of them sees, at a third to a quarter of the price, and with the
 * runs of consecutive keys, each of which has to be found and cut into tiles.  Tiles win when
 *
 *      TILE * queries * keys seen  +  RUN * runs   <=   PAIR * pairs
 *
 * Counting keys and runs takes time in proportion to the runs, not to the pairs, and stops at the
 * first query that decides it. */
#include <omp.h>
#include <string.h>

#include "optimized/csr_plan.h"

/* The costs, in units of 1.4 ns where they were measured (d = 64, random and causal patterns forced
 * either way): without runs to speak of, tiles win from a density of 1/3 on. */
enum { TILE = 1, RUN = 14, PAIR = 3 };

/* Where the run of consecutive keys that starts at key[e] ends. */
static int64_t run_end(const int32_t *key, int64_t e, int64_t n)
{
    int64_t step = 1, lo = e; /* key[lo] is in the run */
    while (lo + step < n && key[lo + step] - key[lo] == step) {
        lo += step;
        step *= 2;
    }
    for (; step > 0; step /= 2)
        if (lo + step < n && key[lo + step] - key[lo] == step)
            lo += step;
    return lo + 1;
}

/* Runs of consecutive keys among n: fast where they are short, and at once where there is one. */
static int64_t count_runs(const int32_t *key, int64_t n)
{
    int32_t runs = 1;
    if (n == 0 || key[n - 1] - key[0] == n - 1)
        return n > 0;
    for (int64_t e = 1; e < n; e++)
        runs += key[e] - key[e - 1] != 1;
    return runs;
}

/* Short runs decide by themselves, with as many keys as the longest row has. */
static int runs_decide(const struct attn_csr *csr, int64_t r0, int64_t r1, int64_t queries)
{
    int64_t pairs = csr->row_start[r1] - csr->row_start[r0], runs = 0, most = 0;
    for (int64_t r = r0; r < r1; r++) {
        int64_t n = csr->row_start[r + 1] - csr->row_start[r];
        most = n > most ? n : most;
    }
    for (int64_t r = r0; r < r1; r++) {
        int64_t at = csr->row_start[r];
        runs += count_runs(csr->column + at, csr->row_start[r + 1] - at);
        if (TILE * most * queries + RUN * runs > PAIR * pairs)
            return 1;
    }
    return 0;
}

/* Set bits [lo,hi); returns how many were not set. */
static int64_t set_bits(uint64_t *word, int64_t lo, int64_t hi)
{
    int64_t fresh = 0;
    while (lo < hi) {
        int64_t end = (lo / 64 + 1) * 64 < hi ? (lo / 64 + 1) * 64 : hi, n = end - lo;
        uint64_t bits = (n == 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1) << lo % 64;
        fresh += __builtin_popcountll(bits & ~word[lo / 64]);
        word[lo / 64] |= bits;
        lo = end;
    }
    return fresh;
}

/* Rows [r0,r1) of the CSR; lanes: of a vector of queries. */
static int is_dense(const struct attn_csr *csr, int64_t r0, int64_t r1, int64_t lanes,
                    uint64_t *seen)
{
    int64_t pairs = csr->row_start[r1] - csr->row_start[r0], first = INT64_MAX, last = -1, keys = 0,
            runs = 0;
    int64_t queries = (r1 - r0 + lanes - 1) / lanes * lanes;
    for (int64_t r = r0; r < r1; r++)
        if (csr->row_start[r + 1] > csr->row_start[r]) {
            int64_t from = csr->column[csr->row_start[r]],
                    to = csr->column[csr->row_start[r + 1] - 1];
            first = from < first ? from : first;
            last = to > last ? to : last;
        }
    if (last < 0 || runs_decide(csr, r0, r1, queries))
        return 0;
    first -= first % 64;
    for (int64_t w = 0; w <= (last - first) / 64; w++)
        seen[w] = 0;
    for (int64_t r = r0; r < r1; r++) {
        const int32_t *key = csr->column + csr->row_start[r];
        int64_t n = csr->row_start[r + 1] - csr->row_start[r];
        for (int64_t e = 0, end; e < n; e = end, runs++) {
            end = run_end(key, e, n);
            keys += set_bits(seen, key[e] - first, key[e] - first + end - e);
        }
        if (TILE * keys * queries + RUN * runs > PAIR * pairs)
            return 0;
    }
    return 1;
}

int64_t attn_csr_panels_of(const struct attn_problem *p, const struct attn_csr_plan *plan)
{
    return (p->n_query + plan->kernels->panel - 1) / plan->kernels->panel;
}

void attn_csr_panels_find(const struct attn_csr *csr, const struct attn_csr_plan *plan,
                          int64_t n_key, uint64_t *seen, uint8_t *dense)
{
    int64_t panel = plan->kernels->panel, panels = (csr->n_query + panel - 1) / panel;
    int64_t words = (n_key + 63) / 64;
#pragma omp parallel for num_threads(plan->threads) schedule(dynamic, 16) if (plan->threads > 1)
    for (int64_t n = 0; n < csr->patterns * panels; n++) {
        int64_t row = n / panels * csr->n_query, i = n % panels * panel;
        int64_t end = i + panel < csr->n_query ? i + panel : csr->n_query;
        dense[n] = (uint8_t)is_dense(csr, row + i, row + end, plan->kernels->lanes,
                                     seen + omp_get_thread_num() * words);
    }
}

/* ---- a pattern as runs --------------------------------------------------------------------- */

/* A caller asks for the runs of a row in order: the search goes on where the last one ended. */
static int next_run(const void *arg, int64_t b, int64_t h, int64_t i, struct attn_run *run)
{
    const struct attn_csr_runs *x = arg;
    const int32_t *key;
    int32_t *at = &x->at[i - x->i0];
    int64_t n = attn_csr_row(x->csr, b, h, i, &key), from = run->hi, e = *at, step = 1;
    if (e > 0 && key[e - 1] >= from)
        e = 0;
    while (e + step <= n && key[e + step - 1] < from) { /* e: all before it are below `from` */
        e += step;
        step *= 2;
    }
    for (; step > 0; step /= 2)
        if (e + step <= n && key[e + step - 1] < from)
            e += step;
    *at = (int32_t)e;
    if (e == n)
        return 0;
    int64_t end = run_end(key, e, n);
    *run = (struct attn_run){key[e], key[e] + end - e};
    *at = (int32_t)end;
    return 1;
}

struct attn_runs attn_csr_runs_start(struct attn_csr_runs *x, const struct attn_csr *csr,
                                     int64_t i0, int64_t i1)
{
    x->csr = csr;
    x->i0 = i0;
    x->at = x->behind;
    memset(x->behind, 0, (size_t)(i1 - i0) * sizeof *x->behind);
    return (struct attn_runs){.next = next_run, .arg = x};
}
