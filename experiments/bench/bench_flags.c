#include "experiments/bench/bench_flags.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "experiments/cli.h"

const char attn_bench_help[] =
    "usage: attnlab bench SPEC... --case CASE [--case CASE...] [FLAGS]\n"
    "       attnlab bench SPEC... --length L[,L...] [--dim D[,D...]] [SHAPE FLAGS] [FLAGS]\n"
    "       attnlab bench --preset table|steps [--rows TEXT] [FLAGS]\n"
    "       attnlab bench --limits [FLAGS]\n"
    "\n"
    "How fast implementations are, as a fraction of P, the multiply-add peak of the instruction\n"
    "set in use, which is measured in the same process right before and after every sample.\n"
    "What has one case is timed in turn, round by round (docs/bench.md).  A SPEC may say its\n"
    "instruction set: tiled@avx2.\n"
    "\n"
    "  --threads N,...     threads (1)             --rounds N   clean samples of each (7)\n"
    "  --against SPEC      how many times as fast as this one, by pairs of rounds\n"
    "  --sample S          seconds that a sample lasts, or one call if that is longer (0.01)\n"
    "  --again S           so long a sample is tried again until it has a whole core (1)\n"
    "  --patience S        what is predicted to take longer for one call is left out (20)\n"
    "  --no-verify         do not compare the first result with the oracle\n"
    "  --rows TEXT         of a preset, only what has TEXT in the name of its row or block\n"
    "  --blas auto|none|FILE.so   whose sgemm is timed with --limits and --preset (auto)\n"
    "  --format text|json|line    line: one for each, with \"median X s\", for scripts\n"
    "  --out DIR           bench.json and the roofline figure, with --preset also table.md\n"
    "\n"
    "Shape flags, each a part of a case string (attnlab list cases): --heads H (1)\n"
    "--kv-heads G (H)  --keys N (L)  --batch B (1)  --mask MASK[;MASK...] (none)\n"
    "--dtype f64|f32|bf16|f16 (f32)  --pass fwd|bwd|both (fwd)\n"
    "\n"
    "Exit status: 0 done, 1 a result was wrong, 2 usage, 3 something could not be measured.\n";

/* ---- flags -------------------------------------------------------------------------------- */

static const struct option longs[] = {{"length", required_argument, NULL, 'l'},
                                      {"dim", required_argument, NULL, 'd'},
                                      {"heads", required_argument, NULL, 'H'},
                                      {"kv-heads", required_argument, NULL, 'G'},
                                      {"keys", required_argument, NULL, 'k'},
                                      {"batch", required_argument, NULL, 'b'},
                                      {"mask", required_argument, NULL, 'm'},
                                      {"dtype", required_argument, NULL, 't'},
                                      {"pass", required_argument, NULL, 'p'},
                                      {"case", required_argument, NULL, 'c'},
                                      {"threads", required_argument, NULL, 'T'},
                                      {"rounds", required_argument, NULL, 'r'},
                                      {"against", required_argument, NULL, 'a'},
                                      {"sample", required_argument, NULL, 's'},
                                      {"again", required_argument, NULL, 'y'},
                                      {"patience", required_argument, NULL, 'P'},
                                      {"no-verify", no_argument, NULL, 'n'},
                                      {"blas", required_argument, NULL, 'B'},
                                      {"format", required_argument, NULL, 'f'},
                                      {"out", required_argument, NULL, 'o'},
                                      {"preset", required_argument, NULL, 'e'},
                                      {"rows", required_argument, NULL, 'R'},
                                      {"limits", no_argument, NULL, 'L'},
                                      {"help", no_argument, NULL, 'h'},
                                      {0}};

static int one_of(const char *word, const char *words)
{
    size_t n = strlen(word);
    for (const char *at = words; *at != '\0'; at += strcspn(at, " "), at += *at == ' ')
        if (strcspn(at, " ") == n && strncmp(at, word, n) == 0)
            return 1;
    return 0;
}

static int read_threads(const char *text, struct attn_bench_flags *f)
{
    int64_t n;
    char copy[64], *rest = copy;
    if (snprintf(copy, sizeof copy, "%s", text) >= (int)sizeof copy)
        return 0;
    f->n_threads = 0;
    for (char *word; (word = strsep(&rest, ",")) != NULL;) {
        if (f->n_threads == ATTN_BENCH_COUNTS || !attn_cli_int(word, 1, ATTN_BENCH_THREADS, &n))
            return 0;
        f->thread[f->n_threads++] = (int)n;
    }
    return 1;
}

static const char **text_of(int o, struct attn_bench_flags *f)
{
    const struct {
        int flag;
        const char **text;
    } texts[] = {{'l', &f->lengths}, {'d', &f->dims},   {'H', &f->heads}, {'G', &f->kv_heads},
                 {'k', &f->keys},    {'b', &f->batch},  {'t', &f->dtype}, {'p', &f->pass},
                 {'a', &f->against}, {'f', &f->format}, {'o', &f->out},   {'B', &f->blas},
                 {'e', &f->preset},  {'m', &f->masks},  {'R', &f->rows}};
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++)
        if (texts[t].flag == o)
            return texts[t].text;
    return NULL;
}

/* 0: the value is no good. */
static int read_flag(int o, const char *value, struct attn_bench_flags *f)
{
    const char **text = text_of(o, f);
    if (text != NULL)
        *text = value;
    switch (o) {
    case 'c':
        return f->n_given < ATTN_BENCH_CASES && (f->given_case[f->n_given++] = value) != NULL;
    case 'T':
        return read_threads(value, f);
    case 'r':
        return attn_cli_int(value, 1, ATTN_BENCH_ROUNDS / 2, &f->rounds);
    case 'y':
        return attn_cli_double(value, &f->again_s) && f->again_s >= 0 && f->again_s <= 3600;
    case 's':
        return attn_cli_double(value, &f->sample_s) && f->sample_s >= 0 && f->sample_s <= 60;
    case 'P':
        return attn_cli_double(value, &f->patience_s) && f->patience_s > 0;
    case 'p':
        return one_of(value, "fwd bwd both");
    case 'f':
        return one_of(value, "text json line");
    case 'e':
        return one_of(value, "table steps");
    case 'L':
        return f->limits = 1;
    case 'n':
        return f->no_verify = 1;
    default:
        return 1;
    }
}

/* ---- cases -------------------------------------------------------------------------------- */

static int add_case(struct attn_bench_flags *f, const char *text)
{
    struct attn_case c;
    struct attn_error err = {ATTN_OK, ""};
    if (f->n_cases == ATTN_BENCH_CASES)
        return attn_cli_fail("bench", ATTN_EXIT_USAGE, "more than %d cases", ATTN_BENCH_CASES);
    if (attn_case_parse(text, &c, &err) != ATTN_OK)
        return attn_cli_fail("bench", ATTN_EXIT_USAGE, "%s", err.text);
    attn_case_print(&c, f->text[f->n_cases++]);
    return ATTN_EXIT_GOOD;
}

/* One of each: both passes, or the one that was asked for. */
static int add_shape(struct attn_bench_flags *f, const char *length, const char *dim,
                     const char *mask)
{
    int status = ATTN_EXIT_GOOD;
    char text[ATTN_CASE_TEXT], keys[40] = "", kv_heads[40] = "";
    if (f->keys != NULL)
        snprintf(keys, sizeof keys, "k%.30s", f->keys);
    if (f->kv_heads != NULL)
        snprintf(kv_heads, sizeof kv_heads, "g%.30s", f->kv_heads);
    for (int pass = 0; pass < 2 && status == ATTN_EXIT_GOOD; pass++) {
        if (strcmp(f->pass, "both") != 0 && strcmp(f->pass, pass == 0 ? "fwd" : "bwd") != 0)
            continue;
        snprintf(text, sizeof text, "b%.30sh%.30s%sq%.30s%sd%.30s:%s:%.30s:normal:s1%s", f->batch,
                 f->heads, kv_heads, length, keys, dim, mask, f->dtype,
                 pass == 0 ? "" : ":pass=bwd");
        status = add_case(f, text);
    }
    return status;
}

static int make_cases(struct attn_bench_flags *f)
{
    int status = ATTN_EXIT_GOOD;
    char copy[3][ATTN_CASE_MASK], *lengths = copy[0];
    for (int c = 0; c < f->n_given && status == ATTN_EXIT_GOOD; c++)
        status = add_case(f, f->given_case[c]);
    if (f->lengths == NULL || status != ATTN_EXIT_GOOD)
        return status;
    if (strlen(f->lengths) >= sizeof *copy || strlen(f->dims) >= sizeof *copy ||
        strlen(f->masks) >= sizeof *copy)
        return attn_cli_fail("bench", ATTN_EXIT_USAGE, "a list is longer than %d letters",
                             (int)sizeof *copy);
    strcpy(copy[0], f->lengths);
    for (char *length; (length = strsep(&lengths, ",")) != NULL;) {
        char *dims = strcpy(copy[1], f->dims);
        for (char *dim; (dim = strsep(&dims, ",")) != NULL;) {
            char *masks = strcpy(copy[2], f->masks);
            for (char *mask; (mask = strsep(&masks, ";")) != NULL && status == ATTN_EXIT_GOOD;)
                status = add_shape(f, length, dim, mask);
        }
    }
    return status;
}

/* ---- the whole ---------------------------------------------------------------------------- */

/* Is there something to do, and only one thing? */
static int check(const struct attn_bench_flags *f)
{
    int cases = f->n_given > 0 || f->lengths != NULL;
    if (f->rows != NULL && f->preset == NULL)
        return attn_cli_fail("bench", ATTN_EXIT_USAGE,
                             "--rows %s: of which table? --preset table --rows %s", f->rows,
                             f->rows);
    if (f->limits || f->preset != NULL) {
        if (f->n_specs > 0 || cases || f->against != NULL || (f->limits && f->preset != NULL))
            return attn_cli_fail("bench", ATTN_EXIT_USAGE, "--%s stands alone: no SPEC, no cases",
                                 f->limits ? "limits" : "preset");
        return ATTN_EXIT_GOOD;
    }
    if (f->n_specs > 0 && cases)
        return ATTN_EXIT_GOOD;
    return attn_cli_fail("bench", ATTN_EXIT_USAGE,
                         "a SPEC and --case or --length are needed (or --preset table, or "
                         "--limits): attnlab bench dense --length 512");
}

int attn_bench_flags_read(int argc, char **argv, struct attn_bench_flags *f)
{
    *f = (struct attn_bench_flags){.dims = "64",
                                   .heads = "1",
                                   .batch = "1",
                                   .dtype = "f32",
                                   .pass = "fwd",
                                   .masks = "none",
                                   .format = "text",
                                   .blas = "auto",
                                   .thread = {1},
                                   .n_threads = 1,
                                   .rounds = 7,
                                   .again_s = 1,
                                   .sample_s = 0.01,
                                   .patience_s = 20};
    if (attn_cli_options("bench", argc, argv, longs, "case") != ATTN_EXIT_GOOD)
        return ATTN_EXIT_USAGE;
    for (int o, index = 0; (o = getopt_long(argc, argv, "", longs, &index)) != -1;) {
        f->help |= o == 'h';
        if (!read_flag(o, optarg, f))
            return attn_cli_fail("bench", ATTN_EXIT_USAGE, "--%s %s: see attnlab bench --help",
                                 longs[index].name, optarg);
    }
    if (f->help)
        return ATTN_EXIT_GOOD;
    for (; optind < argc; optind++) {
        if (f->n_specs == ATTN_BENCH_SPECS)
            return attn_cli_fail("bench", ATTN_EXIT_USAGE, "more than %d specs", ATTN_BENCH_SPECS);
        f->spec[f->n_specs++] = argv[optind];
    }
    int status = check(f);
    return status == ATTN_EXIT_GOOD ? make_cases(f) : status;
}
