/* One tile of scores, seen once: sums of exponentials, counts above levels, sigmoids, candidates above a limit.

   A tile is float32, m rows of n columns, rows ld apart; n is a multiple of 16 and a pair that takes no part is -infinity.
   Everything is written with the vectors of GCC and Clang, so that one text serves every processor. Built by cocos/tiles/_build.py; cocos/tiles/_plain.py
   says the same in torch. */
#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

#ifdef __AVX512F__
#define WIDE 16
#else
#define WIDE 8
#endif
#define STRIP 256 /* rows whose columns are summed together: the same for any number of threads */
#define CHUNK 64 /* rows after which the float32 sums of the columns go into float64 */
#define AT_ONCE(spread) ((spread) ? 4 : 8) /* rows that share a visit of the columns */
#define INLINE static inline __attribute__((always_inline))

#define FAR 24 /* binary exponent beyond which a slope may be a little off */
#define MAGIC 12582912.0f /* added and taken off, it rounds to a whole number */

typedef float vf __attribute__((vector_size(4 * WIDE), aligned(4)));
typedef int32_t vi __attribute__((vector_size(4 * WIDE), aligned(4)));

#ifdef __AVX512F__
INLINE vf all(float x) { return (vf)_mm512_set1_ps(x); }
#elif defined(__AVX__)
INLINE vf all(float x) { return (vf)_mm256_set1_ps(x); }
#else
INLINE vf all(float x) { return (vf){0} + x; }
#endif
INLINE vf load(const float *p) { return *(const vf *)p; }
INLINE void store(float *p, vf x) { *(vf *)p = x; }
INLINE vf pick(vi mask, vf a, vf b) { return (vf)(((vi)a & mask) | ((vi)b & ~mask)); }
#ifdef __AVX512F__
INLINE vf larger(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); } /* b where a is no number */
INLINE vf smaller(vf a, vf b) { return (vf)_mm512_min_ps((__m512)a, (__m512)b); }
INLINE vf scaled(vf p, vf whole) { return (vf)_mm512_scalef_ps((__m512)p, (__m512)whole); }
#else
INLINE vf larger(vf a, vf b) { return pick(a > b, a, b); }
INLINE vf smaller(vf a, vf b) { return pick(a < b, a, b); }
INLINE vf scaled(vf p, vf whole) { return (vf)((vi)p + ((vi)(whole + MAGIC) << 23)); }
#endif

INLINE double total(vf x) {
    double sum = 0;
    for (int k = 0; k < WIDE; k++) sum += x[k];
    return sum;
}

INLINE float more(float a, float b) { return a > b ? a : b; }

INLINE float largest(vf x) {
    float top = x[0];
    for (int k = 1; k < WIDE; k++) top = more(x[k], top);
    return top;
}

INLINE unsigned bits(vi mask) {
#ifdef __AVX512F__
    return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask);
#elif defined(__AVX2__)
    return (unsigned)_mm256_movemask_ps((__m256)mask);
#else
    unsigned found = 0;
    for (int k = 0; k < WIDE; k++) found |= (unsigned)(mask[k] & 1) << k;
    return found;
#endif
}

INLINE unsigned over(vf a, vf b) {
#ifdef __AVX512F__
    return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GT_OQ);
#else
    return bits(a > b);
#endif
}

/* 2^(whole + f) for whole numbers up to 126 in size and |f| <= 1/2, relative error below 2e-7 (minimax polynomial). */
INLINE vf risen(vf whole, vf f) {
    vf p = all(1.327649858e-03f);
    p = p * f + 9.675538993e-03f;
    p = p * f + 5.550713087e-02f;
    p = p * f + 2.402211977e-01f;
    p = p * f + 6.931469674e-01f;
    p = p * f + 1.000000072e+00f;
    return scaled(p, whole);
}

INLINE vf power(vf x) {
    vf whole = (x + MAGIC) - MAGIC;
    return risen(whole, x - whole);
}

/* Squares of distances, negated, become distances, negated. */
void cocos_distances(float *tile, int m, int n, int64_t ld) {
    for (int i = 0; i < m; i++) {
        float *row = tile + i * ld;
        for (int j = 0; j < n; j++) row[j] = -sqrtf(row[j] < 0 ? -row[j] : 0);
    }
}

INLINE void top_rows(int count, const float *tile, int n, int64_t ld, float *row_top, float *column_top) {
    vf top[8];
    for (int r = 0; r < count; r++) top[r] = all(-INFINITY);
    for (int j = 0; j < n; j += WIDE) {
        vf column = column_top ? load(column_top + j) : all(0);
#pragma GCC unroll 8
        for (int r = 0; r < count; r++) {
            vf x = load(tile + r * ld + j);
            top[r] = larger(x, top[r]), column = larger(x, column);
        }
        if (column_top) store(column_top + j, column);
    }
    for (int r = 0; r < count; r++) row_top[r] = largest(top[r]);
}

/* Largest score of each row and each column. */
void cocos_tops(const float *tile, int m, int n, int64_t ld, float *row_top, float *column_top) {
    for (int j = 0; column_top && j < n; j++) column_top[j] = -INFINITY;
    int i = 0;
    for (; i + 8 <= m; i += 8) top_rows(8, tile + i * ld, n, ld, row_top + i, column_top);
    for (; i < m; i++) top_rows(1, tile + i * ld, n, ld, row_top + i, column_top);
}

INLINE void some_rows(int count, const float *tile, int n, int64_t ld, float scale, const float *row_ref,
                      const float *column_ref, const float *row_floor, const float *column_floor, int wide, int spread,
                      int floors, int columns, double *rows, int64_t step, float *row_top, float *work, float *column_top) {
    vf first[8], second[8], third[8], top[8];
    vf none = all(0.0f), low = all(-126.0f), lowest = all(-126.0f / scale);
    float *work_1 = work + n, *work_2 = work + 2 * n;
    for (int r = 0; r < count; r++) first[r] = second[r] = third[r] = none, top[r] = all(-INFINITY);
    for (int j = 0; j < n; j += WIDE) {
        vf c0 = none, c1 = none, c2 = none, ct = none, shift = none, floor = none;
        if (columns) {
            c0 = load(work + j), ct = load(column_top + j);
            if (spread) c1 = load(work_1 + j), c2 = load(work_2 + j);
            if (wide) shift = load(column_ref + j);
            if (floors) floor = load(column_floor + j);
        }
#pragma GCC unroll 8
        for (int r = 0; r < count; r++) {
            vf x = load(tile + r * ld + j), whole, f;
            top[r] = larger(x, top[r]);
            vf own = wide ? larger(x * scale - row_ref[r], low) : larger(x, lowest);
            if (wide) whole = (own + MAGIC) - MAGIC, f = own - whole;
            else whole = (own * scale + MAGIC) - MAGIC, f = own * scale - whole;
            vf e = risen(whole, f), kept = e;
            if (floors) kept = (vf)((vi)e & (x > all(row_floor[r])));
            first[r] += kept;
            if (spread) second[r] += kept * (whole + f), third[r] += kept * kept;
            if (columns) {
                ct = larger(x, ct);
                if (wide) {
                    own = larger(x * scale - shift, low);
                    whole = (own + MAGIC) - MAGIC, f = own - whole, e = risen(whole, f);
                }
                if (wide || floors) kept = floors ? (vf)((vi)e & (x > floor)) : e;
                c0 += kept;
                if (spread) c1 += kept * (whole + f), c2 += kept * kept;
            }
        }
        if (columns) {
            store(work + j, c0), store(column_top + j, ct);
            if (spread) store(work_1 + j, c1), store(work_2 + j, c2);
        }
    }
    for (int r = 0; r < count; r++) {
        rows[r] += total(first[r]);
        if (spread) rows[r + step] += total(second[r]), rows[r + 2 * step] += total(third[r]);
        row_top[r] = largest(top[r]);
    }
}

INLINE void strip(const float *tile, int m, int n, int64_t ld, float scale, const float *row_ref, const float *column_ref,
                  const float *row_floor, const float *column_floor, int wide, int spread, int floors, int columns,
                  double *rows, int64_t step, float *row_top, double *column, int64_t line, float *column_top,
                  float *work) {
    int lines = spread ? 3 : 1;
    if (columns) {
        for (int k = 0; k < lines; k++) memset(column + k * line, 0, sizeof(double) * n);
        for (int j = 0; j < n; j++) column_top[j] = -INFINITY;
    }
    for (int from = 0; from < m; from += CHUNK) {
        int to = from + CHUNK < m ? from + CHUNK : m, i = from;
        if (columns) memset(work, 0, sizeof(float) * lines * n);
        for (; i + AT_ONCE(spread) <= to; i += AT_ONCE(spread))
            some_rows(AT_ONCE(spread), tile + i * ld, n, ld, scale, row_ref + i, column_ref, row_floor + i, column_floor, wide,
                      spread, floors, columns, rows + i, step, row_top + i, work, column_top);
        for (; i < to; i++)
            some_rows(1, tile + i * ld, n, ld, scale, row_ref + i, column_ref, row_floor + i, column_floor, wide, spread,
                      floors, columns, rows + i, step, row_top + i, work, column_top);
        for (int k = 0; columns && k < lines; k++)
            for (int j = 0; j < n; j++) column[k * line + j] += work[k * n + j];
    }
}

/* `strip`, which is made once for each of its kinds. */
#define KIND(w, s, f, c)                                                                                                 \
    if (wide == w && spread == s && floors == f && columns == c)                                                         \
        strip(tile, m, n, ld, scale, row_ref, column_ref, row_floor, column_floor, w, s, f, c, rows, step, row_top, column,  \
              line, column_top, work);
#define KINDS(f) KIND(0, 0, f, 0) KIND(0, 0, f, 1) KIND(0, 1, f, 0) KIND(0, 1, f, 1)                                     \
    KIND(1, 0, f, 0) KIND(1, 0, f, 1) KIND(1, 1, f, 0) KIND(1, 1, f, 1)
static void some_strip(const float *tile, int m, int n, int64_t ld, float scale, const float *row_ref, const float *column_ref,
                       const float *row_floor, const float *column_floor, int wide, int spread, int floors, int columns,
                       double *rows, int64_t step, float *row_top, double *column, int64_t line, float *column_top,
                       float *work) {
    KINDS(0) KINDS(1)
}

/* Add to the sums of each row and column: of 2^z, z 2^z and 4^z with z = scale x - ref, over the scores above a floor of
   their row or column, or all. `rows` is (3, step), of which the first m of each line are added to. What is known of the
   columns of each strip of STRIP rows goes into `column`, (strips, 3, n), and `column_top`, (strips, n), for cocos_settle.
   With refs, z is clamped at -126; without, no |z| is above 126, and -infinity counts as -126. */
void cocos_sums(const float *tile, int m, int n, int64_t ld, float scale, const float *row_ref, const float *column_ref,
                const float *row_floor, const float *column_floor, int wide, int spread, int floors, int columns,
                double *rows, int64_t step, float *row_top, double *column, float *column_top, float *work) {
    for (int i = 0; i < m; i += STRIP) {
        int k = i + STRIP < m ? STRIP : m - i;
        some_strip(tile + i * ld, k, n, ld, scale, row_ref + i, column_ref, row_floor + i, column_floor, wide, spread, floors,
                   columns, rows + i, step, row_top + i, column, n, column_top, work);
        column += 3 * n, column_top += n;
    }
}

/* Scores above which a negative may count: of the exponents of the denominators, log2(total + known + others) + offset,
   over the scale, less what a score may be off. */
static void limits(int n, float scale, float room, const double *total, const double *known, const double *others,
                   const double *offset, float *limit) {
    for (int k = 0; k < n; k++) {
        double sum = total[k] + (known ? known[k] : 0) + others[k];
        float score = (float)((log2f((float)sum) + offset[k]) / scale);
        limit[k] = score - room - 1e-6f * fabsf(score);
    }
}

/* When a tile is done: add what each strip said of the columns to `column_total`, (3, column_step), in the order of the
   strips, of which the largest tops end up in the first; raise the tops of the state; and set the limits anew, of rows
   (fresh 1), columns (2), both (3) or none. */
void cocos_settle(int m, int n, int there, int strips, int lines, float scale, float room, int fresh,
                  const double *row_total, const float *row_top, float *row_most, const double *row_others,
                  const double *row_offset, float *row_limit, const double *column, float *column_top,
                  double *column_total, int64_t column_step, float *column_most, const double *column_known,
                  const double *column_others, const double *column_offset, float *column_limit) {
    for (int i = 0; i < m; i++) row_most[i] = more(row_most[i], row_top[i]);
    if (fresh & 1) limits(m, scale, room, row_total, 0, row_others, row_offset, row_limit);
    if (!column) return;
    for (int k = 0; k < strips; k++) {
        for (int line = 0; line < lines; line++)
            for (int j = 0; j < there; j++) column_total[line * column_step + j] += column[(int64_t)(3 * k + line) * n + j];
        for (int j = 0; k && j < n; j++) column_top[j] = more(column_top[j], column_top[(int64_t)k * n + j]);
    }
    for (int j = 0; j < there; j++) column_most[j] = more(column_most[j], column_top[j]);
    if (fresh & 2)
        limits(there, scale, room, column_total, column_known, column_others, column_offset, column_limit);
}

INLINE double inner(const float *a, const float *b, int64_t d) {
    double part[WIDE] = {0}, sum = 0;
    int64_t j = 0;
    for (; j + WIDE <= d; j += WIDE)
        for (int lane = 0; lane < WIDE; lane++) part[lane] += (double)a[j + lane] * b[j + lane];
    for (; j < d; j++) sum += (double)a[j] * b[j];
    for (int lane = 0; lane < WIDE; lane++) sum += part[lane];
    return sum;
}

/* Inner products in float64 of row `of[k]` of one matrix and row `with[k]` of another; rows are d long. Of each with itself
   as well, unless there is no room for them. */
void cocos_dots(const float *left, const float *right, const int64_t *of, const int64_t *with, int64_t number, int64_t d,
                double *product, double *left_square, double *right_square) {
    for (int64_t k = 0; k < number; k++) {
        const float *a = left + of[k] * d, *b = right + with[k] * d;
        product[k] = inner(a, b, d);
        if (left_square) left_square[k] = inner(a, a, d), right_square[k] = inner(b, b, d);
    }
}

/* Squared distances in float64 of row `of[k]` of one matrix and row `with[k]` of another; rows are d long. */
void cocos_gaps(const float *left, const float *right, const int64_t *of, const int64_t *with, int64_t number, int64_t d,
                double *square) {
    for (int64_t k = 0; k < number; k++) {
        const float *a = left + of[k] * d, *b = right + with[k] * d;
        double part[WIDE] = {0}, sum = 0;
        int64_t j = 0;
        for (; j + WIDE <= d; j += WIDE)
            for (int lane = 0; lane < WIDE; lane++) {
                double gap = (double)a[j + lane] - b[j + lane];
                part[lane] += gap * gap;
            }
        for (; j < d; j++) sum += ((double)a[j] - b[j]) * ((double)a[j] - b[j]);
        for (int lane = 0; lane < WIDE; lane++) sum += part[lane];
        square[k] = sum;
    }
}

/* Scores above the limit of their row (sign 1), of their column (2) or both (3): place, counted from the starts, score and
   sign of each; their number, which is above `room` where not all of them were written. Tops say where there is nothing to find. */
int64_t cocos_above(const float *tile, int m, int n, int64_t ld, const float *row_limit, const float *row_top,
                    const float *column_limit, const float *column_top, int row_start, int column_start, int32_t *at,
                    int32_t *of, float *score, int8_t *sign, int64_t room) {
    int flagged[n / WIDE + 1], number = 0;
    float least = INFINITY;
    for (int j = 0; column_limit && j < n; j += WIDE) {
        vf limit = load(column_limit + j);
        unsigned reached = bits(load(column_top + j) > limit);
        if (reached) flagged[number++] = j;
        for (; reached; reached &= reached - 1) least = fminf(least, limit[__builtin_ctz(reached)]);
    }
    int64_t found = 0;
    for (int i = 0; i < m; i++) {
        const float *row = tile + i * ld;
        int whole = row_top[i] > row_limit[i];
        if (!whole && !(row_top[i] > least)) continue;
        for (int k = 0; k < (whole ? n / WIDE : number); k++) {
            int j = whole ? k * WIDE : flagged[k];
            vf x = load(row + j);
            unsigned by_row = bits(x > row_limit[i]), by_column = column_limit ? bits(x > load(column_limit + j)) : 0;
            for (unsigned left = by_row | by_column; left; left &= left - 1, found++) {
                if (found >= room) continue;
                int lane = __builtin_ctz(left);
                at[found] = row_start + i, of[found] = column_start + j + lane, score[found] = row[j + lane];
                sign[found] = (int8_t)((by_row >> lane & 1) | (by_column >> lane & 1) << 1);
            }
        }
    }
    return found;
}

typedef struct {
    int32_t *at, *of;
    int8_t *level, *sign;
    float *score; /* if it is wanted */
    int row_start, column_start;
    int64_t room, found;
} places;

INLINE void between(places *to, unsigned left, const float *row, int i, int j, int k, int sign) {
    for (; left; left &= left - 1, to->found++)
        if (to->found < to->room) {
            int column = j + __builtin_ctz(left);
            to->at[to->found] = to->row_start + i, to->of[to->found] = to->column_start + column;
            to->level[to->found] = (int8_t)k, to->sign[to->found] = (int8_t)sign;
            if (to->score) to->score[to->found] = row[column];
        }
}

/* Where a score of a row may be above `first` or, if there are any, above the level of its column: the starts of stretches of
   STRETCH columns, of which the last may be shorter. */
#define STRETCH (4 * WIDE)
static __attribute__((noinline)) int reached(const float *row, const float *low, float first, int n, int *where) {
    vf bound = all(first);
    int number = 0, j = 0;
#define HIGHER(k) over(load(row + j + (k)*WIDE), low ? smaller(load(low + j + (k)*WIDE), bound) : bound)
    for (; j + STRETCH <= n; j += STRETCH) {
        where[number] = j;
        number += (HIGHER(0) | HIGHER(1) | HIGHER(2) | HIGHER(3)) != 0;
    }
    unsigned any = 0;
    where[number] = j;
    for (; j < n; j += WIDE) any |= HIGHER(0);
    return number + (any != 0);
}

/* The same where the levels of every owner ascend: each score is met once, and most are below the first level of both. */
static void ascending(const float *tile, int m, int n, int64_t ld, int row_levels, const float *row_low,
                      const float *row_high, int64_t *row_count, int column_levels, const float *column_low,
                      const float *column_high, int64_t line, int32_t *column_count, places *to) {
    int where[n / STRETCH + 1];
    for (int i = 0; i < m; i++) {
        const float *row = tile + i * ld, *low = row_low + (int64_t)i * row_levels, *high = row_high + (int64_t)i * row_levels;
        int64_t *count = row_count + (int64_t)i * row_levels;
        for (int k = 0; k < row_levels; k++) count[k] = 0;
        int number = reached(row, column_levels ? column_low : 0, low[0], n, where);
        for (int f = 0; f < number; f++)
            for (int j = where[f]; j < where[f] + STRETCH && j < n; j += WIDE) {
                vf x = load(row + j);
                unsigned reach;
                for (int k = 0; k < row_levels && (reach = over(x, all(low[k]))); k++) {
                    unsigned above = over(x, all(high[k]));
                    count[k] += __builtin_popcount(above);
                    between(to, reach & ~above, row, i, j, k, 0);
                }
                for (int k = 0; k < column_levels; k++) {
                    if (!(reach = over(x, load(column_low + k * line + j)))) break;
                    vi above = x > load(column_high + k * line + j);
                    *(vi *)(column_count + (int64_t)k * n + j) -= above;
                    between(to, reach & ~bits(above), row, i, j, k, 1);
                }
            }
    }
}

/* Number of scores above the upper end of each level, and the places of those between its ends: levels of the rows are
   (m, row_levels), of the columns (column_levels, n), counts likewise. Without tops the levels of each must ascend.
   Returns the number of places, as cocos_above. */
int64_t cocos_levels(const float *tile, int m, int n, int64_t ld, int row_levels, const float *row_low,
                     const float *row_high, const float *row_top, int64_t *row_count, int column_levels,
                     const float *column_low, const float *column_high, const float *column_top, int32_t *column_count,
                     int32_t *at, int32_t *of, int8_t *level, int8_t *sign, int row_start, int64_t room) {
    if (column_levels) memset(column_count, 0, sizeof(int32_t) * column_levels * n);
    if (!row_top) {
        places to = {at, of, level, sign, 0, row_start, 0, room, 0};
        ascending(tile, m, n, ld, row_levels, row_low, row_high, row_count, column_levels, column_low, column_high, n,
                  column_count, &to);
        return to.found;
    }
    int flagged[n / WIDE + 1], number = 0;
    int64_t found = 0;
    float least = INFINITY;
    for (int j = 0; column_levels && j < n; j += WIDE) {
        int any = 0;
        for (int k = 0; k < column_levels; k++) {
            vf low = load(column_low + (int64_t)k * n + j);
            unsigned reached = bits(load(column_top + j) > low);
            any |= reached != 0;
            for (; reached; reached &= reached - 1) least = fminf(least, low[__builtin_ctz(reached)]);
        }
        if (any) flagged[number++] = j;
    }
    for (int i = 0; i < m; i++) {
        const float *row = tile + i * ld;
        for (int k = 0; k < row_levels; k++) {
            float low = row_low[(int64_t)i * row_levels + k], high = row_high[(int64_t)i * row_levels + k];
            row_count[(int64_t)i * row_levels + k] = 0;
            if (!(row_top[i] > low)) continue;
            vi above = (vi)all(0), between = above;
            for (int j = 0; j < n; j += WIDE) {
                vf x = load(row + j);
                above -= x > high;
                between |= (x > low) & ~(x > high);
            }
            for (int lane = 0; lane < WIDE; lane++) row_count[(int64_t)i * row_levels + k] += above[lane];
            if (!bits(between)) continue;
            for (int j = 0; j < n; j += WIDE) {
                vf x = load(row + j);
                for (unsigned left = bits((x > low) & ~(x > high)); left; left &= left - 1, found++)
                    if (found < room)
                        at[found] = row_start + i, of[found] = j + __builtin_ctz(left), level[found] = (int8_t)k, sign[found] = 0;
            }
        }
        for (int k = 0; row_top[i] > least && k < column_levels; k++)
            for (int f = 0; f < number; f++) {
                int j = flagged[f];
                const float *high = column_high + (int64_t)k * n + j;
                int32_t *count = column_count + (int64_t)k * n + j;
                vf x = load(row + j);
                vi above = x > load(high), between = (x > load(column_low + (int64_t)k * n + j)) & ~above;
                *(vi *)count -= above;
                for (unsigned left = bits(between); left; left &= left - 1, found++)
                    if (found < room)
                        at[found] = row_start + i, of[found] = j + __builtin_ctz(left), level[found] = (int8_t)k, sign[found] = 1;
            }
    }
    return found;
}

INLINE vf sigmoid(vf level, vf x, float scale, vf *slope) {
    vf z = (level - x) * scale, end = all(126.0f);
    vf e = power(-larger(-larger(z, -end), -end));
    vf s = 1.0f / (1.0f + e);
    *slope = e * s * s;
    return s;
}

/* Sigmoids of the scores about each level, s = 1 / (1 + 2^(scale (level - x))): their sums in `above`, those of s (1 - s)
   in `slope`, the largest of these in `steepest`; levels as in cocos_levels. A score `reach` or more below all levels of
   its owner is left out. */
void cocos_sigmoids(const float *tile, int m, int n, int64_t ld, float scale, float reach, int row_levels,
                    const float *row_level, double *row_above, double *row_slope, float *row_steepest, int column_levels,
                    const float *column_level, int64_t line, double *column_above, double *column_slope, float *column_steepest,
                    float *work) {
    int64_t size = (int64_t)column_levels * n;
    float *lowest = work + 2 * size;
    int flagged[n / WIDE + 1];
    if (size) { /* where there are no levels there may be no memory either, not even for nothing */
        memset(column_above, 0, sizeof(double) * size);
        memset(column_slope, 0, sizeof(double) * size);
        memset(column_steepest, 0, sizeof(float) * size);
    }
    for (int j = 0; column_levels && j < n; j++) {
        lowest[j] = INFINITY;
        for (int k = 0; k < column_levels; k++)
            lowest[j] = fminf(lowest[j], column_level[k * line + j] - reach);
    }
    for (int i = 0; i < m; i++) {
        const float *row = tile + i * ld, *level = row_level + (int64_t)i * row_levels;
        int number = 0;
        float least = INFINITY;
        if (size && i % CHUNK == 0) memset(work, 0, sizeof(float) * 2 * size);
        for (int k = 0; k < row_levels; k++) least = fminf(least, level[k] - reach);
        for (int j = 0; j < n; j += WIDE) {
            vf x = load(row + j), slope;
            if (bits(x > least)) flagged[number++] = j;
            if (!column_levels || !bits(x > load(lowest + j))) continue;
            for (int k = 0; k < column_levels; k++) {
                float *sum = work + (int64_t)k * n + j, *top = column_steepest + (int64_t)k * n + j;
                store(sum, load(sum) + sigmoid(load(column_level + k * line + j), x, scale, &slope));
                store(sum + size, load(sum + size) + slope);
                store(top, larger(slope, load(top)));
            }
        }
        for (int k = 0; k < row_levels; k++) {
            vf above = all(0.0f), slopes = above, top = above, slope;
            for (int f = 0; f < number; f++) {
                above += sigmoid(all(level[k]), load(row + flagged[f]), scale, &slope);
                slopes += slope, top = larger(slope, top);
            }
            row_above[(int64_t)i * row_levels + k] = total(above);
            row_slope[(int64_t)i * row_levels + k] = total(slopes);
            row_steepest[(int64_t)i * row_levels + k] = largest(top);
        }
        if (i % CHUNK == CHUNK - 1 || i == m - 1)
            for (int64_t place = 0; place < size; place++)
                column_above[place] += work[place], column_slope[place] += work[size + place];
    }
}

/* Scores of each row in equal bins from `low` on, 1 / `inverse` wide; those outside go into the first and the last, and what
   is no number, as infinity times 0, into the first. */
void cocos_histogram(const float *tile, int m, int n, int64_t ld, float low, float inverse, int bins, int32_t *count) {
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float x = tile[i * ld + j];
            if (x == -INFINITY) continue;
            float place = (x - low) * inverse;
            count[(int64_t)i * bins + (!(place >= 0) ? 0 : place < bins ? (int)place : bins - 1)]++;
        }
}

/* Counts of one score at a time: above `high`, and above `low`; the exponentials of those above the middle are added up. */
INLINE void counted(vf x, vf low, vf limit, vf high, float scale, vi *certain, vi *possible, vf *mass) {
    *certain -= x > high;
    vi reached = x > low;
    *possible -= reached;
    if (mass && bits(reached)) *mass += (vf)((vi)power(larger(x * scale, all(-126.0f))) & (x > limit));
}

INLINE float lanes(vi x) {
    int32_t sum = 0;
    for (int k = 0; k < WIDE; k++) sum += x[k];
    return (float)sum;
}

/* One small batch, n queries and n candidates of which the i-th match, held whole. The diagonal becomes -infinity. `out` is
   (lines, 2, n), queries first. A softmax (kind 0) writes ten lines: contributing, uncertain, weight_above, weight_below,
   weight_positive, push, pull, hardest_share, effective, participation; a hinge (kind 1) contributing and uncertain.
   `room` is how far a score may be off, `loose` how far the logarithm of a sum may be. `work` holds 16 n floats. */
void cocos_batch(float *scores, int n, int64_t ld, int kind, float scale, float eps, float margin, float room, float loose,
                 float *out, double *sums, float *work) {
    float *own = work, *top = work + n, *low = work + 3 * n, *limit = work + 5 * n, *high = work + 7 * n;
    float *spare = work + 9 * n, *count = work + 12 * n;
    int lines = kind ? 2 : 10, size = 2 * n;
    for (int i = 0; i < n; i++) own[i] = scores[i * ld + i], scores[i * ld + i] = -INFINITY;
    if (!kind) {
        memset(sums, 0, sizeof(double) * 3 * size);
        some_strip(scores, n, n, ld, scale, 0, 0, 0, 0, 0, 1, 0, 1, sums, n, top, sums + 3 * n, n, top + n, spare);
    }
    for (int k = 0; k < size; k++) {
        int i = k < n ? k : k - n;
        limit[k] = own[i] - margin;
        float width = room;
        if (!kind) {
            const double *sum = sums + (k < n ? i : 3 * n + i);
            double whole = sum[0] + exp2f(own[i] * scale), most = exp2f(top[k] * scale);
            limit[k] = log2f((float)(eps * whole)) / scale;
            width += loose / scale;
            float share = (float)(sum[0] / whole), part = (float)(sum[n] / sum[0]);
            out[3 * size + k] = out[4 * size + k] = share;
            out[5 * size + k] = out[6 * size + k] = share * scale * 0.69314718f;
            out[7 * size + k] = (float)(most / sum[0]);
            out[8 * size + k] = exp2f(log2f((float)sum[0]) - part);
            out[9 * size + k] = (float)(sum[0] * sum[0] / sum[2 * n]);
            out[2 * size + k] = (float)(1 / whole);
        }
        low[k] = limit[k] - width, high[k] = limit[k] + width;
    }
    memset(count, 0, sizeof(float) * 3 * n);
    int32_t *certain = (int32_t *)count, *possible = certain + n;
    float *mass = count + 2 * n;
    for (int i = 0; i < n; i++) {
        vi sure = (vi)all(0), may = sure;
        vf held = all(0), a = all(low[i]), b = all(limit[i]), c = all(high[i]);
        for (int j = 0; j < n; j += WIDE) {
            vf x = load(scores + i * ld + j);
            counted(x, a, b, c, scale, &sure, &may, kind ? 0 : &held);
            vf more = all(0);
            counted(x, load(low + n + j), load(limit + n + j), load(high + n + j), scale, (vi *)(certain + j),
                    (vi *)(possible + j), kind ? 0 : &more);
            if (!kind) store(mass + j, load(mass + j) + more);
        }
        out[i] = lanes(sure), out[size + i] = lanes(may);
        if (!kind) out[2 * size + i] *= (float)total(held);
    }
    for (int j = 0; j < n; j++) {
        out[n + j] = (float)certain[j], out[size + n + j] = (float)possible[j];
        if (!kind) out[2 * size + n + j] *= mass[j];
    }
    for (int k = 0; k < size; k++) {
        out[size + k] -= out[k];
        if (lines > 2) out[3 * size + k] -= out[2 * size + k];
    }
}

/* Sigmoids of scores about a level: returns their sum, and makes their slopes; the sum of these is added to `slopes`, and
   `steepest` becomes the largest. Differences are in double, and the rest in float, but for slopes above 2^-FAR if
   `exactly`. */
static double raised(const double *score, int n, double level, double scale, int exactly, double *slope, double *slopes,
                     double *steepest, float *work) {
    const double near = exactly ? FAR : -1;
    vf some = all(0), steps = some, top = some, step;
    for (int j = 0; j < n; j++) {
        double z = (score[j] - level) * scale;
        work[j] = fabs(z) < near ? -INFINITY : (float)z;
    }
    for (int j = n; j < n + WIDE; j++) work[j] = -INFINITY;
    for (int j = 0; j < n; j += WIDE) {
        some += sigmoid(all(0), load(work + j), 1, &step);
        steps += step, top = larger(step, top);
        store(work + j, step);
    }
    for (int j = 0; j < n; j++) slope[j] = work[j];
    double sum = total(some), steep = total(steps), most = largest(top);
    for (int j = 0; exactly && j < n; j++) {
        double z = (score[j] - level) * scale;
        if (fabs(z) < near) {
            double e = exp2(-fabs(z)), s = 1 / (1 + e);
            slope[j] = e * s * s, sum += z < 0 ? e * s : s, steep += slope[j], most = slope[j] > most ? slope[j] : most;
        }
    }
    *slopes += steep, *steepest = most > *steepest ? most : *steepest;
    return sum;
}

/* SmoothAP of one query: its n scores, of which `many` from `first` on are positives. Writes nine numbers, `step` apart:
   contributing, uncertain, weight_above, weight_below, weight_positive, push, pull, negatives, eq7. Returns whether all
   shares and terms are further than `near` from eps: if not, and it was not `exactly`, nothing is written. */
static int ranked(const double *score, int n, int first, int many, double scale, double eps, double near, int exactly,
                  double *out, int64_t step, double *work) {
    const int last = first + many;
    double *slope = work, *share = slope + (int64_t)many * n, *factor = share + n, *beside = factor + many;
    double *inverse = beside + many, *pulled = inverse + many, largest_share = 0, largest_term = 0;
    float *spare = (float *)(pulled + many);
    int64_t terms = 0, close = 0, counted = 0, unsure = 0;
    for (int k = 0; k < many; k++) {
        double level = score[first + k], steep = 0, unused = 0, top = 0, *own = slope + (int64_t)k * n;
        double rank = 0.5 + raised(score + first, many, level, scale, exactly, own + first, &unused, &unused, spare);
        double below = raised(score, first, level, scale, exactly, own, &steep, &top, spare);
        below += raised(score + last, n - last, level, scale, exactly, own + last, &steep, &top, spare);
        inverse[k] = 1 / ((rank + below) * (rank + below));
        factor[k] = rank * inverse[k], beside[k] = below * inverse[k], pulled[k] = factor[k] * steep;
        own[first + k] = 0, largest_share += factor[k] * top, largest_term = fmax(largest_term, top * inverse[k]);
    }
    const int all_of_them = fmax(largest_share, largest_term) >= eps - near; /* or positives alone reach eps */
    const int begin = all_of_them ? 0 : first, end = all_of_them ? n : last;
    memset(share, 0, sizeof(double) * n);
    for (int k = 0; k < many; k++)
        for (int j = begin; j < end; j++) {
            double mine = slope[(int64_t)k * n + j], term = mine * inverse[k];
            share[j] += factor[k] * mine, terms += term > eps, close += fabs(term - eps) <= near;
        }
    memset(share + first, 0, sizeof(double) * many);
    for (int j = begin; j < end; j++) counted += share[j] > eps, unsure += fabs(share[j] - eps) <= near;
    if ((close || unsure) && !exactly) return 0;
    double whole = 0, above = 0, back = 0, pull = 0, size = 0, unit = scale * 0.69314718055994531 / many;
    for (int k = 0; k < many; k++) whole += pulled[k];
    for (int j = begin; j < end; j++) above += share[j] > eps ? share[j] : 0;
    for (int a = 0; a < many; a++) {
        for (int k = 0; k < many; k++) pulled[a] += slope[(int64_t)k * n + first + a] * (beside[k] - beside[a]);
        size += fabs(pulled[a]), pull += pulled[a] > 0 ? pulled[a] : 0, back += pulled[a] < 0 ? -pulled[a] : 0;
    }
    const double found[] = {(double)counted, (double)unsure,       above,       whole > above ? whole - above : 0,
                            size,            unit * (whole + back), unit * pull, n - many, (double)terms / many};
    for (int k = 0; k < 9; k++) out[k * step] = found[k];
    return 1;
}

/* SmoothAP of one small batch, m queries, held whole: `scores` is (m, n), of rows d long, each at most `room` off; `many`
   positives of row i begin at `first[i]`, and `out` is (9, m). A query whose counts hang on that is looked at again: the
   scores near enough to its positives to matter are made anew in double. `work` holds (many + 3) (n + 16) + 4 many doubles. */
void cocos_ranked(const float *scores, int m, int n, const float *left, const float *right, int d, const int64_t *first,
                  int many, double scale, double eps, double room, double *out, double *work) {
    const double off = room * scale * 0.69314718055994531; /* of a sigmoid or its slope, relative */
    const double reach = (FAR + (eps < 1 ? -log2(eps) : 0)) / scale + room;
    double *score = work;
    for (int i = 0; i < m; i++) {
        const int begin = first[i] < 0 ? 0 : first[i] > n - many ? n - many : (int)first[i], end = begin + many;
        for (int j = 0; j < n; j++) score[j] = scores[(int64_t)i * n + j];
        if (off < 0.05 && ranked(score, n, begin, many, scale, eps, eps * (5 * off + 3e-5), 0, out + i, m, work + n)) continue;
        double low = INFINITY, high = -INFINITY;
        for (int j = begin; j < end; j++) {
            score[j] = inner(left + (int64_t)i * d, right + (int64_t)j * d, d);
            low = fmin(low, score[j] - reach), high = fmax(high, score[j] + reach);
        }
        for (int j = 0; j < n; j++)
            if ((j < begin || j >= end) && low < score[j] && score[j] < high)
                score[j] = inner(left + (int64_t)i * d, right + (int64_t)j * d, d);
        ranked(score, n, begin, many, scale, eps, eps * (1e-6 + 4 * n * 0x1p-24 * fmin(off, 1)), 1, out + i, m, work + n);
    }
}

/* The product, fused with what sees its scores: tiles so small that they are still in the second-level cache when they
   are read. The factors are packed: TALL rows of the left one, and PANEL rows of the right one, side by side. */
#ifdef __AVX512F__
#define TALL 8 /* rows of scores that are kept in registers, PANEL wide */
#else
#define TALL 4
#endif
#define VECTORS 3
#define PANEL (VECTORS * WIDE)
#define OFTEN 4 /* tiles between two looks at the limits of the rows, after so many */
#define DEEP 512 /* factors after which the sums go to memory */
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define UNROLL(x) _Pragma(TEXT(GCC unroll x))

const int cocos_strip = STRIP, cocos_wide = WIDE, cocos_tall = TALL, cocos_panel = PANEL;

INLINE void crossed(vf *x, int step) {
    vi low, high;
    UNROLL(16)
    for (int lane = 0; lane < WIDE; lane++) {
        low[lane] = lane & step ? WIDE + lane - step : lane;
        high[lane] = lane & step ? WIDE + lane : lane + step;
    }
    UNROLL(16)
    for (int k = 0; k < WIDE; k++)
        if (!(k & step)) {
            vf one = __builtin_shuffle(x[k], x[k + step], low);
            x[k + step] = __builtin_shuffle(x[k], x[k + step], high);
            x[k] = one;
        }
}

/* A square of WIDE rows becomes its transpose. */
INLINE void turned(vf *x) {
    crossed(x, 1), crossed(x, 2), crossed(x, 4);
    if (WIDE == 16) crossed(x, 8);
}

/* Rows, d long, as panels of `panel` of them, TALL or a multiple of WIDE, side by side: (d, panel) each; rows of zeros in the end.
   They are rows `order[k]` of a matrix, or the first n, whose rows are `ld` apart; less `origin`, if there is one; times
   `factor`, and times `scale[k]`, if there is one. With `more`, (n, 2), two numbers follow each row: then it is d + 2 long. */
void cocos_pack(const float *rows, const int64_t *order, int n, int d, int64_t ld, const float *origin, const float *scale,
                float factor, const float *more, int panel, float *packed) {
    int64_t size = d + (more ? 2 : 0);
    for (int i = 0; i < n; i += WIDE) {
        float *to = packed + (i / panel) * panel * size + i % panel;
        const float *row[WIDE];
        float times[WIDE];
        for (int r = 0; r < WIDE; r++) {
            int at = i + r < n ? i + r : n - 1;
            row[r] = rows + (order ? order[at] : at) * ld;
            times[r] = i + r < n ? factor * (scale ? scale[at] : 1) : 0;
        }
        for (int k = 0; k < d; k += WIDE) {
            vf block[WIDE];
            int deep = k + WIDE < d ? WIDE : d - k;
            if (deep == WIDE) {
                vf less = origin ? load(origin + k) : all(0);
                UNROLL(16)
                for (int r = 0; r < WIDE; r++) {
                    __builtin_prefetch(row[r] + k + 4 * WIDE);
                    block[r] = (load(row[r] + k) - less) * times[r];
                }
            } else {
                memset(block, 0, sizeof block);
                for (int r = 0; r < WIDE; r++)
                    for (int j = 0; j < deep; j++) block[r][j] = (row[r][k + j] - (origin ? origin[k + j] : 0)) * times[r];
            }
            turned(block);
            for (int r = 0; r < deep; r++)
                if (panel >= WIDE) store(to + (int64_t)(k + r) * panel, block[r]);
                else
                    for (int s = 0; s < WIDE; s += TALL)
                        memcpy(to + s * size + (k + r) * TALL, (const float *)(block + r) + s, sizeof(float) * TALL);
        }
        for (int r = 0; more && r < WIDE; r++)
            for (int k = 0; k < 2; k++)
                to[r / panel * panel * size + (d + k) * (int64_t)panel + r % panel] = i + r < n ? more[2 * (i + r) + k] : 0;
    }
    int there = (n + WIDE - 1) / WIDE * WIDE, whole = (n + panel - 1) / panel * panel;
    for (int64_t k = 0; there < whole && k < size; k++)
        memset(packed + (whole / panel - 1) * panel * size + k * panel + there % panel, 0, sizeof(float) * (whole - there));
}

/* TALL rows and PANEL columns, d factors deep. Meanwhile lines of what is multiplied next, from `next` on, are called for:
   the next panel would come too slowly otherwise, as long as it is not in the second-level cache. */
static __attribute__((noinline)) void block(int d, const float *left, const float *right, float *tile, int64_t ld, int more,
                                            const float *next) {
    vf sum[TALL][VECTORS];
    UNROLL(8)
    for (int r = 0; r < TALL; r++)
        UNROLL(3)
        for (int v = 0; v < VECTORS; v++) sum[r][v] = all(0);
#define FACTOR                                                                                                           \
    {                                                                                                                    \
        vf factor[VECTORS];                                                                                              \
        UNROLL(3)                                                                                                        \
        for (int v = 0; v < VECTORS; v++) factor[v] = load(right + v * WIDE);                                            \
        UNROLL(8)                                                                                                        \
        for (int r = 0; r < TALL; r++) {                                                                                 \
            vf x = all(left[r]);                                                                                         \
            UNROLL(3)                                                                                                    \
            for (int v = 0; v < VECTORS; v++) sum[r][v] += x * factor[v];                                                \
        }                                                                                                                \
        left += TALL, right += PANEL;                                                                                    \
    }
    for (int k = 0; k < d / 4; k++) {
        __builtin_prefetch(next + k * 16, 0, 2);
        FACTOR FACTOR FACTOR FACTOR
    }
    for (int k = 0; k < d % 4; k++) FACTOR
#undef FACTOR
    UNROLL(8)
    for (int r = 0; r < TALL; r++)
        UNROLL(3)
        for (int v = 0; v < VECTORS; v++) {
            float *place = tile + r * ld + v * WIDE;
            store(place, more ? load(place) + sum[r][v] : sum[r][v]);
        }
}

/* Scores of m rows and n columns from packed factors; the tile has room for whole panels of both. */
void cocos_product(const float *left, const float *right, int m, int n, int d, float *tile, int64_t ld) {
    int parts = (d + DEEP - 1) / DEEP, size = (d + parts - 1) / parts;
    for (int k = 0; k < d; k += size) {
        int deep = k + size < d ? size : d - k;
        for (int j = 0; j < n; j += PANEL) {
            const float *panel = right + (int64_t)j * d + (int64_t)k * PANEL, *next = right + (int64_t)n * d;
            if (j + PANEL < n) next = panel + (int64_t)d * PANEL;
            else if (k + deep < d) next = right + (int64_t)(k + deep) * PANEL;
            for (int i = 0; i < m; i += TALL)
                block(deep, left + (int64_t)i * d + (int64_t)k * TALL, panel, tile + i * ld + j, ld, k > 0,
                      next + (int64_t)deep * PANEL / m * i);
        }
    }
}

typedef struct { /* sums of exponentials, and what may count: of a strip of rows, and of a block of columns */
    double *row_total;
    float *row_top, *row_limit;
    const double *row_others, *row_offset;
    double *column_sum; /* (3, column_step), of this strip */
    float *column_top, *column_limit;
    const double *column_total, *column_known, *column_others, *column_offset;
    float *work, *top, *row_floor, *column_floor;
    int32_t *at, *of;
    float *score;
    int8_t *sign;
    int64_t row_step, column_step, room, found;
    float scale, slack, square;
    int32_t spread, fresh;
} exponentials;

typedef struct { /* counts above ascending levels: of a strip of rows, and of a block of columns */
    const float *row_low, *row_high;
    int64_t *row_count;
    const float *column_low, *column_high; /* (column_levels, column_step) */
    int32_t *column_count;                 /* (column_levels, block_step), of this strip */
    int64_t *row_new;
    int32_t *column_new;
    int32_t *at, *of;
    int8_t *level, *sign;
    float *score;   /* of the undecided places, if it is wanted */
    int32_t *again; /* first columns of the tiles with too many undecided places, of which nothing was taken in */
    int64_t column_step, block_step, room, found, repeated;
    int32_t row_levels, column_levels, dense;
} levels;

typedef struct { /* sigmoids about levels, and what lies in a band about each: of a strip of rows, and of a block of columns */
    const float *row_level, *row_cost;
    const double *row_rank;
    double *row_above, *row_slope; /* added to */
    float *row_low, *row_high;
    const float *column_level, *column_cost; /* (column_levels, column_step) */
    const double *column_rank;               /* (column_levels, block_step), as are the next ones, of this strip */
    double *column_above, *column_slope;
    float *column_low, *column_high;
    double *sums;
    float *work;
    int32_t *at, *of;
    int8_t *level, *sign;
    float *score;
    int64_t column_step, block_step, room, found;
    float scale, reach, slack;
    double give;
    int32_t row_levels, column_levels, fresh;
} sigmoids;

enum { EXPONENTIALS, LEVELS, SIGMOIDS };

/* log2 of numbers above 0, at most 3e-4 too small. */
INLINE float binary(float x) {
    int32_t whole;
    memcpy(&whole, &x, 4);
    int32_t exponent = (whole >> 23) - 127, rest = (whole & 0x7fffff) | 0x3f800000;
    float f;
    memcpy(&f, &rest, 4);
    f -= 1;
    return (float)exponent + f * (1.4377044f + f * (-0.6749427f + f * (0.3186788f + f * -0.0816157f)));
}

/* As `limits`, for a score that may be off by slack, or by square / |score| and never by more than its root. */
static void lowered(int n, const exponentials *of, const double *total, const double *known, const double *here,
                    const double *others, const double *offset, float *limit) {
    float root = sqrtf(of->square);
    for (int k = 0; k < n; k++) {
        double sum = total[k] + others[k] + (known ? known[k] : 0) + (here ? here[k] : 0);
        float score = (float)((binary((float)sum) + offset[k]) / of->scale), size = fabsf(score);
        float slack = of->square > 0 ? -more(-root, -of->square / more(size, 1e-30f)) : 0;
        limit[k] = score - slack - of->slack - 1e-6f * size;
    }
}

static void see_exponentials(exponentials *of, const float *tile, int m, int n, int64_t ld, int a, int c, int j) {
    double *column = of->column_sum;
    int two = column != 0;
    float *column_top = two ? of->column_top + j : 0, *column_limit = two ? of->column_limit + j : 0;
    int floors = of->row_floor != 0;
    const float *column_floor = two && floors ? of->column_floor + j : 0;
    some_strip(tile, m, n, ld, of->scale, 0, 0, of->row_floor, column_floor, 0, of->spread, floors, two, of->row_total,
               of->row_step, of->top, column + j, of->column_step, column_top, of->work);
    for (int i = 0; i < m; i++) of->row_top[i] = more(of->row_top[i], of->top[i]);
    if (of->fresh & 1 && (!(j / ld % OFTEN) || j < OFTEN * ld))
        lowered(m, of, of->row_total, 0, 0, of->row_others, of->row_offset, of->row_limit);
    if (of->fresh & 2)
        lowered(n, of, of->column_total + j, of->column_known ? of->column_known + j : 0, column + j, of->column_others + j,
                of->column_offset + j, column_limit);
    int64_t k = of->found;
    of->found += cocos_above(tile, m, n, ld, of->row_limit, of->top, column_limit, column_top, a, c + j, of->at + k,
                             of->of + k, of->score + k, of->sign + k, of->room - k);
}

static void see_levels(levels *of, const float *tile, int m, int n, int64_t ld, int a, int c, int j) {
    int64_t k = of->found, size = (int64_t)of->column_levels * n;
    places to = {of->at + k, of->of + k, of->level + k, of->sign + k, of->score ? of->score + k : 0, a, c + j, of->room - k, 0};
    if (size) memset(of->column_new, 0, sizeof(int32_t) * size);
    ascending(tile, m, n, ld, of->row_levels, of->row_low, of->row_high, of->row_new, of->column_levels,
              size ? of->column_low + j : 0, size ? of->column_high + j : 0, of->column_step, of->column_new, &to);
    if (to.found * of->dense > (int64_t)m * n) {
        of->again[of->repeated++] = c + j;
        return;
    }
    of->found += to.found;
    for (int64_t i = 0; i < (int64_t)m * of->row_levels; i++) of->row_count[i] += of->row_new[i];
    for (int level = 0; level < of->column_levels; level++)
        for (int i = 0; i < n; i++)
            of->column_count[level * of->block_step + j + i] += of->column_new[(int64_t)level * n + i];
}

/* Scores between which a negative may have a slope above cost x rank^2: none where that is 1/4 or more. */
INLINE void banded(const sigmoids *of, float level, float cost, double rank, float *low, float *high) {
    float least = cost * (float)(rank * rank), root = sqrtf(more(1 - 4 * least, 0));
    float width = log2f((1 + root) * (1 + root) / (4 * least)) / of->scale + of->slack + 1e-6f * fabsf(level);
    *low = least < 0.25f ? level - width : INFINITY;
    *high = least < 0.25f ? level + width : INFINITY;
}

static void see_sigmoids(sigmoids *of, const float *tile, int m, int n, int64_t ld, int a, int c, int j) {
    int rows = of->row_levels, columns = of->column_levels;
    int64_t size = (int64_t)m * rows, wide = (int64_t)columns * n;
    double *above = of->sums, *slope = above + size, *column_above = slope + size, *column_slope = column_above + wide;
    float *steepest = of->work, *column_steepest = steepest + size, *work = column_steepest + wide;
    cocos_sigmoids(tile, m, n, ld, of->scale, of->reach, rows, of->row_level, above, slope, steepest, columns,
                   columns ? of->column_level + j : 0, of->column_step, column_above, column_slope, column_steepest, work);
    for (int64_t i = 0; i < size; i++) of->row_above[i] += above[i], of->row_slope[i] += slope[i];
    for (int k = 0; k < columns; k++)
        for (int i = 0; i < n; i++) {
            of->column_above[k * of->block_step + j + i] = column_above[(int64_t)k * n + i];
            of->column_slope[k * of->block_step + j + i] = column_slope[(int64_t)k * n + i];
        }
    if (!j || !(j / ld % OFTEN))
        for (int64_t i = 0; i < size; i++)
            banded(of, of->row_level[i], of->row_cost[i], of->row_rank[i] + of->row_above[i] / of->give, of->row_low + i,
                   of->row_high + i);
    float least[n];
    for (int i = 0; i < n; i++) least[i] = INFINITY;
    for (int k = 0; k < columns; k++)
        for (int i = 0; i < n; i++) {
            int64_t place = k * of->block_step + j + i, level = k * of->column_step + j + i;
            if (of->fresh)
                banded(of, of->column_level[level], of->column_cost[level],
                       of->column_rank[place] + of->column_above[place] / of->give, of->column_low + place,
                       of->column_high + place);
            least[i] = -more(-least[i], -of->column_low[place]);
        }
    int where[n / STRETCH + 1];
    for (int i = 0; i < m; i++) {
        const float *row = tile + i * ld, *low = of->row_low + (int64_t)i * rows, *high = of->row_high + (int64_t)i * rows;
        float first = INFINITY;
        for (int k = 0; k < rows; k++) first = -more(-first, -low[k]);
        int number = reached(row, columns ? least : 0, first, n, where);
        for (int f = 0; f < number; f++)
            for (int v = where[f]; v < where[f] + STRETCH && v < n; v += WIDE)
                for (int k = 0; k < rows + columns; k++) {
                    int64_t place = (int64_t)(k - rows) * of->block_step + j + v;
                    vf x = load(row + v), lower = k < rows ? all(low[k]) : load(of->column_low + place);
                    vf upper = k < rows ? all(high[k]) : load(of->column_high + place);
                    for (unsigned left = over(x, lower) & ~over(x, upper); left; left &= left - 1) {
                        int lane = __builtin_ctz(left);
                        int64_t to = of->found++;
                        of->at[to] = a + i, of->of[to] = c + j + v + lane, of->score[to] = row[v + lane];
                        of->level[to] = (int8_t)(k < rows ? k : k - rows), of->sign[to] = k >= rows;
                    }
                }
    }
}

/* A strip has been seen: its sums of n columns, in `lines` lines, their tops and their limits are taken in. */
void cocos_strip_seen(const exponentials *of, int n, int lines, double *total, int64_t step, float *top, float *limit) {
    for (int k = 0; k < lines; k++)
        for (int j = 0; j < n; j++) total[k * step + j] += of->column_sum[k * of->column_step + j];
    for (int j = 0; j < n; j++) {
        top[j] = more(top[j], of->column_top[j]);
        limit[j] = more(limit[j], of->column_limit[j]);
    }
}

/* A strip of m rows against a block of n columns, tile by tile from column `from` on: each is multiplied, masked, and shown
   to all readers. The rows are counted from a, the columns from c; `first` and `last` say which columns, so counted, are
   no negatives of each row. Returns the column to go on from when a reader has no room left, or n. */
int cocos_pass(const float *left, const float *right, int m, int n, int d, int width, int root, int a, int c, int from,
               const int64_t *first, const int64_t *last, float *tile, int readers, const int32_t *kinds,
               void *const *states) {
    for (int j = from; j < n; j += width) {
        int there = n - j < width ? n - j : width, wide = (there + 15) / 16 * 16;
        for (int k = 0; k < readers; k++) {
            int64_t room = kinds[k] == EXPONENTIALS ? ((exponentials *)states[k])->room - ((exponentials *)states[k])->found
                         : kinds[k] == LEVELS       ? ((levels *)states[k])->room - ((levels *)states[k])->found
                                                    : ((sigmoids *)states[k])->room - ((sigmoids *)states[k])->found;
            int64_t times = kinds[k] == SIGMOIDS ? ((sigmoids *)states[k])->row_levels + ((sigmoids *)states[k])->column_levels
                          : kinds[k] == LEVELS   ? 1 + (((levels *)states[k])->row_levels + ((levels *)states[k])->column_levels > 1)
                                                 : 2;
            if (room < times * m * width) return j;
        }
        cocos_product(left, right + (int64_t)j * d, m, there, d, tile, width);
        if (root) cocos_distances(tile, m, there, width);
        for (int i = 0; i < m; i++) {
            float *row = tile + (int64_t)i * width;
            int64_t low = first[i] - c - j, high = last[i] - c - j;
            for (int64_t k = low < 0 ? 0 : low; k < high && k < there; k++) row[k] = -INFINITY;
            for (int k = there; k < wide; k++) row[k] = -INFINITY;
        }
        for (int k = 0; k < readers; k++)
            if (kinds[k] == EXPONENTIALS) see_exponentials(states[k], tile, m, wide, width, a, c, j);
            else if (kinds[k] == LEVELS) see_levels(states[k], tile, m, wide, width, a, c, j);
            else see_sigmoids(states[k], tile, m, wide, width, a, c, j);
    }
    return n;
}
