#include "experiments/bench/bench_blas.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A function of the library under a type: ISO C has no cast from void * to a function. */
static int find(void *handle, const char *name, void *function)
{
    void *symbol = dlsym(handle, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

/* ---- which kernels ------------------------------------------------------------------------ */

/* Over what the environment says: a name left there for another program would be believed. */
static void ask_for_kernels(const char *isa)
{
    if (strcmp(isa, "avx512") == 0) {
        setenv("OPENBLAS_CORETYPE", "SkylakeX", 1);
        setenv("BLIS_ARCH_TYPE", "0", 1); /* skx */
    } else if (strcmp(isa, "avx2") == 0)
        setenv("OPENBLAS_CORETYPE", "Haswell", 1);
}

static void hear_openblas(struct attn_blas *blas, const char *isa)
{
    char *(*core)(void), *(*config)(void), name[24], version[24];
    if (!find(blas->handle, "openblas_get_corename", &core))
        return;
    snprintf(blas->name, sizeof blas->name, "OpenBLAS");
    if (find(blas->handle, "openblas_get_config", &config) &&
        sscanf(config(), "%23s %23s", name, version) == 2) /* "OpenBLAS 0.3.21 DYNAMIC_ARCH ..." */
        snprintf(blas->name, sizeof blas->name, "%s %s", name, version);
    const char *l2 = getenv("OPENBLAS_L2_SIZE"); /* changes how it blocks */
    snprintf(blas->kernels, sizeof blas->kernels, "%.32s%s%.16s", core(),
             l2 != NULL ? ", with OPENBLAS_L2_SIZE=" : "", l2 != NULL ? l2 : "");
    int wide = strcmp(core(), "SkylakeX") == 0 || strcmp(core(), "Cooperlake") == 0 ||
               strcmp(core(), "SapphireRapids") == 0;
    if (strcmp(isa, "avx512") == 0 ? !wide : strcmp(core(), "Prescott") == 0)
        snprintf(blas->doubt, sizeof blas->doubt,
                 "OpenBLAS runs its %.40s kernels, which are not the best for this machine",
                 core());
    find(blas->handle, "openblas_set_num_threads", &blas->set_threads);
}

static void (*blis_set_threads)(int64_t n); /* its integers are of 64 bits */

static void set_blis_threads(int n)
{
    blis_set_threads(n);
}

static void hear_blis(struct attn_blas *blas, const char *isa)
{
    int (*query)(void);
    const char *(*string)(int), *(*version)(void);
    if (!find(blas->handle, "bli_arch_query_id", &query) ||
        !find(blas->handle, "bli_arch_string", &string))
        return;
    snprintf(blas->name, sizeof blas->name, "BLIS%s%.40s",
             find(blas->handle, "bli_info_get_version_str", &version) ? " " : "",
             find(blas->handle, "bli_info_get_version_str", &version) ? version() : "");
    snprintf(blas->kernels, sizeof blas->kernels, "%s", string(query()));
    if (strcmp(isa, "avx512") == 0 && strcmp(blas->kernels, "skx") != 0 &&
        strncmp(blas->kernels, "zen4", 4) != 0 && strncmp(blas->kernels, "zen5", 4) != 0)
        snprintf(blas->doubt, sizeof blas->doubt, "BLIS took its %.40s kernels", blas->kernels);
    if (find(blas->handle, "bli_thread_set_num_threads", &blis_set_threads))
        blas->set_threads = set_blis_threads;
}

static void hear_mkl(struct attn_blas *blas)
{
    void (*version)(char *text, int size);
    if (!find(blas->handle, "MKL_Get_Version_String", &version))
        return;
    snprintf(blas->name, sizeof blas->name, "MKL");
    version(blas->kernels, (int)sizeof blas->kernels);
    find(blas->handle, "MKL_Set_Num_Threads", &blas->set_threads);
}

/* ---- opening ------------------------------------------------------------------------------ */

static int open_one(const char *file, struct attn_blas *blas)
{
    blas->handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (blas->handle == NULL)
        return 0;
    if (find(blas->handle, "cblas_sgemm", &blas->sgemm))
        return 1;
    dlclose(blas->handle);
    blas->handle = NULL;
    return 0;
}

enum attn_status attn_blas_open(const char *choice, const char *isa, struct attn_blas *blas,
                                struct attn_error *err)
{
    static const char *const usual[] = {"libopenblas.so.0", "libmkl_rt.so.2", "libblis.so.4",
                                        "libblis.so.3", "libblas.so.3"};
    memset(blas, 0, sizeof *blas);
    ask_for_kernels(isa);
    if (strcmp(choice, "auto") != 0) {
        if (!open_one(choice, blas))
            return attn_fail(err, ATTN_ENOTSUP, "%.200s cannot be loaded, or has no cblas_sgemm",
                             choice);
    } else
        for (size_t u = 0; u < sizeof usual / sizeof *usual && blas->handle == NULL; u++)
            if (open_one(usual[u], blas))
                choice = usual[u];
    if (blas->handle == NULL)
        return attn_fail(err, ATTN_ENOTSUP,
                         "no BLAS is installed (libopenblas.so.0, libblis, libmkl_rt, libblas)");
    snprintf(blas->name, sizeof blas->name, "%.60s", choice);
    snprintf(blas->kernels, sizeof blas->kernels, "it does not say");
    hear_openblas(blas, isa);
    hear_blis(blas, isa);
    hear_mkl(blas);
    return ATTN_OK;
}

void attn_blas_product(const struct attn_blas *blas, int transposed, int m, int n, int k,
                       const float *a, const float *b, float *c)
{
    enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 }; /* cblas.h */
    blas->sgemm(ROW_MAJOR, PLAIN, transposed ? TRANSPOSED : PLAIN, m, n, k, 1, a, k, b,
                transposed ? k : n, 0, c, n);
}
