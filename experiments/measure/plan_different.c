/* Points of a plan that are there twice, found by sorting: a plan may have thousands. */
#include <stdlib.h>
#include <string.h>

#include "experiments/measure/plan.h"

static int by_words(const void *a, const void *b)
{
    const struct attn_plan_point *const *x = a, *const *y = b;
    int order = strcmp((*x)->text, (*y)->text);
    return order != 0 ? order : strcmp((*x)->spec_text, (*y)->spec_text);
}

enum attn_status attn_plan_check_different(const struct attn_plan *plan, int64_t first,
                                           struct attn_error *err)
{
    size_t n = (size_t)(plan->n - first);
    enum attn_status status = ATTN_OK;
    const struct attn_plan_point **sorted = calloc(n + 1, sizeof *sorted);
    if (sorted == NULL)
        return attn_fail(err, ATTN_ENOMEM, "no memory for %zu points", n);
    for (size_t i = 0; i < n; i++)
        sorted[i] = &plan->point[(size_t)first + i];
    qsort(sorted, n, sizeof *sorted, by_words);
    for (size_t i = 1; i < n && status == ATTN_OK; i++)
        if (by_words(&sorted[i - 1], &sorted[i]) == 0)
            status = attn_fail(err, ATTN_EINVAL, "%s %s is there twice", sorted[i]->spec_text,
                               sorted[i]->text);
    free(sorted);
    return status;
}
