#include "experiments/report/plot_ticks.h"

#include <math.h>
#include <stdlib.h>

static const char *bytes_text(double value, char text[32])
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    int u = 0;
    while (value >= 1024 && u < 5) {
        value /= 1024;
        u++;
    }
    (void)snprintf(text, 32, "%.3g %s", value, unit[u]);
    return text;
}

static const char *seconds_text(double value, char text[32])
{
    if (value < 0.9999e-3)
        (void)snprintf(text, 32, "%.3g µs", value * 1e6);
    else if (value < 0.9999)
        (void)snprintf(text, 32, "%.3g ms", value * 1e3);
    else
        (void)snprintf(text, 32, "%.4g s", value);
    return text;
}

static const char *grouped_text(double value, char text[32])
{
    long long n = llround(value);
    if (n < 1000)
        (void)snprintf(text, 32, "%lld", n);
    else if (n < 1000000)
        (void)snprintf(text, 32, "%lld,%03lld", n / 1000, n % 1000);
    else
        (void)snprintf(text, 32, "%lld,%03lld,%03lld", n / 1000000, n / 1000 % 1000, n % 1000);
    return text;
}

const char *attn_axis_text(enum attn_axis axis, double value, char text[32])
{
    switch (axis) {
    case ATTN_AXIS_BYTES:
        return bytes_text(value, text);
    case ATTN_AXIS_SECONDS:
        return seconds_text(value, text);
    case ATTN_AXIS_LENGTH:
    case ATTN_AXIS_RANKS:
        return grouped_text(value, text);
    case ATTN_AXIS_DENSITY:
    case ATTN_AXIS_RATIO:
        break;
    }
    (void)snprintf(text, 32, "%.4g", value);
    return text;
}

/* bare: without its text, for panels inside a row. */
static void write_tick(FILE *file, enum attn_axis axis, double value, int bare, int *n)
{
    char text[32];
    (void)fprintf(file, "%s'%s' %.10g", (*n)++ > 0 ? ", " : "",
                  bare ? "" : attn_axis_text(axis, value, text), value);
}

/* Powers of 2 for bytes, in such a step that at most `most` ticks are there.  Steps divide 10 or
 * are multiples of it, so that 1 KiB, 1 MiB, 1 GiB are always among them. */
static void write_byte_ticks(FILE *file, const struct attn_range *r, int most, int bare)
{
    static const int steps[] = {1, 2, 5, 10, 20, 40};
    int low = (int)ceil(log2(r->low) - 1e-9), high = (int)floor(log2(r->high) + 1e-9);
    int s = 0, n = 0;
    while (s < 5 && (high - low) / steps[s] + 1 > most)
        s++;
    for (int e = low; e <= high; e++)
        if (((e % steps[s]) + steps[s]) % steps[s] == 0)
            write_tick(file, ATTN_AXIS_BYTES, ldexp(1, e), bare, &n);
}

/* Powers of 10, and 2 and 5 times them where the range is short. */
static void write_ten_ticks(FILE *file, enum attn_axis axis, const struct attn_range *r, int most,
                            int bare)
{
    double decades = log10(r->high / r->low);
    int low = (int)floor(log10(r->low)), high = (int)ceil(log10(r->high));
    int step = 1, n = 0;
    while (decades / step > most)
        step++;
    for (int e = low; e <= high; e++) {
        for (int m = 1; m <= 5; m += m == 1 ? 1 : 3) {
            double value = m * pow(10, e);
            int wanted = m == 1 ? ((e % step) + step) % step == 0 : 3 * decades <= most;
            if (wanted && value >= r->low && value <= r->high)
                write_tick(file, axis, value, bare, &n);
        }
    }
}

void attn_ticks_by_value(FILE *file, enum attn_axis axis, const struct attn_range *r, int most,
                         int bare)
{
    if (axis == ATTN_AXIS_BYTES)
        write_byte_ticks(file, r, most, bare);
    else
        write_ten_ticks(file, axis, r, most, bare);
}

static int compare_doubles(const void *a, const void *b)
{
    const double *p = a, *q = b;
    return (*p > *q) - (*p < *q);
}

/* The abscissae of the points, thinned from the largest down until `most` are left. */
void attn_ticks_by_point(FILE *file, const struct attn_plot *plot, int most)
{
    double *x = malloc((size_t)(plot->n + 1) * sizeof *x);
    if (x == NULL)
        return;
    int n = 0, ticks = 0;
    for (int64_t s = 0; s < plot->n; s++)
        x[n++] = plot->point[s].x;
    qsort(x, (size_t)n, sizeof *x, compare_doubles);
    int kept = 0;
    for (int s = 0; s < n; s++)
        if (kept == 0 || x[s] > x[kept - 1])
            x[kept++] = x[s];
    int step = (kept + most - 1) / most;
    for (int s = 0; s < kept; s++)
        if ((kept - 1 - s) % step == 0)
            write_tick(file, plot->x_axis, x[s], 0, &ticks);
    free(x);
}
