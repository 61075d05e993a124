/* Dense runs of a sparse pattern: which panels of queries are better off in tiles.
 *
 * The tile kernel does all pairs of a panel and the keys that any of its queries sees; the row
 * kernel does the stored pairs only, at a quarter to a third of the tile kernel's rate.  So tiles
 * win when
 *
 *      stored pairs  >=  DENSE * queries * (keys that any query of the panel sees)
 *
 * Counting the keys takes time in proportion to the runs of the pattern, not to its pairs, and
 * stops at the first query that decides it. */
#include <omp.h>

#include "optimized/csr_plan.h"

/* DENSE = 3 / 10: measured, docs/kernel.md. */
enum { DENSE_PER = 10, DENSE = 3 };

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
    int64_t pairs = csr->row_start[r1] - csr->row_start[r0], first = INT64_MAX, last = -1, keys = 0;
    int64_t queries = (r1 - r0 + lanes - 1) / lanes * lanes;
    for (int64_t r = r0; r < r1; r++)
        if (csr->row_start[r + 1] > csr->row_start[r]) {
            int64_t from = csr->column[csr->row_start[r]],
                    to = csr->column[csr->row_start[r + 1] - 1];
            first = from < first ? from : first;
            last = to > last ? to : last;
        }
    if (last < 0)
        return 0;
    first -= first % 64;
    for (int64_t w = 0; w <= (last - first) / 64; w++)
        seen[w] = 0;
    for (int64_t r = r0; r < r1; r++) {
        const int32_t *key = csr->column + csr->row_start[r];
        int64_t n = csr->row_start[r + 1] - csr->row_start[r];
        for (int64_t e = 0, end; e < n; e = end) {
            end = run_end(key, e, n);
            keys += set_bits(seen, key[e] - first, key[e] - first + end - e);
        }
        if (keys * queries * DENSE > pairs * DENSE_PER)
            return 0;
    }
    return 1;
}

int64_t csr_panels_of(const struct attn_problem *p, const struct csr_plan *plan)
{
    return (p->n_query + plan->kernels->panel - 1) / plan->kernels->panel;
}

void csr_panels_find(const struct attn_csr *csr, const struct csr_plan *plan, int64_t n_key,
                     uint64_t *seen, uint8_t *dense)
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

static int next_run(const void *arg, int64_t b, int64_t h, int64_t i, int64_t from, int64_t *lo,
                    int64_t *hi)
{
    const int32_t *key;
    int64_t n = attn_csr_row(arg, b, h, i, &key), e = 0, end = n;
    while (e < end) { /* the first key that is not below `from` */
        int64_t mid = (e + end) / 2;
        if (key[mid] < from)
            e = mid + 1;
        else
            end = mid;
    }
    if (e == n)
        return 0;
    *lo = key[e];
    *hi = *lo + run_end(key, e, n) - e;
    return 1;
}

struct attn_runs csr_runs_of(const struct attn_csr *csr)
{
    return (struct attn_runs){next_run, csr};
}
