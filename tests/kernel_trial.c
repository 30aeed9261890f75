/* The kernel without Python: passes over views of edge sizes, whose memory is as long as it must be and not longer, against
   slow loops in double. Exit code 1 and a line for the first difference. */
#include "kernel.c"
#include <stdio.h>
#include <stdlib.h>

static uint64_t state = 1;

static double drawn(void) { /* in [-1, 1) */
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) / 4503599627370496.0 - 1;
}

static void *many(int64_t number, size_t size) { return calloc((size_t)(number ? number : 1), size); }

static void filled(side *s, int64_t n, int64_t other, int64_t d, int wide, int unit) {
    void *matrix = many(n * d, wide ? 8 : 4);
    int64_t *order = many(n, 8), *first = many(n, 8), *last = many(n, 8), *block = many(2, 8);
    double *norm = many(n, 8);
    float *scale = many(n, 4);
    for (int64_t k = 0; k < n * d; k++)
        if (wide) ((double *)matrix)[k] = drawn();
        else ((float *)matrix)[k] = (float)drawn();
    for (int64_t k = 0; k < n; k++) {
        order[k] = n - 1 - k, first[k] = k * other / n, last[k] = (k + 1) * other / n;
        const void *row = row_of(matrix, wide, order[k], d);
        norm[k] = sqrt(paired(row, wide, row, wide, d, 0)), scale[k] = (float)(1 / norm[k]);
    }
    block[1] = n;
    *s = (side){matrix, order, norm, unit && !wide ? scale : NULL, NULL, first, last, block, 1, wide, unit, wide};
}

static void levels(threshold *of, int k, int64_t n, int number, double at) {
    of->levels[k] = number, of->step[k] = n + PAD;
    float *low = many(number * (n + PAD), 4), *high = many(number * (n + PAD), 4);
    double *level = many(number * n, 8);
    for (int l = 0; l < number; l++)
        for (int64_t i = 0; i < n; i++) {
            double x = at + l * 0.1;
            level[i * number + l] = x, low[l * of->step[k] + i] = (float)(x - 1e-3), high[l * of->step[k] + i] = (float)(x + 1e-3);
        }
    of->low[k] = low, of->high[k] = high, of->level[k] = level;
    of->above[k] = many(n * number, 8), of->ties[k] = many(n * number, 8);
}

/* Counts of dense double, taken off those of the kernel: what is left must be 0. */
static int differs(const view *v, const threshold *of, int64_t m, int64_t n) {
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            if (v->sides[0].first[i] <= j && j < v->sides[0].last[i]) continue;
            double x = exact(v, i, j);
            for (int k = 0; k < 2; k++)
                for (int l = 0; l < of->levels[k]; l++) {
                    int64_t at = (k ? j : i) * of->levels[k] + l;
                    of->above[k][at] -= x - of->level[k][at] > v->tie;
                }
        }
    int64_t left = 0;
    for (int k = 0; k < 2; k++)
        for (int64_t at = 0; at < (k ? n : m) * of->levels[k]; at++) left += of->above[k][at] != 0;
    return left != 0;
}

static int trial(int64_t m, int64_t n, int64_t d, int wide, int packed, int turn) {
    view v = {.size = sizeof v, .d = d, .blocks = 1, .tie = 1e-12, .metric = PRODUCT};
    filled(v.sides, m, n, d, wide, turn % 2), filled(v.sides + 1, n, m, d, wide, turn % 2);
    threshold of = {.size = sizeof of};
    int64_t chunk = packed ? (n + PANEL - 1) / PANEL * PANEL : PANEL;
    levels(&of, 0, m, 1 + turn % 3, 0.1), levels(&of, 1, n, turn % 4, 0.05);
    of.line = chunk + PAD, of.count = many(of.levels[1] * of.line, 4);
    const life *lives[] = {&cocos_life_threshold};
    void *arguments[] = {&of};
    float *left = packed ? many((m + WIDE - 1) / WIDE * WIDE * d, 4) : NULL, *right = packed ? many(chunk * d, 4) : NULL;
    if (packed) pack(&v, 0, 0, m, left), pack(&v, 1, 0, n, right);
    pass p = {.size = sizeof p, .view = &v, .part = {0, m, 0, n}, .left = left, .right = right, .life = lives, .of = arguments};
    p.number = 1, p.chunk = chunk, p.last = 1, p.patience = 2;
    p.strip = many(STRIP * d, 4), p.packed = many(chunk * d, 4), p.score = many(STRIP * WIDTH, 4);
    while (cocos_pass(&p)) continue;
    int bad = differs(&v, &of, m, n);
    if (bad) printf("%lld x %lld, d %lld, wide %d, packed %d\n", (long long)m, (long long)n, (long long)d, wide, packed);
    return bad; /* what it took is given back by the end of the program */
}

int main(void) {
    static const int64_t sizes[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 47, 48, 49, 50, 255, 257, 385};
    const int number = sizeof sizes / sizeof *sizes;
    for (int k = 0; k < 3 * number; k++) {
        int64_t m = sizes[k % number], n = sizes[(k * 7 + k / number) % number];
        if (trial(m, n, k % 23 ? 1 + k % 40 : DEEP + k % 3, k % 5 == 0, k % 2, k)) return 1;
    }
    return 0;
}
