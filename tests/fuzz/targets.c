/* See targets.h.  A target returns a text when the parser broke the contract of its header. */
#include "tests/fuzz/targets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/measure/plan.h"
#include "experiments/measure/record.h"
#include "optimized/registry.h"
#include "ref/mask/mask.h"
#include "tests/harness/base/files.h"
#include "tests/harness/subject/vector_files.h"

static char folder[512];

void fuzz_use_folder(const char *path)
{
    snprintf(folder, sizeof folder, "%s", path);
}

/* ---- what all of them share ---------------------------------------------------------------- */

/* NULL when a failure is said in one line that is safe on a terminal, or nothing failed. */
static const char *fault_of(enum attn_status status, const struct attn_error *err)
{
    if (status == ATTN_OK)
        return NULL;
    if (err->status != status)
        return "the error has another status than the call";
    if (status == ATTN_EINTERNAL || status == ATTN_EPEER)
        return "a wrong input is refused as something else";
    if (err->text[0] == '\0')
        return "an error without a text";
    for (const char *c = err->text; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return "a control character in an error";
    return NULL;
}

/* The input as a text, malloc'ed: up to its first 0. */
static char *text_of(const unsigned char *data, size_t size)
{
    char *text = malloc(size + 1);
    if (text == NULL)
        abort();
    memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

/* The input as a file of the folder.  Returns path. */
static const char *file_of(const char *name, const unsigned char *data, size_t size,
                           char path[1024])
{
    snprintf(path, 1024, "%s/%s", folder, name);
    FILE *file = fopen(path, "we");
    if (file == NULL || fwrite(data, 1, size, file) != size || fclose(file) != 0) {
        perror(path);
        abort();
    }
    return path;
}

/* ---- texts ----------------------------------------------------------------------------------- */

enum { NAME_MOST = 255 }; /* bytes of a name in a mask */

/* The tensors that a mask names hold what its name says, right or wrong: each letter is a number.
 * Where the first one is small, row_start grows, so that some patterns are right. */
static enum attn_status find_spelled(void *arg, const char *name, const char *part,
                                     struct attn_mask_tensor *tensor, struct attn_error *err)
{
    static int64_t parts[3][64]; /* of one mask; of two tensors of a kind the last one counts */
    const struct attn_mask_shape *shape = arg;
    size_t letters = strlen(name);
    int starts = strcmp(part, "row_start") == 0, columns = strcmp(part, "column") == 0;
    int64_t *to = parts[starts ? 0 : columns ? 1 : 2];
    int64_t n = starts ? shape->n_query + 1 : columns ? 12 : shape->n_key, sum = 0;
    if (letters > NAME_MOST) /* memory behind the name's is read, too */
        return attn_fail(err, ATTN_EINTERNAL, "a name of %zu bytes", letters);
    if (letters == 0)
        return attn_fail(err, ATTN_EINVAL, "no tensor '%s'", name);
    for (int64_t i = 0; i < n; i++) {
        int64_t value = name[(size_t)i % letters] % 16 - (name[0] == '-');
        to[i] = starts && name[0] >= 'a' ? sum : value;
        sum += value % 3;
    }
    *tensor = (struct attn_mask_tensor){to, 8, 1, {n}};
    return ATTN_OK;
}

/* All that is derived from a mask agrees with its definition, row by row. */
static const char *check_row(const struct attn_mask *mask, int64_t b, int64_t h, int64_t i)
{
    const struct attn_mask_shape *s = attn_mask_shape(mask);
    int64_t n = 0, from = 0, counted = 0;
    struct attn_run run = {0, 0};
    struct attn_tokens all = attn_tokens_between(0, s->n_key);
    int32_t key[16];
    for (int64_t j = 0; j < s->n_key; j++)
        n += attn_mask_allows(mask, b, h, i, j);
    if (attn_mask_row_count(mask, b, h, i, 0, s->n_key) != n ||
        attn_mask_list_keys(mask, b, h, i, &all, key) != n)
        return "the keys of a row are not counted as they are defined";
    for (int64_t k = 0; k < n; k++)
        if (key[k] < 0 || key[k] >= s->n_key || !attn_mask_allows(mask, b, h, i, key[k]))
            return "a key of a row is not visible";
    for (; attn_mask_next(mask, b, h, i, &run); from = run.hi) {
        if (run.lo < from || run.hi <= run.lo || run.hi > s->n_key)
            return "a run is not where it may be";
        counted += run.hi - run.lo;
    }
    if (counted != n)
        return "the runs of a row are not its keys";
    if (attn_mask_span(mask, b, h, i, &run) && (run.hi > run.lo ? run.hi - run.lo : 0) != n)
        return "the span of a row is not its keys";
    return NULL;
}

static const char *check_mask(const struct attn_mask *mask)
{
    const struct attn_mask_shape *s = attn_mask_shape(mask);
    const char *wrong = NULL;
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t h = 0; h < s->heads; h++) {
            int64_t n = 0;
            int any = 0;
            for (int64_t i = 0; wrong == NULL && i < s->n_query; i++) {
                wrong = check_row(mask, b, h, i);
                n += attn_mask_row_count(mask, b, h, i, 0, s->n_key);
            }
            struct attn_tile_at all = {b, h, 0, s->n_query, 0, s->n_key};
            if (wrong == NULL && attn_mask_count(mask, all, &any) != n)
                wrong = "the pairs are not the sum of the rows";
            enum attn_tile tile = attn_mask_tile(mask, all);
            if (wrong == NULL && ((tile == ATTN_TILE_EMPTY && n > 0) ||
                                  (tile == ATTN_TILE_FULL && n < s->n_query * s->n_key)))
                wrong = "a tile is called what it is not";
        }
    return wrong;
}

static const char *run_mask(const unsigned char *data, size_t size)
{
    static const struct attn_mask_shape shapes[] = {{1, 1, 7, 7}, {2, 2, 5, 9}, {1, 2, 12, 12}};
    char *text = text_of(data, size);
    const char *wrong = NULL;
    for (size_t s = 0; wrong == NULL && s < sizeof shapes / sizeof *shapes; s++) {
        struct attn_mask *mask = NULL;
        struct attn_error err = {ATTN_OK, ""};
        struct attn_mask_shape shape = shapes[s];
        const struct attn_mask_source source = {find_spelled, &shape};
        enum attn_status status = attn_mask_parse(text, &shapes[s], &source, &mask, &err);
        wrong = status != ATTN_OK ? fault_of(status, &err) : check_mask(mask);
        if (wrong == NULL && status != ATTN_OK && strncmp(err.text, "mask, column ", 13) != 0 &&
            strchr(err.text, '(') == NULL && strstr(err.text, "ends,") == NULL)
            /* and it is not of a tensor, which names the call */
            wrong = "an error of a mask without its place";
        attn_mask_free(mask);
    }
    free(text);
    return wrong;
}

static const char *run_case(const unsigned char *data, size_t size)
{
    struct attn_case c, again;
    struct attn_error err = {ATTN_OK, ""};
    char first[ATTN_CASE_TEXT], second[ATTN_CASE_TEXT], *text = text_of(data, size);
    enum attn_status status = attn_case_parse(text, &c, &err);
    free(text);
    if (status != ATTN_OK)
        return fault_of(status, &err);
    attn_case_print(&c, first);
    if (attn_case_parse(first, &again, &err) != ATTN_OK)
        return "what a case prints is no case";
    attn_case_print(&again, second);
    return strcmp(first, second) == 0 ? NULL : "a case prints as another one";
}

/* The price of an implementation must be sane whatever its options are. */
static const char *price(const struct attn_spec *spec)
{
    const struct attn_problem problem = {1, 4, 2, 24, 40, 8, 16, .scale = 1, .dtype = ATTN_F32};
    int ranks = attn_ranks(spec->impl, &spec->options);
    for (int pass = ATTN_FORWARD; pass <= ATTN_BACKWARD; pass++)
        for (int rank = 0; rank < ranks && rank < 4; rank++) {
            struct attn_cost cost;
            struct attn_error err = {ATTN_OK, ""};
            enum attn_status status = attn_price(spec->impl, &spec->options, &problem,
                                                 (enum attn_pass)pass, rank, &cost, &err);
            if (status != ATTN_OK && fault_of(status, &err) != NULL)
                return fault_of(status, &err);
            if (status == ATTN_OK && (cost.peak_bytes < 0 || !(cost.flops >= 0)))
                return "a price below 0";
        }
    return NULL;
}

static const char *run_spec(const unsigned char *data, size_t size)
{
    struct attn_spec spec, again;
    struct attn_error err = {ATTN_OK, ""};
    char first[256], second[256], *text = text_of(data, size);
    enum attn_status status = attn_spec_parse(text, &spec, &err);
    free(text);
    if (status != ATTN_OK)
        return fault_of(status, &err);
    if (attn_spec_print(&spec, first, sizeof first) >= (int)sizeof first)
        return "a spec of more than 255 bytes";
    if (attn_spec_parse(first, &again, &err) != ATTN_OK)
        return "what a spec prints is no spec";
    attn_spec_print(&again, second, sizeof second);
    return strcmp(first, second) != 0 ? "a spec prints as another one" : price(&spec);
}

static const char *run_plan(const unsigned char *data, size_t size)
{
    struct attn_plan plan;
    struct attn_error err = {ATTN_OK, ""};
    const char *wrong = NULL;
    char *text = text_of(data, size);
    enum attn_status status = attn_plan_parse("plan", text, NULL, &plan, &err);
    if (status != ATTN_OK) {
        wrong = fault_of(status, &err);
        if (wrong == NULL && strncmp(err.text, "plan:", 5) != 0)
            wrong = "an error of a plan without its place";
    } else if (plan.n < 0 || plan.n > ATTN_PLAN_POINTS || plan.rounds < 1)
        wrong = "a plan of too many points"; /* a plan that only names curves has none */
    for (int64_t i = 0; wrong == NULL && i < plan.n; i += 1 + plan.n / 16) {
        struct attn_spec spec;
        struct attn_case c;
        if (attn_spec_parse(plan.point[i].spec_text, &spec, NULL) != ATTN_OK ||
            attn_case_parse(plan.point[i].text, &c, NULL) != ATTN_OK)
            wrong = "a point of a plan that nothing else understands";
    }
    attn_plan_free(&plan);
    free(text);
    return wrong;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* A point as the line that records hold, malloc'ed. */
static char *line_of(const struct attn_point *point)
{
    char *line = NULL;
    size_t n = 0;
    FILE *file = open_memstream(&line, &n);
    if (file == NULL || attn_record_write_point(file, point) != 0 || fclose(file) != 0)
        abort();
    return line;
}

static const char *run_record(const unsigned char *data, size_t size)
{
    static struct attn_point point, again;
    struct attn_error err = {ATTN_OK, ""};
    const char *wrong = NULL;
    enum attn_status status = attn_record_parse_point((const char *)data, size, &point, &err);
    if (status != ATTN_OK)
        return fault_of(status, &err);
    char *first = line_of(&point), *second = NULL;
    if (attn_record_parse_point(first, strlen(first), &again, &err) != ATTN_OK)
        wrong = "what was written as a record is none";
    else {
        second = line_of(&again);
        if (strcmp(first, second) != 0)
            wrong = "a record is written as another one";
    }
    for (int call = 0; wrong == NULL && call <= ATTN_CALL_FIRST; call++)
        if (attn_point_call_s(&point, (enum attn_call)call) !=
                attn_point_call_s(&again, (enum attn_call)call) &&
            attn_point_call_s(&point, (enum attn_call)call) ==
                attn_point_call_s(&point, (enum attn_call)call))
            wrong = "a record is written with another time";
    free(first);
    free(second);
    return wrong;
}

static const char *same_claims(const struct attn_claims *claims)
{
    static struct attn_claims again;
    struct attn_error err = {ATTN_OK, ""};
    const char *wrong = NULL;
    char *first = attn_claims_print(claims), *second = NULL;
    if (first == NULL)
        abort();
    if (attn_claims_parse("claims", first, &again, &err) != ATTN_OK)
        wrong = "what claims print are no claims";
    else if ((second = attn_claims_print(&again)) == NULL || strcmp(first, second) != 0)
        wrong = "claims print as others";
    free(first);
    free(second);
    return wrong;
}

static const char *run_claims(const unsigned char *data, size_t size)
{
    static struct attn_claims claims;
    struct attn_error err = {ATTN_OK, ""};
    char *text = text_of(data, size);
    enum attn_status status = attn_claims_parse("claims", text, &claims, &err);
    free(text);
    return status != ATTN_OK ? fault_of(status, &err) : same_claims(&claims);
}

static const char *run_manifest(const unsigned char *data, size_t size)
{
    static struct attn_vector_files files;
    char path[1024];
    struct attn_error err = {ATTN_OK, ""};
    (void)file_of("manifest.json", data, size, path);
    enum attn_status status = attn_vector_files_open(folder, &files, &err);
    if (status != ATTN_OK)
        return fault_of(status, &err);
    const char *wrong = same_claims(&files.claims);
    for (int i = 0; wrong == NULL && i < files.n; i++)
        if (files.entry[i].name[0] == '\0' || strpbrk(files.entry[i].name, "/\n\x1b") != NULL)
            wrong = "a name of a manifest that is no plain word";
    attn_vector_files_close(&files);
    return wrong;
}

/* ---- files of tensors ------------------------------------------------------------------------ */

/* Names, shapes and bytes of all tensors are the same. */
static const char *compare(struct attn_file *a, struct attn_file *b)
{
    struct attn_error err = {ATTN_OK, ""};
    if (a->n_tensors != b->n_tensors || a->n_metadata != b->n_metadata)
        return "a file is written with another number of tensors or metadata";
    for (int t = 0; t < a->n_tensors; t++) {
        const struct attn_file_tensor *x = &a->tensor[t];
        struct attn_file_tensor *y = attn_file_find(b, x->name);
        if (y == NULL || x->dtype != y->dtype || x->n_axes != y->n_axes || x->bytes != y->bytes ||
            memcmp(x->extent, y->extent, (size_t)x->n_axes * sizeof x->extent[0]) != 0)
            return "a tensor is written as another one";
        if (attn_file_load(b, y, &err) != ATTN_OK)
            return "a tensor that was written cannot be read";
        if (x->bytes > 0 && memcmp(x->data, y->data, (size_t)x->bytes) != 0)
            return "a tensor is written with other bytes";
    }
    return NULL;
}

/* Everything of a good file, once more as safetensors, which has all types. */
static const char *write_again(struct attn_file *file)
{
    char path[1024];
    struct attn_file again;
    struct attn_error err = {ATTN_OK, ""};
    snprintf(path, sizeof path, "%s/again.safetensors", folder);
    enum attn_status status = attn_safetensors_write(path, file->tensor, file->n_tensors,
                                                     file->metadata, file->n_metadata, &err);
    if (status == ATTN_OK)
        status = attn_file_open(path, &again, &err);
    if (status != ATTN_OK) {
        fprintf(stderr, "%s\n", err.text);
        return "what was read cannot be written and read again";
    }
    const char *wrong = compare(file, &again);
    attn_file_close(&again);
    return wrong;
}

static const char *run_file(const char *name, const unsigned char *data, size_t size)
{
    char path[1024];
    struct attn_file file;
    struct attn_error err = {ATTN_OK, ""};
    const char *wrong = NULL;
    int loaded = 1;
    enum attn_status status = attn_file_open(file_of(name, data, size, path), &file, &err);
    if (status != ATTN_OK)
        return fault_of(status, &err);
    for (int t = 0; wrong == NULL && t < file.n_tensors; t++) {
        status = attn_file_load(&file, &file.tensor[t], &err);
        wrong = fault_of(status, &err);
        loaded &= status == ATTN_OK;
        if (status == ATTN_OK && file.tensor[t].bytes < 0)
            wrong = "a tensor of less than no bytes";
    }
    if (wrong == NULL && loaded)
        wrong = write_again(&file);
    attn_file_close(&file);
    return wrong;
}

static const char *run_safetensors(const unsigned char *data, size_t size)
{
    return run_file("x.safetensors", data, size);
}

static const char *run_npy(const unsigned char *data, size_t size)
{
    return run_file("x.npy", data, size);
}

static const char *run_npz(const unsigned char *data, size_t size)
{
    return run_file("x.npz", data, size);
}

/* ---- the table ------------------------------------------------------------------------------- */

/* The longest input is longer than the longest text that is read, where a text has an end; headers
 * of 1 MiB, the end of those of files, are left to tests/checker/test_hostile_files.c. */
static const struct fuzz_target targets[] = {
    {"mask", "grammar", 512, run_mask},       {"case", "grammar", ATTN_CASE_TEXT + 64, run_case},
    {"spec", "grammar", 512, run_spec},       {"plan", "grammar", 1024, run_plan},
    {"record", "json", 4096, run_record},     {"claims", "json", 1024, run_claims},
    {"manifest", "json", 1024, run_manifest}, {"safetensors", "tensors", 512, run_safetensors},
    {"npy", "tensors", 512, run_npy},         {"npz", "tensors", 1024, run_npz},
};

const struct fuzz_target *fuzz_target_at(int index)
{
    int n = (int)(sizeof targets / sizeof *targets);
    return index >= 0 && index < n ? &targets[index] : NULL;
}
