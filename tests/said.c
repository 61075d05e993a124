/* See said.h. */
#include "tests/said.h"

#include <check.h>
#include <string.h>

void said(enum attn_status got, enum attn_status want, const struct attn_error *err,
          const char *part)
{
    ck_assert_msg(got == want, "%s instead of %s: '%s' (looking for '%s')", attn_status_name(got),
                  attn_status_name(want), err->text, part);
    ck_assert_int_eq(err->status, want);
    ck_assert_msg(strstr(err->text, part) != NULL, "'%s' lacks '%s'", err->text, part);
    ck_assert_msg(strchr(err->text, '\n') == NULL, "'%s' is more than a line", err->text);
}
