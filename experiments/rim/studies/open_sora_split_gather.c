/* The bytes that Open-Sora's blocks send under sequence parallelism, DSP's against them, and the
 * factors at the boundary.
 *
 * Source: hpcaitech/Open-Sora v1.0 to v1.2 (stdit.py, stdit3.py, communications.py); Zhao et al.
 * 2024 (DSP, arXiv 2403.10266) and the page on DSP of VideoSys. */
#include <math.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/rim/layer/schemes/layer_scheme.h"
#include "experiments/rim/studies/study.h"
#include "ref/mask/mask.h"
#include "tests/harness/base/process.h"
#include "tests/harness/inputs/case.h"

/* STDiT-XL/2 for 16 frames of 256 x 256: 256 places, 16 heads of 72. */
enum { FRAMES = 16, SIDE = 16, LENGTH = FRAMES * SIDE * SIDE, HEADS = 16, DIM = 72, RANKS = 4 };
static const char SPATIAL[] = "spatial(16,16,16)", TEMPORAL[] = "temporal(16,16,16)";

/* Numbers that rank 0 sends in a forward pass of one attention layer; NaN where it is refused. */
static double numbers_sent(const char *scheme, int ranks, const char *mask_text)
{
    struct attn_case c = {.batch = 1,
                          .heads = HEADS,
                          .kv_heads = HEADS,
                          .n_query = LENGTH,
                          .n_key = LENGTH,
                          .d_key = DIM,
                          .d_value = DIM,
                          .scale = (double)NAN};
    struct attn_problem p;
    struct attn_error err = {ATTN_OK, ""};
    struct attn_layer_spec spec;
    struct attn_mask *mask = NULL;
    struct attn_cost cost = {0};
    char text[96];
    const char *options = strchr(scheme, ':');
    int name = options != NULL ? (int)(options - scheme) : (int)strlen(scheme);
    snprintf(text, sizeof text, "%.*s:ranks=%d%s%s", name, scheme, ranks,
             options != NULL ? "," : "", options != NULL ? options + 1 : "");
    attn_case_set_mask(&c, mask_text);
    if (attn_layer_spec_parse(text, &spec, &err) != ATTN_OK ||
        attn_case_open(&c, NULL, &p, &mask, &err) != ATTN_OK)
        return (double)NAN;
    const struct attn_layer layer = {.batch = 1,
                                     .length = LENGTH,
                                     .hidden = HEADS * DIM,
                                     .heads = HEADS,
                                     .kv_heads = HEADS,
                                     .d_key = DIM,
                                     .d_value = DIM,
                                     .scale = 1 / sqrt(DIM),
                                     .dtype = ATTN_F64,
                                     .mask = mask};
    enum attn_status status = attn_layer_ranks_cost(&spec, &layer, ATTN_FORWARD, 0, &cost, &err);
    attn_mask_free(mask);
    return status == ATTN_OK ? (double)cost.bytes_sent / 8 : (double)NAN;
}

/* B L C (R-1)/R^2: what a rank sends when one tensor of x's size is exchanged. */
static double unit_of(int ranks)
{
    return (double)LENGTH * HEADS * DIM * (ranks - 1) / (ranks * ranks);
}

static double units(const char *scheme, const char *mask)
{
    return numbers_sent(scheme, RANKS, mask) / unit_of(RANKS);
}

/* Without the cross-attention: a spatial and a temporal layer, in 16 bits as Open-Sora trains. */
static void volumes_of_ranks(struct attn_study_run *run)
{
    static const struct {
        const char *curve, *scheme;
        double units;
    } of[] = {{"v1.0, Ulysses: 8 units", "video:home=frames,exchange=always", 8},
              {"v1.2: 4 units", "video", 4},
              {"DSP: 2 units", "dsp", 2}};
    for (size_t s = 0; s < sizeof of / sizeof *of; s++)
        for (int ranks = 2; ranks <= 16; ranks *= 2) {
            double got = numbers_sent(of[s].scheme, ranks, SPATIAL) +
                         numbers_sent(of[s].scheme, ranks, TEMPORAL);
            double must = of[s].units * unit_of(ranks);
            attn_study_place(run, of[s].curve, ranks);
            attn_study_quantity(
                run,
                attn_study_text(run, "%s: both layers, %d ranks, 16 bits", of[s].scheme, ranks),
                ATTN_DERIVED, 2 * must, 2 * got, "B", 0.01 * 2 * must);
        }
}

static void volumes(struct attn_study_run *run)
{
    static const double LSE = 1.001 / DIM; /* ours sends LSE too, a number for each 72 of o */
    const char *v1_0 = "video:home=frames,exchange=always", *v1_2 = "video", *dsp = "dsp";
    /* q to its heads and o back; k and v of the text are cut, not sent */
    const struct attn_point point =
        attn_study_price(run, "ulysses:ranks=4,keys=whole", "h16q4096k120d72:none:f64:normal:s1");
    double text = (double)point.price.sent / 8 / unit_of(RANKS);
    attn_study_quantity(run, "v1.0, a block: spatial, temporal and cross-attention", ATTN_DERIVED,
                        10, units(v1_0, SPATIAL) + units(v1_0, TEMPORAL) + text, "units", 3 * LSE);
    attn_study_quantity(run, "v1.2, a spatial block: spatial and cross-attention", ATTN_DERIVED, 6,
                        units(v1_2, SPATIAL) + text, "units", 2 * LSE);
    attn_study_quantity(run, "v1.2, a temporal block: places are at home", ATTN_DERIVED, 0,
                        units(v1_2, TEMPORAL), "units", 0);
    attn_study_quantity(run, "Ulysses, a spatial and a temporal layer", ATTN_PUBLISHED, 8,
                        units("ulysses", SPATIAL) + units("ulysses", TEMPORAL), "units", 2 * LSE);
    attn_study_quantity(run, "DSP, both: x there and y back, once", ATTN_PUBLISHED, 2,
                        units(dsp, SPATIAL) + units(dsp, TEMPORAL), "units", 0);
}

/* Exit status of `attnlab layer SPEC ...`: 0 agrees with one process, 1 does not. */
static void layer(struct attn_study_run *run, const char *name, const char *spec,
                  const char *boundary, const char *mask, int want)
{
    const char *const args[] = {"layer",  spec, "--length", "64",   "--boundary", boundary,
                                "--mask", mask, "--format", "json", NULL};
    static char out[1 << 17];
    struct attn_process child = {.out = out, .capacity = sizeof out};
    if (run->leave_out >= 0)
        return;
    int failed = attn_process_attnlab(args, (double)INFINITY, &child) != 0;
    attn_study_quantity(run, name, ATTN_DERIVED, want, failed ? -1 : child.exit_status, "", 0);
}

void attn_study_run_open_sora_split_gather(struct attn_study_run *run)
{
    attn_study_say(run,
                   "A unit is B L C (R-1)/R^2 numbers: what a rank sends when one tensor of x's "
                   "size is exchanged.  16 frames of 16 x 16 places, 16 heads of 72, 4 ranks, "
                   "forward; LSE, which ours sends too, is 0.014 a layer.");
    volumes(run);
    volumes_of_ranks(run);
    attn_study_say(run, "DSP sends less because it exchanges x before q, k and v are made of it, "
                        "and because heads are not divided, it works on any number of ranks.");
    attn_study_say(run, "At the ends of the region every rank has all of x and y and computes the "
                        "same loss; gradients of weights are averaged.  So coming out a gradient "
                        "is multiplied by R, and going in divided by R.  Run here, forward and "
                        "backward, against one process (0 agrees, 1 does not):");
    layer(run, "with both factors", "ulysses:ranks=4", "scaled", "none", 0);
    layer(run, "without them", "ulysses:ranks=4", "unscaled", "none", 1);
    layer(run, "fastseq, with the reduce-scatter that the first code lacked", "fastseq:ranks=4",
          "none", "none", 0);
    layer(run, "dsp, spatial attention on 3 ranks", "dsp:ranks=3", "none", "spatial(4,4,4)", 0);
}
