/* Storages of masks in a study (study.h): played on its tapes. */
#include "experiments/cli/cli.h"
#include "experiments/rim/storage/storage.h"
#include "experiments/rim/studies/study.h"

/* The texts are the study's own: what is wrong with one is a fault of the program. */
static void open_text(struct attn_stored_text *x, const char *mask,
                      const struct attn_mask_shape *shape)
{
    struct attn_error err = {ATTN_OK, ""};
    if (attn_stored_text_open(mask, shape, x, &err) != ATTN_OK)
        attn_cli_need(NULL);
}

int64_t attn_study_store(struct attn_tape *tape, const char *storage, const char *mask,
                         const struct attn_mask_shape *shape)
{
    struct attn_stored_text x;
    open_text(&x, mask, shape);
    attn_storage_find(storage)->make(tape, &x.stored);
    attn_stored_text_close(&x);
    return x.stored.pattern.nnz;
}

void attn_study_store_both(struct attn_study_run *run, struct attn_pair *pair, const char *name,
                           const char *storage, const char *mask,
                           const struct attn_mask_shape *shape)
{
    const struct attn_storage *made = attn_storage_find(storage);
    struct attn_stored_text x;
    open_text(&x, mask, shape);
    attn_pair_open(pair, &run->owner);
    made->make(&pair->real, &x.stored);
    made->make(&pair->counted, &x.stored);
    attn_study_same(name, pair);
    if (!pair->real.is_cut)
        attn_study_quantity(run, "pairs of which it says otherwise than the mask", ATTN_DERIVED, 0,
                            (double)attn_storage_wrong(made, &pair->real, &x.stored), "pairs", 0);
    attn_stored_text_close(&x);
}
