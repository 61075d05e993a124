/* attnlab cluster: how long ranks would take, by a model of a cluster. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cli.h"
#include "experiments/measure/plan.h"
#include "experiments/rim/cluster/cluster.h"
#include "experiments/rim/cluster/measured.h"

struct request {
    struct attn_plan_shapes shapes;
    struct attn_plan cases;
    const char *counts, *params;
    int pass, json; /* pass: enum attn_need_pass */
};
#define MEMBER(member) offsetof(struct request, member)

static const struct attn_flag_use flags[] = {
    ATTN_PLAN_SHAPE_FLAGS(MEMBER(shapes)),    ATTN_TAKES(PASS, MEMBER(pass), "fwd"),
    ATTN_TAKES(RANKS, MEMBER(counts)),        ATTN_TAKES(PARAMS, MEMBER(params)),
    ATTN_TAKES(FORMAT, MEMBER(json), "text"), {.flag = ATTN_FLAG_END}};

static int cluster(void *values, int n, char **operand);

const struct attn_cli_command attn_cmd_cluster = {
    .name = "cluster",
    .summary = "how long ranks take on a cluster, by a model",
    .usage = "cluster FILE SPEC... --length L,... [--ranks FIRST:LAST:xTIMES] [flags]\n"
             "cluster here SPEC... --length L,... [flags]",
    .about =
        "Replays the schedule of every rank with the numbers of FILE: time, efficiency, what\n"
        "limits it, and the longest sequence (docs/parallel.md).  `here`, under mpirun with\n"
        "attnlab-mpi, measures the links of this machine, and the messages of each call without\n"
        "its arithmetic, beside the model.",
    .flags = flags,
    .more = "  attnlab cluster experiments/rim/cluster/h200.cluster ring \\\n"
            "      --length 1Mi --heads 16 --dim 128 --dtype bf16 --ranks 8:4096:x2\n"
            "  mpirun -n 4 attnlab-mpi cluster here ring:ranks=4 --length 16Ki",
    .exits = "0 good; 2 usage, a bad file, or a SPEC that refuses: the others are priced.",
    .operands_least = 2,
    .operands_most = -1,
    .computes = 1,
    .size = sizeof(struct request),
    .run = cluster};

/* Where ranks are: in a file, or here. */
struct place {
    int is_here;
    struct attn_cluster_file file;
    struct attn_cluster here;
    struct attn_cluster_counts ranks;
    struct attn_memory memory;
};

static void read_file(const struct request *q, const char *path, struct place *place)
{
    struct attn_error err;
    if (attn_cli_runner() != NULL)
        attn_cli_stop(
            ATTN_EINVAL, NULL,
            "ranks that are processes have cluster here; attnlab cluster FILE needs none");
    attn_cli_must(attn_cluster_read(path, &place->file, &err), &err);
    if (q->counts != NULL)
        attn_cli_must(attn_cluster_ranks(q->counts, &place->ranks, &err), &err);
    place->memory.bytes = place->file.cluster.memory;
    place->memory.is_device = 1;
}

/* Checks that each of the n specs can run with one process a rank, then measures their links. */
static void measure_here(const struct request *q, struct attn_spec *spec, int n,
                         struct place *place)
{
    const struct attn_runner *runner = attn_cli_runner();
    struct attn_error err;
    if (runner == NULL)
        attn_cli_stop(ATTN_ENOTSUP, NULL,
                      "`here` times messages of processes: mpirun -n 4 attnlab-mpi cluster here "
                      "ring:ranks=4 --length 16Ki would work (make mpi)");
    if (q->counts != NULL)
        attn_cli_stop(ATTN_EINVAL, NULL, "--ranks is of a FILE: here are the ranks of each SPEC");
    for (int s = 0; s < n; s++)
        attn_cli_must(
            attn_cli_run_by(attn_ranks(spec[s].impl, &spec[s].options), &spec[s].options, &err),
            &err);
    attn_cli_must(attn_measure_links(runner, &place->here, &err), &err);
    if (!q->json)
        attn_price_print_links(&place->here);
}

/* Prices every spec in every shape: in one pass, or forward, backward and both together.  Returns
 * the worst exit status. */
static int show(const struct request *q, const struct attn_spec *spec, int n,
                const struct place *place, json_t *all)
{
    static const struct attn_stack none = {0};
    const int last = q->pass, first = last == ATTN_NEED_BOTH ? ATTN_NEED_FORWARD : last;
    const int cases = (int)q->cases.n;
    int status = ATTN_EXIT_GOOD, worst = ATTN_EXIT_GOOD;
    for (int i = 0; i < n * cases; i++) {
        const struct attn_case *c = &q->cases.point[i % cases].c;
        for (int pass = first; pass <= last; pass++) {
            const struct attn_price_asked asked = {&spec[i / cases], &none, c,
                                                   (enum attn_need_pass)pass, &place->memory};
            if (pass == ATTN_NEED_BOTH && first != last && status != ATTN_EXIT_GOOD)
                continue; /* both together are refused where one pass is */
            status = place->is_here ? attn_price_measured(&asked, &place->here, all)
                                    : attn_price_cluster(&asked, &place->file, &place->ranks, all);
            worst = status > worst ? status : worst;
        }
    }
    return worst;
}

static int cluster(void *values, int n, char **operand)
{
    struct request *q = values;
    struct place place = {.is_here = strcmp(operand[0], "here") == 0, .memory = attn_memory_here()};
    struct attn_error err;
    struct attn_spec *spec = attn_cli_need(calloc((size_t)n, sizeof *spec));
    if (!attn_plan_has_key(&q->shapes.keys, "length"))
        attn_cli_stop(ATTN_EINVAL, NULL, "--length is needed");
    attn_cli_must(attn_plan_of_shapes(&q->shapes.keys, &q->cases, &err), &err);
    for (int s = 1; s < n; s++)
        attn_cli_must(attn_spec_parse_priced(operand[s], &spec[s - 1], &err), &err);
    if (q->params != NULL)
        attn_cli_must(attn_params_parse(q->params, &place.memory, &err), &err);
    if (place.is_here)
        measure_here(q, spec, n - 1, &place);
    else
        read_file(q, operand[0], &place);
    json_t *all = q->json ? json_array() : NULL;
    int worst = show(q, spec, n - 1, &place, all);
    attn_price_print_json(all);
    attn_plan_free(&q->cases);
    free(spec);
    return worst;
}
