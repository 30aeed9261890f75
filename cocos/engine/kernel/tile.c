/* Functions that read a tile of float32 scores once, while it is in the cache.

   A tile is (blocks, m, n) scores with a row stride, of whole batches or of a part of one; -infinity for pairs that are not
   negatives. Arrays of rows have blocks * m elements and arrays of columns blocks * n; several lines of one array are `step`
   elements apart. Arrays of columns are NULL where only the rows are queries. The loops are plain, so that compilers vectorise
   them; `omp simd` lets them add up sums in any order. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define CHUNK 64  /* rows whose sums of columns are added in float32, and columns between two looks for listed scores */
#define WIDTH 256 /* columns whose sums stay in the first-level cache */
#define MAGIC 12582912.0f /* 1.5 * 2^23: adding and subtracting it rounds to an integer */
#define LEAST -126.0f     /* smallest exponent of a normal float32 number */

INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* 2^x for -126 <= x <= 126; relative error below EXP2 of bounds.py (minimax polynomial). */
INLINE float power(float x) {
    float whole = (x + MAGIC) - MAGIC, f = x - whole, p = 1.327649858e-03f;
    p = p * f + 9.675538993e-03f, p = p * f + 5.550713087e-02f, p = p * f + 2.402211977e-01f;
    p = p * f + 6.931469674e-01f, p = p * f + 1.000000072e+00f;
    uint32_t bits, exponent = (uint32_t)(int32_t)whole << 23;
    memcpy(&bits, &p, 4), bits += exponent, memcpy(&p, &bits, 4);
    return p;
}

/* Set scores of pairs that are not negatives, the columns from first[i] to below last[i], to -infinity; `column` is the number
   of the first column of the tile. */
void cocos_mask(float *score, int64_t blocks, int64_t m, int64_t n, int64_t stride, const int64_t *first, const int64_t *last,
                int64_t column) {
    for (int64_t i = 0; i < blocks * m; i++) {
        const int64_t from = column + i / m * n, low = first[i] - from, high = smaller(last[i] - from, n);
        for (int64_t j = low < 0 ? 0 : low; j < high; j++) score[i * stride + j] = -INFINITY;
    }
}

/* Raise `row_top` and `column_top` to the largest scores. */
void cocos_tops(const float *score, int64_t blocks, int64_t m, int64_t n, int64_t stride, float *row_top, float *column_top) {
    for (int64_t i = 0; i < blocks * m; i++) {
        const float *x = score + i * stride;
        float top = row_top[i];
#pragma omp simd reduction(max : top)
        for (int64_t j = 0; j < n; j++) top = x[j] > top ? x[j] : top;
        row_top[i] = top;
        if (!column_top) continue;
        float *tops = column_top + i / m * n;
#pragma omp simd
        for (int64_t j = 0; j < n; j++) tops[j] = x[j] > tops[j] ? x[j] : tops[j];
    }
}

/* Sums of some rows and columns: see cocos_sums. `apart`: rows and columns have references of their own. */
INLINE void chunk_sums(const float *score, int64_t rows, int64_t n, int64_t stride, float scale, const float *row_reference,
                       const float *column_reference, double *row, int64_t row_step, double *column, int64_t column_step,
                       int apart) {
    float under[3][WIDTH];
    memset(under, 0, sizeof under);
    for (int64_t i = 0; i < rows; i++) {
        const float *x = score + i * stride, reference = row_reference[i];
        float first = 0, second = 0, third = 0;
#pragma omp simd reduction(+ : first, second, third)
        for (int64_t j = 0; j < n; j++) {
            float e = x[j] * scale - reference;
            e = e > LEAST ? e : LEAST;
            float p = power(e);
            first += p, second += e * p, third += p * p;
            if (column) {
                if (apart) {
                    e = x[j] * scale - column_reference[j];
                    e = e > LEAST ? e : LEAST, p = power(e);
                }
                under[0][j] += p, under[1][j] += e * p, under[2][j] += p * p;
            }
        }
        row[i] += first, row[row_step + i] += second, row[2 * row_step + i] += third;
    }
    for (int k = 0; column && k < 3; k++)
        for (int64_t j = 0; j < n; j++) column[k * column_step + j] += under[k][j];
}

/* Add Σ p, Σ e p and Σ p² with e = scale * score - reference and p = 2^e to (3, .) sums. */
void cocos_sums(const float *score, int64_t blocks, int64_t m, int64_t n, int64_t stride, float scale,
                const float *row_reference, double *row, int64_t row_step, const float *column_reference, double *column,
                int64_t column_step, int64_t apart) {
    for (int64_t b = 0; b < blocks; b++)
        for (int64_t i = 0; i < m; i += CHUNK)
            for (int64_t j = 0; j < n; j += WIDTH) {
                const int64_t rows = smaller(CHUNK, m - i), wide = smaller(WIDTH, n - j), r = b * m + i, c = b * n + j;
                const float *from = score + r * stride + j, *beside = row_reference + r;
                if (!column) chunk_sums(from, rows, wide, stride, scale, beside, 0, row + r, row_step, 0, 0, 0);
                else if (apart)
                    chunk_sums(from, rows, wide, stride, scale, beside, column_reference + c, row + r, row_step, column + c,
                               column_step, 1);
                else
                    chunk_sums(from, rows, wide, stride, scale, beside, column_reference + c, row + r, row_step, column + c,
                               column_step, 0);
            }
}

INLINE void chunk_shares(const float *score, int64_t rows, int64_t n, int64_t stride, float scale, const float *row_reference,
                         const float *column_reference, const float *row_ends, int64_t ends_step, int32_t *row_number,
                         double *row_mass, const float *column_ends, int64_t column_ends_step, int32_t *column_number,
                         double *column_mass, int64_t row_step, int64_t column_step, int apart, int two) {
    float under[WIDTH];
    int32_t above[4][WIDTH];
    memset(under, 0, sizeof under), memset(above, 0, sizeof above);
    const float *e0 = column_ends, *e1 = e0 + column_ends_step, *e2 = e1 + column_ends_step, *e3 = e2 + column_ends_step;
    for (int64_t i = 0; i < rows; i++) {
        const float *x = score + i * stride, reference = row_reference[i], a = row_ends[i], b = row_ends[ends_step + i],
                    c = row_ends[2 * ends_step + i], d = row_ends[3 * ends_step + i];
        int32_t na = 0, nb = 0, nc = 0, nd = 0;
        float mass = 0;
#pragma omp simd reduction(+ : na, nb, nc, nd, mass)
        for (int64_t j = 0; j < n; j++) {
            float e = x[j] * scale - reference;
            e = e > LEAST ? e : LEAST;
            float p = power(e);
            na += x[j] > a, nb += x[j] > b, nc += x[j] > c, nd += x[j] > d, mass += x[j] > a ? p : 0;
            if (two) {
                if (apart) {
                    e = x[j] * scale - column_reference[j];
                    e = e > LEAST ? e : LEAST, p = power(e);
                }
                above[0][j] += x[j] > e0[j], above[1][j] += x[j] > e1[j], above[2][j] += x[j] > e2[j];
                above[3][j] += x[j] > e3[j], under[j] += x[j] > e0[j] ? p : 0;
            }
        }
        row_number[i] += na, row_number[row_step + i] += nb, row_number[2 * row_step + i] += nc;
        row_number[3 * row_step + i] += nd, row_mass[i] += mass;
    }
    for (int k = 0; two && k < 4; k++)
        for (int64_t j = 0; j < n; j++) column_number[k * column_step + j] += above[k][j];
    for (int64_t j = 0; two && j < n; j++) column_mass[j] += under[j];
}

/* Add the numbers of scores above four ends of each row and column, (4, .), and Σ 2^(scale * score - reference) of those above
   the first end. */
void cocos_shares(const float *score, int64_t blocks, int64_t m, int64_t n, int64_t stride, float scale,
                  const float *row_reference, const float *row_ends, int64_t row_ends_step, int32_t *row_number, int64_t row_step,
                  double *row_mass, const float *column_reference, const float *column_ends, int64_t column_ends_step,
                  int32_t *column_number, int64_t column_step, double *column_mass, int64_t apart) {
    for (int64_t b = 0; b < blocks; b++)
        for (int64_t i = 0; i < m; i += CHUNK)
            for (int64_t j = 0; j < n; j += WIDTH) {
                const int64_t rows = smaller(CHUNK, m - i), wide = smaller(WIDTH, n - j), r = b * m + i, c = b * n + j;
                const float *from = score + r * stride + j, *own = row_reference + r, *ends = row_ends + r;
#define SHARES(other, limits, number, mass, apart, two)                                                                         \
    chunk_shares(from, rows, wide, stride, scale, own, other, ends, row_ends_step, row_number + r, row_mass + r, limits,        \
                 column_ends_step, number, mass, row_step, column_step, apart, two)
                if (!column_ends) SHARES(0, 0, 0, 0, 0, 0);
                else if (apart) SHARES(column_reference + c, column_ends + c, column_number + c, column_mass + c, 1, 1);
                else SHARES(0, column_ends + c, column_number + c, column_mass + c, 0, 1);
#undef SHARES
            }
}

INLINE int64_t chunk_counted(const float *x, int64_t n, float low, float high, const float *lows, const float *highs,
                             int64_t *number, int32_t *numbers, int32_t row_at, int32_t column_at, int32_t *row,
                             int32_t *column, float *listed, int8_t *side, int64_t found, int64_t room) {
    int32_t own = 0, any = 0;
#pragma omp simd reduction(+ : own) reduction(| : any)
    for (int64_t j = 0; j < n; j++) {
        own += x[j] > high, any |= (x[j] > low) & !(x[j] > high);
        if (lows) numbers[j] += x[j] > highs[j], any |= (x[j] > lows[j]) & !(x[j] > highs[j]);
    }
    *number += own;
    for (int64_t j = 0; any && j < n; j++) {
        const int mine = ((x[j] > low) & !(x[j] > high)) | (lows ? ((x[j] > lows[j]) & !(x[j] > highs[j])) << 1 : 0);
        if (found < room) row[found] = row_at, column[found] = column_at + (int32_t)j, listed[found] = x[j], side[found] = (int8_t)mine;
        found += mine > 0;
    }
    return found;
}

/* Add the numbers of scores above `high` of each row and column, and list the scores between `low` and `high`: row and column in
   the tile, score, and side (1 of its row, 2 of its column, 3 of both). Returns how many there are; only `room` are listed. */
int64_t cocos_counted(const float *score, int64_t blocks, int64_t m, int64_t n, int64_t stride, const float *row_low,
                      const float *row_high, int64_t *row_number, const float *column_low, const float *column_high,
                      int32_t *column_number, int32_t *row, int32_t *column, float *listed, int8_t *side, int64_t room) {
    int64_t found = 0;
    for (int64_t i = 0; i < blocks * m; i++)
        for (int64_t j = 0; j < n; j += CHUNK) {
            const int64_t wide = smaller(CHUNK, n - j), c = i / m * n + j;
            const float *x = score + i * stride + j;
            if (column_low)
                found = chunk_counted(x, wide, row_low[i], row_high[i], column_low + c, column_high + c, row_number + i,
                                      column_number + c, (int32_t)i, (int32_t)c, row, column, listed, side, found, room);
            else
                found = chunk_counted(x, wide, row_low[i], row_high[i], 0, 0, row_number + i, 0, (int32_t)i, (int32_t)c, row,
                                      column, listed, side, found, room);
        }
    return found;
}

/* Float64 inner products of pairs of float32 rows; four sums at a time, since each addition waits for the last one. */
void cocos_dots(const float *left, const int64_t *left_row, const float *right, const int64_t *right_row, int64_t number,
                int64_t d, double *dot) {
    const int64_t part = d / 4;
    for (int64_t i = 0; i < number; i++) {
        const float *x = left + left_row[i] * d, *y = right + right_row[i] * d;
        double a = 0, b = 0, c = 0, e = 0;
        for (int64_t k = 0; i + 1 < number && k < d; k += 16)
            __builtin_prefetch(left + left_row[i + 1] * d + k), __builtin_prefetch(right + right_row[i + 1] * d + k);
#pragma omp simd reduction(+ : a, b, c, e)
        for (int64_t k = 0; k < part; k++) {
            a += (double)x[k] * y[k], b += (double)x[part + k] * y[part + k];
            c += (double)x[2 * part + k] * y[2 * part + k], e += (double)x[3 * part + k] * y[3 * part + k];
        }
        for (int64_t k = 4 * part; k < d; k++) a += (double)x[k] * y[k];
        dot[i] = a + b + c + e;
    }
}
