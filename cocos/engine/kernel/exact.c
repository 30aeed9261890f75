/* Scores in float64, of the rows as they are: one pair, and lists of pairs. */
#include "kernel.h"

#define LANES 16 /* sums that are made side by side */

INLINE double number(const void *row, int wide, int64_t k) {
    return wide ? ((const double *)row)[k] : (double)((const float *)row)[k];
}

INLINE const void *row_of(const void *matrix, int wide, int64_t row, int64_t d) {
    return (const char *)matrix + row * d * (wide ? 8 : 4);
}

/* Sum of products, or of squared differences, of two rows. */
INLINE double joined(const void *a, int a_wide, const void *b, int b_wide, int64_t d, int gap) {
    double part[LANES] = {0}, sum = 0;
    int64_t j = 0;
    for (; j + LANES <= d; j += LANES)
        for (int lane = 0; lane < LANES; lane++) {
            double x = number(a, a_wide, j + lane), y = number(b, b_wide, j + lane);
            part[lane] += gap ? (x - y) * (x - y) : x * y;
        }
    for (; j < d; j++) {
        double x = number(a, a_wide, j), y = number(b, b_wide, j);
        sum += gap ? (x - y) * (x - y) : x * y;
    }
    for (int half = LANES / 2; half; half /= 2)
        for (int lane = 0; lane < half; lane++) part[lane] += part[lane + half];
    return sum + part[0];
}

static double dot(const void *a, int a_wide, const void *b, int b_wide, int64_t d) {
    if (!a_wide && !b_wide) return joined(a, 0, b, 0, d, 0);
    if (a_wide && b_wide) return joined(a, 1, b, 1, d, 0);
    return a_wide ? joined(a, 1, b, 0, d, 0) : joined(a, 0, b, 1, d, 0);
}

static double gap(const void *a, int a_wide, const void *b, int b_wide, int64_t d) {
    if (!a_wide && !b_wide) return joined(a, 0, b, 0, d, 1);
    if (a_wide && b_wide) return joined(a, 1, b, 1, d, 1);
    return a_wide ? joined(a, 1, b, 0, d, 1) : joined(a, 0, b, 1, d, 1);
}

/* Sum of products of rows that are divided by their norms first: their numbers may be too large or too small to multiply. */
static double divided(const void *a, int a_wide, double a_norm, const void *b, int b_wide, double b_norm, int64_t d) {
    double sum = 0;
    for (int64_t j = 0; j < d; j++) sum += (number(a, a_wide, j) / a_norm) * (number(b, b_wide, j) / b_norm);
    return sum;
}

static double exact(const view *v, int64_t row, int64_t column) {
    const side *left = v->sides, *right = v->sides + 1;
    const void *a = row_of(left->matrix, left->wide, left->order[row], v->d);
    const void *b = row_of(right->matrix, right->wide, right->order[column], v->d);
    if (v->metric != PRODUCT) {
        double square = gap(a, left->wide, b, right->wide, v->d);
        return v->metric == ROOT ? -sqrt(square) : -square;
    }
    double a_norm = left->unit ? left->norm[row] : 1, b_norm = right->unit ? right->norm[column] : 1;
    if (left->unit && (left->precise || right->precise))
        return divided(a, left->wide, a_norm, b, right->wide, b_norm, v->d);
    return dot(a, left->wide, b, right->wide, v->d) / a_norm / b_norm;
}

typedef struct { /* pairs of rows of two matrices */
    int64_t size;
    const void *left, *right;          /* (N, d), (M, d) */
    const int64_t *of, *with_;         /* (number,) rows of the left one, and of the right one */
    double *joined;                    /* (number,) */
    int64_t number, d;
    int32_t left_wide, right_wide, gaps; /* of float64; squared distances are wanted, not products */
} pairs;

void cocos_pairs(const pairs *p) {
    for (int64_t k = 0; k < p->number; k++) {
        const void *a = row_of(p->left, p->left_wide, p->of[k], p->d);
        const void *b = row_of(p->right, p->right_wide, p->with_[k], p->d);
        p->joined[k] = (p->gaps ? gap : dot)(a, p->left_wide, b, p->right_wide, p->d);
    }
}

/* Scores in float64 of some pairs of places. */
void cocos_exact(const view *v, const int64_t *row, const int64_t *column, int64_t number, double *score) {
    for (int64_t k = 0; k < number; k++) score[k] = exact(v, row[k], column[k]);
}

EXPORT(pairs)
