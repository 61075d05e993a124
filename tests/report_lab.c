/* See report_lab.h. */
#include "tests/report_lab.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/scratch.h"

struct attn_point lab_points[LAB_MOST];
int lab_n_points;

/* A good point: 100 L bytes for tiled, L^2 for others; times that grow likewise. */
struct attn_point *lab_add(const char *group, const char *spec, const char *impl,
                           const char *family, const char *text, int round)
{
    ck_assert_int_lt(lab_n_points, LAB_MOST);
    struct attn_point *p = &lab_points[lab_n_points++];
    attn_point_init(p);
    (void)snprintf(p->group, sizeof p->group, "%s", group);
    (void)snprintf(p->spec, sizeof p->spec, "%s", spec);
    (void)snprintf(p->impl, sizeof p->impl, "%s", impl);
    (void)snprintf(p->family, sizeof p->family, "%s", family);
    (void)snprintf(p->text, sizeof p->text, "%s", text);
    ck_assert_int_eq(attn_case_parse(text, &p->c, NULL), ATTN_OK);
    double length = (double)p->c.n_query;
    double size = strcmp(family, "tiled") == 0 ? 100 * length : length * length;
    p->round = round;
    p->status = ATTN_POINT_OK;
    p->ranks = 1;
    p->density = 1;
    p->n_warm = 1;
    p->warm_s[0] = 1e-9 * length * length;
    p->first_s = 5e-9 * length * length;
    p->priced_bytes = p->ledger_bytes = p->process_ledger_bytes = (int64_t)size;
    p->resident_bytes = (int64_t)(1.01 * size);
    p->floor_bytes = 4096;
    p->worst = 0.25;
    p->output_worst[ATTN_O] = 0.25;
    strcpy(p->worst_output, "o");
    strcpy(p->verified, "all");
    return p;
}

void lab_add_curves(void)
{
    static const char *const text[] = {
        "q256d64:causal(br):f32:normal:s1", "q512d64:causal(br):f32:normal:s1",
        "q1024d64:causal(br):f32:normal:s1", "q2048d64:causal(br):f32:normal:s1"};
    lab_n_points = 0;
    for (int l = 0; l < 4; l++) {
        lab_add("length-causal", "dense", "dense", "dense", text[l], 0);
        lab_add("length-causal", "tiled-textbook", "tiled-textbook", "tiled", text[l], 0);
    }
}

const char *lab_write_records(const char *name)
{
    const char *path = scratch_path(name);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    for (int s = 0; s < lab_n_points; s++)
        ck_assert_int_eq(attn_record_write_point(file, &lab_points[s]), 0);
    ck_assert_int_eq(fclose(file), 0);
    return path;
}

char *lab_read_text(const char *path)
{
    FILE *file = fopen(path, "r");
    ck_assert_msg(file != NULL, "there is no %s", path);
    size_t room = 1 << 22;
    char *text = malloc(room);
    ck_assert_ptr_nonnull(text);
    size_t n = fread(text, 1, room - 1, file);
    text[n] = '\0';
    (void)fclose(file);
    return text;
}

int lab_is_there(const char *name)
{
    struct stat facts;
    return stat(scratch_path(name), &facts) == 0 && facts.st_size > 0;
}
