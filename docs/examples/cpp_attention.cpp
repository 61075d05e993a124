/* Attention in C++, with a running softmax over blocks of keys, as a plug-in.
 *
 *      g++ -O2 -std=c++17 -shared -fPIC -I. -o cpp.so docs/examples/cpp_attention.cpp
 *      attnlab check --plugin ./cpp.so
 *
 * It claims causal and window masks as numbers, any strides, f32 and f64, and declares its block:
 * a running sum is rescaled once a block, which the error bound has to know.
 */
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "ref/attn_plugin.h"

namespace
{

constexpr int64_t block = 32;

/* Keys that query i sees: [first, last). */
struct range {
    int64_t first, last;
};

range visible(const attn_plugin_call &t, int64_t i)
{
    range r = {0, t.n_key};
    if (t.banded && t.window_left >= 0)
        r.first = std::max<int64_t>(0, i + t.offset - t.window_left);
    if (t.banded && t.window_right >= 0)
        r.last = std::min(t.n_key, i + t.offset + t.window_right + 1);
    return r;
}

template <class real> const real *row(const attn_plugin_in &t, int64_t b, int64_t h, int64_t i)
{
    return static_cast<const real *>(t.data) + b * t.stride[0] + h * t.stride[1] + i * t.stride[2];
}

template <class real> real *row(const attn_plugin_out &t, int64_t b, int64_t h, int64_t i)
{
    return static_cast<real *>(t.data) + b * t.stride[0] + h * t.stride[1] + i * t.stride[2];
}

template <class real>
void one_query(const attn_plugin_call &t, int64_t b, int64_t h, int64_t i, std::vector<real> &o)
{
    const real none = -std::numeric_limits<real>::infinity();
    const int64_t g = h / (t.heads / t.kv_heads);
    const real *q = row<real>(t.q, b, h, i);
    real m = none, l = 0, s[block];
    const range keys = visible(t, i);
    std::fill(o.begin(), o.end(), real(0));
    for (int64_t j0 = keys.first; j0 < keys.last; j0 += block) {
        const int64_t n = std::min(block, keys.last - j0);
        real top = m;
        for (int64_t j = 0; j < n; j++) {
            const real *k = row<real>(t.k, b, g, j0 + j);
            s[j] = 0;
            for (int64_t c = 0; c < t.d_key; c++)
                s[j] += q[c * t.q.stride[3]] * k[c * t.k.stride[3]];
            s[j] *= real(t.scale);
            top = std::max(top, s[j]);
        }
        const real old = m == none ? real(0) : std::exp(m - top);
        l *= old;
        for (real &x : o)
            x *= old;
        for (int64_t j = 0; j < n; j++) {
            const real p = std::exp(s[j] - top), *v = row<real>(t.v, b, g, j0 + j);
            l += p;
            for (int64_t c = 0; c < t.d_value; c++)
                o[c] += p * v[c * t.v.stride[3]];
        }
        m = top;
    }
    real *out = row<real>(t.o, b, h, i);
    for (int64_t c = 0; c < t.d_value; c++)
        out[c * t.o.stride[3]] = l == 0 ? real(0) : o[c] / l; // not l > 0: a NaN stays one
    *row<real>(t.lse, b, h, i) = l == 0 ? none : m + std::log(l);
}

template <class real> int compute(const attn_plugin_call &t)
{
    std::vector<real> o(static_cast<size_t>(t.d_value));
    for (int64_t b = 0; b < t.batch; b++)
        for (int64_t h = 0; h < t.heads; h++)
            for (int64_t i = 0; i < t.n_query; i++)
                one_query<real>(t, b, h, i, o);
    return ATTN_PLUGIN_OK;
}

int forward(const attn_plugin_call *t)
{
    return t->dtype == ATTN_PLUGIN_IS_F64 ? compute<double>(*t) : compute<float>(*t);
}

} // namespace

extern "C" const attn_plugin *attn_plugin_get(void)
{
    static attn_plugin me = {};
    me.abi = ATTN_PLUGIN_ABI;
    me.struct_size = sizeof me;
    me.name = "cpp";
    me.claims = ATTN_CAP_F32 | ATTN_CAP_F64 | ATTN_CAP_GQA | ATTN_CAP_CROSS |
                ATTN_CAP_DV | ATTN_CAP_HARD | ATTN_CAP_STRIDES | ATTN_CAP_SCALE |
                ATTN_CAP_EMPTY | ATTN_CAP_BAND;
    me.block = block;
    me.forward = forward;
    return &me;
}
