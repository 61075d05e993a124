// The same in C++:
//      c++ call.cpp $(pkg-config --cflags --libs attnlab)
#include <optimized/simple.h>

#include <cstdio>
#include <vector>

int main()
{
    const int heads = 2, length = 100, d = 16, n = heads * length * d;
    std::vector<float> q(n), k(n), v(n), o(n), lse(heads * length);
    const attn_simple shape = {1, heads, heads, length, length, d, d, 0};
    char error[ATTN_SIMPLE_ERROR];
    for (int i = 0; i < n; i++) {
        q[i] = float(i % 7) - 3;
        k[i] = float(i % 5) - 2;
        v[i] = float(i / d % length);
    }
    if (attn_simple_forward("tiled", "causal(br)", &shape, q.data(), k.data(), v.data(), o.data(),
                            lse.data(), error) != 0) {
        std::fprintf(stderr, "%s\n", error);
        return 1;
    }
    std::printf("o[0] %.6f, o of the last row %.6f, its lse %.6f\n", o.front(), o.back(),
                lse.back());
}
