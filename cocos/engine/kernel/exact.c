/* Float64 scores from the embeddings as given: of one pair of places, and of lists of pairs of rows. */
#include "kernel.h"

#define HALF (WIDE / 2) /* doubles in a vector */

typedef double vd __attribute__((vector_size(8 * HALF), aligned(8)));
typedef float vh __attribute__((vector_size(4 * HALF), aligned(4)));

/* Load elements k, k + 1, ... of a row as doubles. */
INLINE vd widened(const void *row, int wide, int64_t k) {
    if (wide) return *(const vd *)((const double *)row + k);
#ifdef __AVX512F__
    return (vd)_mm512_cvtps_pd(_mm256_loadu_ps((const float *)row + k));
#elif defined(__AVX__)
    return (vd)_mm256_cvtps_pd(_mm_loadu_ps((const float *)row + k));
#else
    return __builtin_convertvector(*(const vh *)((const float *)row + k), vd);
#endif
}

INLINE double number(const void *row, int wide, int64_t k) {
    return wide ? ((const double *)row)[k] : (double)((const float *)row)[k];
}

INLINE const void *row_of(const void *matrix, int wide, int64_t row, int64_t d) {
    return (const char *)matrix + row * d * (wide ? 8 : 4);
}

/* Sum of all lanes of two vectors. */
INLINE double summed(const vd *part) {
    vd both = part[0] + part[1];
    double sum = 0;
    for (int k = 0; k < HALF / 2; k++) sum += both[k] + both[k + HALF / 2];
    return sum;
}

/* Sum of products of two rows, or of squared differences; and the squared norms of both if wanted. */
INLINE double joined(const void *a, int a_wide, const void *b, int b_wide, int64_t d, int gap, double *a_square, double *b_square) {
    vd part[2] = {0}, left[2] = {0}, right[2] = {0};
    int64_t j = 0;
    for (; j + 2 * HALF <= d; j += 2 * HALF)
        UNROLL(2)
        for (int half = 0; half < 2; half++) {
            vd x = widened(a, a_wide, j + half * HALF), y = widened(b, b_wide, j + half * HALF);
            part[half] += gap ? (x - y) * (x - y) : x * y;
            if (a_square) left[half] += x * x, right[half] += y * y;
        }
    double sum = summed(part);
    if (a_square) *a_square = summed(left), *b_square = summed(right);
    for (; j < d; j++) {
        double x = number(a, a_wide, j), y = number(b, b_wide, j);
        sum += gap ? (x - y) * (x - y) : x * y;
        if (a_square) *a_square += x * x, *b_square += y * y;
    }
    return sum;
}

static double paired(const void *a, int a_wide, const void *b, int b_wide, int64_t d, int gap) {
    if (a_wide || b_wide) return joined(a, a_wide, b, b_wide, d, gap, NULL, NULL);
    return gap ? joined(a, 0, b, 0, d, 1, NULL, NULL) : joined(a, 0, b, 0, d, 0, NULL, NULL);
}

/* The score of two places. Rows of extreme norm are divided by their norms first, since their products might overflow or
   underflow. */
static double exact(const view *v, int64_t row, int64_t column) {
    const side *left = v->sides, *right = v->sides + 1;
    const double norm = left->unit ? left->norm[row] : 1, other = right->unit ? right->norm[column] : 1;
    const void *a = row_of(left->matrix, left->wide, left->order[row], v->d);
    const void *b = row_of(right->matrix, right->wide, right->order[column], v->d);
    double sum = 0;
    if (v->metric == PRODUCT && left->unit && (left->precise || right->precise)) {
        for (int64_t j = 0; j < v->d; j++) sum += (number(a, left->wide, j) / norm) * (number(b, right->wide, j) / other);
        return sum;
    }
    sum = paired(a, left->wide, b, right->wide, v->d, v->metric != PRODUCT);
    return v->metric == PRODUCT ? sum / norm / other : v->metric == ROOT ? -sqrt(sum) : -sum;
}

/* Products of one row that are computed side by side, since each waits for its own sums, and for its row. */
#define AT_ONCE (WIDE / 2)

/* Products of a row with several ones in float32, each as `joined` adds it up. */
INLINE void several(const float *a, const float *const *b, int64_t d, double *sum) {
    vd part[AT_ONCE][2];
    memset(part, 0, sizeof part);
    int64_t j = 0;
    for (; j + 2 * HALF <= d; j += 2 * HALF)
        UNROLL(2)
        for (int half = 0; half < 2; half++) {
            const vd x = widened(a, 0, j + half * HALF);
            UNROLL(8)
            for (int k = 0; k < AT_ONCE; k++) part[k][half] += x * widened(b[k], 0, j + half * HALF);
        }
    for (int k = 0; k < AT_ONCE; k++) {
        sum[k] = summed(part[k]);
        for (int64_t rest = j; rest < d; rest++) sum[k] += (double)a[rest] * (double)b[k][rest];
    }
}

/* The scores of a place with several columns, as `exact` has them. */
static __attribute__((noinline)) void exact_of_row(const view *v, int64_t row, const int64_t *column, int number, double *score) {
    const side *left = v->sides, *right = v->sides + 1;
    const int plain = v->metric == PRODUCT && !left->wide && !right->wide && !(left->unit && (left->precise || right->precise));
    const float *a = row_of(left->matrix, 0, left->order[row], v->d), *b[AT_ONCE];
    const double norm = left->unit ? left->norm[row] : 1;
    int k = 0;
    for (; plain && k + AT_ONCE <= number; k += AT_ONCE) {
        for (int f = 0; f < AT_ONCE; f++) b[f] = row_of(right->matrix, 0, right->order[column[k + f]], v->d);
        several(a, b, v->d, score + k);
        for (int f = 0; f < AT_ONCE; f++) score[k + f] = score[k + f] / norm / (right->unit ? right->norm[column[k + f]] : 1);
    }
    for (; k < number; k++) score[k] = exact(v, row, column[k]);
}

typedef struct { /* pairs of rows of two matrices */
    int64_t size;
    const void *left, *right;                    /* (N, d), (M, d) */
    const int64_t *of, *with_;                   /* (number,) rows of the left matrix, and of the right one */
    double *joined, *left_square, *right_square; /* (number,) results; squared norms of both rows, float32 only, or NULL */
    int64_t number, d;
    int32_t left_wide, right_wide, gaps; /* the matrix is float64; compute squared distances instead of products */
} pairs;

void cocos_pairs(const pairs *p) {
    const int plain = !p->left_wide && !p->right_wide && !p->gaps && !p->left_square;
    for (int64_t k = 0; k < p->number; k++) {
        if (plain && k + AT_ONCE <= p->number && p->of[k] == p->of[k + AT_ONCE - 1]) {
            const float *b[AT_ONCE];
            int same = 1;
            for (int f = 0; f < AT_ONCE; f++) same &= p->of[k + f] == p->of[k], b[f] = row_of(p->right, 0, p->with_[k + f], p->d);
            if (same) {
                several(row_of(p->left, 0, p->of[k], p->d), b, p->d, p->joined + k);
                k += AT_ONCE - 1;
                continue;
            }
        }
        const void *a = row_of(p->left, p->left_wide, p->of[k], p->d);
        const void *b = row_of(p->right, p->right_wide, p->with_[k], p->d);
        if (p->left_square) p->joined[k] = joined(a, 0, b, 0, p->d, 0, p->left_square + k, p->right_square + k);
        else p->joined[k] = paired(a, p->left_wide, b, p->right_wide, p->d, p->gaps);
    }
}

EXPORT(pairs)
