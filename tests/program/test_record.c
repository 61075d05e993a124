/* Records: what is written is what is read, and a file survives its writer. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "experiments/measure/record.h"
#include "tests/fixtures/case_fixture.h"
#include "tests/fixtures/report_fixture.h"
#include "tests/fixtures/scratch.h"
#include "tests/suites.h"

SUITE(record, .open = scratch_open, .close = scratch_close);

static const char *path(void)
{
    return scratch_path("records.jsonl");
}

static void put_file(const char *text)
{
    scratch_put("records.jsonl", text, strlen(text));
}

/* One of each kind of value, none of them at its preset. */
static void sample(struct attn_point *p)
{
    attn_point_init(p);
    strcpy(p->group, "length-causal");
    strcpy(p->spec, "ring:ranks=2");
    strcpy(p->impl, "ring");
    strcpy(p->text, "b2h4g2q127k129d64v32:causal(br):f32:normal:s42:pass=bwd");
    p->c = case_of(p->text);
    p->round = 3;
    p->status = ATTN_POINT_OK;
    p->pairs = INT64_C(9007199254740993); /* 2^53 + 1: a double would lose it */
    p->density = 1.0 / 3;
    p->ranks = 2;
    p->first_s = 0.1;
    p->n_warm = 3;
    p->warm_s[0] = 1e-9;
    p->warm_s[1] = 0.30000000000000004;
    p->warm_s[2] = 123.456;
    p->price.peak = 0;
    p->price.shard = 4096;
    p->resident_bytes = -1;
    p->n_live = 2;
    strcpy(p->live_name[0], "scores");
    p->live_bytes[0] = 1 << 30;
    strcpy(p->live_name[1], "kv.next");
    p->live_bytes[1] = 7;
    p->judged.worst = (double)NAN;
    strcpy(p->judged.verdict, "PASS");
    strcpy(p->judged.digest, "00ff00ff00ff00ff");
}

static void write_one(const struct attn_point *p)
{
    struct attn_error err = {0};
    FILE *file = attn_record_append(path(), &err);
    ck_assert_msg(file != NULL, "%s", err.text);
    ck_assert_int_eq(attn_record_write_point(file, p), 0);
    ck_assert_int_eq(fclose(file), 0);
}

static struct attn_records records;

static const struct attn_point *read_all(int64_t want)
{
    struct attn_error err = {0};
    attn_records_free(&records);
    ck_assert_msg(attn_record_read(path(), &records, &err) == ATTN_OK, "%s", err.text);
    ck_assert_int_eq(records.n, want);
    return records.point;
}

/* Writes one point and reads it back. */
static const struct attn_point *back(const struct attn_point *p)
{
    unlink(path());
    write_one(p);
    return read_all(1);
}

TEST(round_trip)
{
    struct attn_point p;
    sample(&p);
    const struct attn_point *got = back(&p);
    char name[2][ATTN_POINT_NAME];
    attn_point_name(&p, name[0]);
    attn_point_name(got, name[1]);
    ck_assert_str_eq(name[0], name[1]);
    ck_assert_int_eq(got->round, p.round);
    ck_assert_int_eq(got->pairs, p.pairs);
    ck_assert(got->density == p.density);
    ck_assert(got->first_s == p.first_s);
    ck_assert_int_eq(got->n_warm, 3);
    for (int t = 0; t < 3; t++)
        ck_assert(got->warm_s[t] == p.warm_s[t]);
    ck_assert_int_eq(got->price.peak, 0);
    ck_assert_int_eq(got->resident_bytes, -1);
    ck_assert_int_eq(got->ledger_bytes, -1);
    ck_assert(got->price.shard == 4096);
    ck_assert(got->price.device == -1); /* as in records of older programs */
    ck_assert_int_eq(got->n_live, 2);
    ck_assert_str_eq(got->live_name[1], "kv.next");
    ck_assert_int_eq(got->live_bytes[0], 1 << 30);
    ck_assert(isnan(got->judged.worst) && isnan(got->warm_cpu_max_s));
    ck_assert_int_eq(got->c.pass, ATTN_BACKWARD);
    ck_assert_int_eq(got->c.d_value, 32);
    ck_assert_str_eq(got->judged.digest, p.judged.digest);
    for (int status = 0; status <= ATTN_POINT_ERROR; status++) {
        p.status = (enum attn_point_status)status;
        ck_assert_int_eq(back(&p)->status, status);
    }
    p.judged.worst = (double)INFINITY; /* JSON has neither: both are unknown */
    p.first_s = -(double)INFINITY;
    got = back(&p);
    ck_assert(isnan(got->judged.worst) && isnan(got->first_s));
}

TEST(awkward_text)
{
    static const char *const awkward[][2] = {
        {"plain", NULL},
        {"a \"quoted\" word, a comma", NULL},
        {"back\\slash\ttab\nnewline\x01", NULL},
        {"umlaut \xc3\xa4, arrow \xe2\x86\x92", NULL},
        {"not UTF-8: \xff\xfe", "not UTF-8: ??"},
        {"{\"schema\":1,\"record\":\"point\"}", NULL},
    };
    struct attn_point p;
    sample(&p);
    for (size_t a = 0; a < sizeof awkward / sizeof *awkward; a++) {
        strcpy(p.message, awkward[a][0]);
        ck_assert_str_eq(back(&p)->message, awkward[a][awkward[a][1] != NULL]);
        char *line = scratch_read(path());
        ck_assert_ptr_eq(strchr(line, '\n'), line + strlen(line) - 1);
        free(line);
    }
}

/* A reader leaves a torn line out, a writer cuts it off; a broken one is told. */
TEST(torn_and_broken_lines)
{
    struct attn_point p;
    struct attn_error err = {0};
    sample(&p);
    put_file("{\"schema\":2,\"rec");
    write_one(&p);
    read_all(1);
    FILE *file = fopen(path(), "a");
    fputs("{\"schema\":2,\"record\":\"point\",\"status\":\"o", file);
    fclose(file);
    read_all(1);
    p.round = 4;
    write_one(&p);
    ck_assert_int_eq(read_all(2)[1].round, 4);
    file = fopen(path(), "a");
    fputs("{\"schema\":2,\n", file);
    fclose(file);
    attn_records_free(&records);
    ck_assert_int_eq(attn_record_read(path(), &records, &err), ATTN_EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "records.jsonl:3: not JSON"));
    ck_assert_ptr_null(records.point);
}

/* A user's own file loses no byte. */
TEST(foreign_file)
{
    static const char *const text[] = {"notes", "{\"name\":\"other\"}\nlast line without end",
                                       "\n"};
    for (int f = 0; f < 3; f++) {
        struct attn_error err = {0};
        put_file(text[f]);
        ck_assert_ptr_null(attn_record_append(path(), &err));
        ck_assert_ptr_nonnull(strstr(err.text, "not a file of records"));
        char *got = scratch_read(path());
        ck_assert_str_eq(got, text[f]);
        free(got);
    }
}

TEST(one_writer)
{
    struct attn_error err = {0};
    FILE *first = attn_record_append(path(), &err);
    ck_assert_ptr_nonnull(first);
    ck_assert_ptr_null(attn_record_append(path(), &err));
    ck_assert_ptr_nonnull(strstr(err.text, "another measurement"));
    fclose(first);
    FILE *second = attn_record_append(path(), &err);
    ck_assert_ptr_nonnull(second);
    fclose(second);
}

TEST(other_kinds)
{
    struct attn_point p;
    put_file("{\"schema\":2,\"record\":\"machine\",\"cpu\":\"first\"}\n"
             "{\"schema\":3,\"record\":\"point\",\"status\":\"from the future\"}\n"
             "{\"schema\":2,\"record\":\"calibration\",\"kind\":\"memory\"}\n"
             "{\"schema\":2,\"record\":\"machine\",\"cpu\":\"second\"}\n");
    sample(&p);
    write_one(&p);
    read_all(1);
    ck_assert_str_eq(json_string_value(json_object_get(records.machine, "cpu")), "second");
    ck_assert_int_eq(json_array_size(records.calibration), 1);
    ck_assert_int_eq(json_array_size(records.labels), 0);
    ck_assert_str_eq(
        json_string_value(json_object_get(json_array_get(records.calibration, 0), "kind")),
        "memory");
}

/* The same point and round again: the later record counts, in the earlier one's place. */
TEST(later_counts)
{
    struct attn_point p;
    sample(&p);
    for (int turn = 0; turn < 3; turn++)
        for (p.round = 0; p.round < 300; p.round++) {
            p.status = turn < 2 ? ATTN_POINT_DROPPED : ATTN_POINT_OK;
            snprintf(p.group, sizeof p.group, "g%d", p.round % 7);
            if (turn == 0 || p.round % (turn + 1) == 0)
                write_one(&p);
        }
    const struct attn_point *got = read_all(300);
    for (int i = 0; i < 300; i++) {
        ck_assert_int_eq(got[i].round, i);
        ck_assert_int_eq(got[i].status, i % 3 == 0 ? ATTN_POINT_OK : ATTN_POINT_DROPPED);
    }
}

static const struct {
    const char *line, *want;
} bad_lines[] = {
    {"", "not JSON"},
    {"[]", "no record"},
    {"{\"schema\":2}", "no record"},
    {"{\"schema\":3,\"record\":\"point\"}", "not a point of schema 2"},
    {"{\"schema\":1,\"record\":\"point\"}", "of schema 1, which is not read any more"},
    {"{\"schema\":2,\"record\":\"machine\"}", "not a point"},
    {"{\"schema\":2,\"record\":\"point\"}", "no such status: none"},
    {"{\"schema\":2,\"record\":\"point\",\"status\":\"fine\"}", "no such status: fine"},
    {"{\"schema\":2,\"record\":\"point\",\"status\":\"ok\",\"round\":\"1\"}",
     "\"round\" has the wrong"},
    {"{\"schema\":2,\"record\":\"point\",\"status\":\"ok\",\"round\":4294967297}",
     "\"round\" is beyond"},
    {"{\"schema\":2,\"record\":\"point\",\"status\":\"o\\u001b[31mk\"}", "no such status: o?[31mk"},
    {"{\"schema\":2,\"record\":\"point\",\"status\":\"ok\",\"flops\":true}",
     "\"flops\" has the wrong"},
    {"{\"schema\":2,\"record\":\"point\",\"status\":\"ok\",\"verdict\":\"abcdefghijklmnopqrst\"}",
     "\"verdict\" is longer"},
    {"{\"schema\":2,\"record\":\"point\",\"status\":\"ok\",\"case\":\"nonsense\"}", ""},
};

TEST_EACH(bad_line, COUNT(bad_lines))
{
    struct attn_point p;
    struct attn_error err = {0};
    const char *line = bad_lines[_i].line;
    ck_assert_int_eq(attn_record_parse_point(line, strlen(line), &p, &err), ATTN_EINVAL);
    ck_assert_msg(strstr(err.text, bad_lines[_i].want) != NULL, "got: %s", err.text);
}

/* The fields of one line, quotes obeyed; *text moves behind its end. */
static int count_fields(const char **text)
{
    int n = 1, quoted = 0;
    for (; **text != '\0'; ++*text) {
        if (**text == '"')
            quoted = !quoted;
        else if (**text == ',' && !quoted)
            n++;
        else if (**text == '\n' && !quoted) {
            ++*text;
            return n;
        }
    }
    return -1;
}

TEST(csv_table)
{
    struct attn_point p[2];
    char *got = NULL;
    size_t size = 0;
    sample(&p[0]);
    attn_point_init(&p[1]); /* nothing known: mostly empty fields */
    strcpy(p[1].message, "\r");
    strcpy(p[0].message, "a \"comma\", a\r\nline");
    FILE *file = open_memstream(&got, &size);
    attn_csv_write(file, p, 2);
    fclose(file);
    const char *at = got;
    int columns = count_fields(&at);
    ck_assert_int_gt(columns, 40);
    ck_assert_int_eq(count_fields(&at), columns);
    ck_assert_int_eq(count_fields(&at), columns);
    ck_assert_str_eq(at, "");
    ck_assert_ptr_nonnull(strstr(got, ",3,0.1,3,1e-09,0.3,")); /* round; first; warm */
    ck_assert_ptr_nonnull(strstr(got, ",\"a \"\"comma\"\", a\r\nline\","));
    ck_assert_ptr_nonnull(strstr(got, ",\"\r\","));
    ck_assert_ptr_null(strstr(got, "nan"));
    ck_assert_ptr_null(strstr(got, "-1"));
    free(got);
}
