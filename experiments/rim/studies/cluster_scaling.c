/* The gain of more and more GPUs for one long sequence, by the model of `attnlab cluster` with the
 * numbers of experiments/rim/cluster/h200.cluster.  It was not measured, so most of it is
 * inferred. */
#include <math.h>

#include "experiments/rim/cluster/cluster.h"
#include "experiments/rim/studies/study.h"
#include "experiments/rim/studies/table_file.h"
#include "ref/mask/mask.h"

ATTN_STUDY_DATA(h200, "cluster/h200.cluster")

/* Of more than MOST_LONG ranks the longest sequence has no price in 64 bits. */
enum { HEADS = 64, KV_HEADS = 8, MOST = 1024, MOST_LONG = 64 };

static const struct scheme {
    const char *name, *spec;
} schemes[] = {{"ring", "ring:local=tiled-textbook"},
               {"zigzag ring", "ring:order=zigzag,local=tiled-textbook"},
               {"ulysses", "ulysses:local=tiled-textbook"},
               {"usp of 8", "usp:heads=8,order=zigzag,local=tiled-textbook"}};

/* Efficiency, and the longest sequence, of one number of ranks. */
struct projection {
    double efficiency, longest;
};

static struct projection project(struct attn_study_run *run, const struct scheme *scheme,
                                 const struct attn_cluster *cluster, int64_t ranks)
{
    const struct attn_case c = {.batch = 1,
                                .heads = HEADS,
                                .kv_heads = KV_HEADS,
                                .n_query = 1 << 20,
                                .n_key = 1 << 20,
                                .d_key = 128,
                                .d_value = 128,
                                .mask = "causal(br)",
                                .scale = (double)NAN,
                                .dtype = ATTN_BF16};
    const struct attn_memory memory = {.bytes = cluster->memory, .is_device = 1};
    const struct attn_stack none = {0};
    struct attn_spec spec;
    struct attn_problem p;
    struct attn_mask *mask = NULL;
    struct attn_replay x = {.seconds = 1};
    int64_t longest = 0;
    double bytes[2];
    enum attn_status status = attn_spec_parse(scheme->spec, &spec, &run->bad);
    if (status == ATTN_OK)
        status = attn_cluster_set_ranks(&spec, ranks, &run->bad);
    if (status == ATTN_OK)
        status = attn_case_open(&c, NULL, &p, &mask, &run->bad);
    if (status == ATTN_OK)
        status = attn_cluster_replay(&spec, &p, ATTN_NEED_FORWARD, cluster, &x, &run->bad);
    if (status == ATTN_OK && ranks <= MOST_LONG)
        (void)attn_need_longest(
            &(const struct attn_price_asked){&spec, &none, &c, ATTN_NEED_FORWARD, &memory}, 1,
            HUGE_VAL, &longest, bytes, &run->bad);
    attn_mask_free(mask);
    return (struct projection){x.ideal / x.seconds, (double)longest};
}

static void put(struct attn_study_run *run, const char *panel, const struct scheme *scheme,
                int64_t ranks, double got, const char *unit)
{
    run->panel = panel;
    attn_study_place(run, scheme->name, (double)ranks);
    attn_study_quantity(
        run, attn_study_text(run, "%s on %lld: %s", scheme->name, (long long)ranks, panel),
        ATTN_INFERRED, got, got, unit, 0);
}

void attn_study_run_cluster_scaling(struct attn_study_run *run)
{
    static struct attn_cluster_file file;
    struct projection of_8[4] = {{0, 0}};
    if (attn_cluster_parse("h200.cluster", attn_study_data_h200, &file, &run->bad) != ATTN_OK)
        return;
    for (int64_t ranks = 8; ranks <= MOST && run->bad.status == ATTN_OK; ranks *= 2)
        for (int s = 0; s < 4; s++) {
            struct projection x = project(run, &schemes[s], &file.cluster, ranks);
            put(run, "efficiency", &schemes[s], ranks, x.efficiency, "");
            if (ranks <= MOST_LONG)
                put(run, "longest_L", &schemes[s], ranks, x.longest, "tokens");
            if (ranks == 8)
                of_8[s] = x;
        }
    attn_study_say(run, "By arithmetic alone, inside one machine, where links hide:");
    /* 7 blocks that show all pairs and one that shows half of them, where 4 would be fair */
    attn_study_quantity(run, "a contiguous ring on 8 by hand", ATTN_DERIVED,
                        4 / (7 + 0.5 / file.cluster.masked), of_8[0].efficiency, "", 0.01);
    attn_study_quantity(run, "a zigzag ring on 8 is faster by", ATTN_DERIVED, 7.5 / 4,
                        of_8[1].efficiency / of_8[0].efficiency, "times", 0.02);
}
