/* Records as a table.  Units are in the names of the columns, '.' is the decimal point (nobody
 * here calls setlocale), an unknown value is an empty field. */
#include "experiments/report/csv.h"

#include <math.h>
#include <string.h>

#include "experiments/measure/stats.h"
#include "tests/harness/files/fileio.h"

static const char header[] =
    "group,spec,impl,family,status,pass,mask,dtype,batch,heads,kv_heads,n_query,n_key,d_key,"
    "d_value,pairs,density,ranks,round,first_s,warm_samples,warm_min_s,warm_median_s,unknown_s,"
    "first_cpu_max_s,first_cpu_sum_s,warm_cpu_max_s,warm_cpu_sum_s,priced_bytes,ledger_bytes,"
    "process_ledger_bytes,floor_bytes,baseline_bytes,"
    "hwm_bytes,resident_bytes,hwm_reset,minor_faults,major_faults,flops,bytes_sent,messages,"
    "verified,verdict,worst_error_over_bound,worst_output,digest,setup_s,verify_s,wall_s,load,"
    "steal_s,build,session,case,message,time_source,route,source,source_digest,mask_bytes,"
    "saved_bytes\r\n";

void attn_csv_text(FILE *file, const char *text)
{
    if (strpbrk(text, "\",\r\n") == NULL) {
        fputs(text, file);
        return;
    }
    putc('"', file);
    for (; *text != '\0'; text++) {
        if (*text == '"')
            putc('"', file);
        putc(*text, file);
    }
    putc('"', file);
}

static void put_text(FILE *file, const char *text)
{
    attn_csv_text(file, text);
    putc(',', file);
}

static void put_count(FILE *file, int64_t x)
{
    fprintf(file, "%lld,", (long long)x);
}

static void put_bytes(FILE *file, int64_t x)
{
    if (x >= 0)
        fprintf(file, "%lld", (long long)x);
    putc(',', file);
}

static void put_real(FILE *file, double x)
{
    if (isfinite(x))
        fprintf(file, "%.9g", x);
    putc(',', file);
}

/* No column is of two kinds of call. */
static void put_times(FILE *file, const struct attn_point *p)
{
    double warm[ATTN_RECORD_TIMES];
    struct attn_spread spread;
    memcpy(warm, p->warm_s, sizeof warm);
    attn_stats_spread(warm, p->n_warm, &spread);
    put_real(file, p->first_s);
    put_count(file, p->n_warm);
    put_real(file, spread.min);
    put_real(file, spread.median);
    put_real(file, p->unknown_s);
    put_real(file, p->first_cpu_max_s);
    put_real(file, p->first_cpu_sum_s);
    put_real(file, p->warm_cpu_max_s);
    put_real(file, p->warm_cpu_sum_s);
}

static void put_problem(FILE *file, const struct attn_point *p)
{
    put_text(file, p->group);
    put_text(file, p->spec);
    put_text(file, p->impl);
    put_text(file, p->family);
    put_text(file, attn_point_status_name(p->status));
    put_text(file, attn_pass_name(p->c.pass));
    put_text(file, p->c.mask);
    put_text(file, attn_dtype_name(p->c.dtype));
    put_count(file, p->c.batch);
    put_count(file, p->c.heads);
    put_count(file, p->c.kv_heads);
    put_count(file, p->c.n_query);
    put_count(file, p->c.n_key);
    put_count(file, p->c.d_key);
    put_count(file, p->c.d_value);
    put_count(file, p->pairs);
    put_real(file, p->density);
    put_count(file, p->ranks);
    put_count(file, p->round);
}

static void put_memory(FILE *file, const struct attn_point *p)
{
    put_bytes(file, p->priced_bytes);
    put_bytes(file, p->ledger_bytes);
    put_bytes(file, p->process_ledger_bytes);
    put_bytes(file, p->floor_bytes);
    put_bytes(file, p->baseline_bytes);
    put_bytes(file, p->hwm_bytes);
    put_bytes(file, p->resident_bytes);
    put_count(file, p->hwm_reset);
    put_count(file, p->minor_faults);
    put_count(file, p->major_faults);
    put_real(file, p->flops);
    put_bytes(file, p->bytes_sent);
    put_count(file, p->messages);
}

void attn_csv_write(FILE *file, const struct attn_point *points, int64_t n)
{
    fputs(header, file);
    for (int64_t i = 0; i < n; i++) {
        const struct attn_point *p = &points[i];
        put_problem(file, p);
        put_times(file, p);
        put_memory(file, p);
        put_text(file, p->verified);
        put_text(file, p->verdict);
        put_real(file, p->worst);
        put_text(file, p->worst_output);
        put_text(file, p->digest);
        put_real(file, p->setup_s);
        put_real(file, p->verify_s);
        put_real(file, p->wall_s);
        put_real(file, p->load);
        put_real(file, p->steal_s);
        put_text(file, p->build);
        put_text(file, p->session);
        put_text(file, p->text);
        put_text(file, p->message);
        put_text(file, p->time_source);
        put_text(file, p->route);
        put_text(file, p->source);
        put_text(file, p->source_digest);
        if (p->mask_bytes >= 0)
            fprintf(file, "%lld", (long long)p->mask_bytes);
        fputc(',', file);
        if (p->saved_bytes >= 0)
            fprintf(file, "%lld", (long long)p->saved_bytes);
        fputs("\r\n", file);
    }
}

enum attn_status attn_csv_save(const char *path, const struct attn_point *points, int64_t n,
                               struct attn_error *err)
{
    struct attn_save save;
    if (attn_save_open(path, &save, err) != ATTN_OK)
        return ATTN_ENOMEM;
    attn_csv_write(save.stream, points, n);
    return attn_save_close(&save, ATTN_OK, err);
}
