/* What a failure must say: its status, and words that tell it from every other failure. */
#ifndef TESTS_SAID_H
#define TESTS_SAID_H

#include "ref/attn.h"

/* Fail the test unless got == want == err->status and err's one line contains part. */
void said(enum attn_status got, enum attn_status want, const struct attn_error *err,
          const char *part);

#endif
