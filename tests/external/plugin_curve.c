/* The naive example as a plug-in to be measured: what it does beside is in CURVE, and begins at 64
 * keys.  Built after the example, in one file with it:
 *
 *      cc -DCURVE=EXTRA -Dattn_plugin_get=naive_get -include docs/examples/plugin_naive.c ...
 */
#undef attn_plugin_get

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define EXTRA   1 /* holds 64 MiB while it computes  */
#define WRONG   2 /* its last element is off         */
#define CRASH   3
#define HANG    4
#define LEAVE   5 /* _exit(0)                        */
#define CHATTER 6 /* megabytes on standard output    */
#define SLEEP   7 /* 50 ms in each call              */
#define OVERRUN 8 /* one element past the end of o   */
#define SAYS_NO 9

static int measured(const struct attn_plugin_call *t)
{
    int64_t n = t->batch * t->heads * t->n_query * t->d_value;
    if (t->n_key < 64)
        return forward(t);
    volatile char *extra = CURVE == EXTRA ? malloc(64 << 20) : NULL;
    for (int at = 0; extra != NULL && at < 64 << 20; at += 1024)
        extra[at] = 1; /* each page; a memset would be optimised away */
    int status = forward(t);
    if (CURVE == WRONG)
        ((float *)t->o.data)[n - 1] += 0.5f;
    if (CURVE == OVERRUN)
        ((float *)t->o.data)[n] = 1;
    if (CURVE == CRASH) { /* a sanitizer would turn it into an exit */
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
    }
    while (CURVE == HANG)
        usleep(1000);
    if (CURVE == LEAVE)
        _exit(0);
    if (CURVE == SLEEP)
        usleep(50000);
    for (int line = 0; CURVE == CHATTER && line < 20000; line++)
        printf("{\"schema\":2,\"record\":\"point\",\"status\":\"ok\"}\n");
    if (CURVE == SAYS_NO)
        snprintf(t->message, t->message_size, "not today");
    free((void *)(uintptr_t)extra);
    return CURVE == SAYS_NO ? 7 : status;
}

const struct attn_plugin *attn_plugin_get(void)
{
    static struct attn_plugin plugin;
    plugin = *naive_get();
    plugin.forward = measured;
    return &plugin;
}
