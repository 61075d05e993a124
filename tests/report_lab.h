/* Records made by hand, and looking at the files that a report leaves. */
#ifndef TESTS_REPORT_LAB_H
#define TESTS_REPORT_LAB_H

#include "experiments/record.h"

enum { LAB_MOST = 64 };
extern struct attn_point lab_points[LAB_MOST];
extern int lab_n_points;

struct attn_point *lab_add(const char *group, const char *spec, const char *impl,
                           const char *family, const char *text, int round);
void lab_add_curves(void);
const char *lab_write_records(const char *name);
char *lab_read_text(const char *path);
int lab_is_there(const char *name);

#endif
