/* Sums of the sigmoids of each row and column, their moments, those above a threshold that all queries share, and the few
   negatives whose part of the sum can exceed eps (see logsumexp.c). One sigmoid of a score serves its row and its column. */
#include "kernel.h"

#define SHORT -7.5f /* up to this binary exponent z, with e = 2^z, 1 / (1 + 1 / e) is taken for e - e^2 + e^3 */
#define LN2 0.69314718f
enum { ABOVE = 3, MASS, OPEN, LINES }; /* lines of `total` after sigma, sigma ln sigma and sigma^2: number of sigmoids above the
                                          threshold, their sum, and scores within `width` of it */

typedef struct {
    int64_t size;
    logsumexp sums;       /* its `total` has LINES lines, and no references */
    double level, width;  /* the threshold of the scores; scores within `width` of it may be on either side */
    float shift, cut;     /* z = scale x + shift; scores up to `cut` have z <= SHORT, and are not above `low` */
    float low, high;      /* scores up to low are not above the threshold, scores above high are */
} logistic;

typedef struct { /* counts and sums above the threshold, in memory since they are rare */
    vf number[8], mass[8];
} exceeding;

/* log2 for x >= 2^-126, within 2e-7 relative or absolute (minimax polynomial of (log2 x) / (x - 1) on [sqrt(1/2), sqrt(2)]). */
INLINE vf log2_of(vf x) {
    vi whole = (((vi)x - (vi)all(0.70710678f)) >> 23);
    vf f = (vf)((vi)x - (whole << 23)) - all(1.0f), p = all(0.0f);
    static const float terms[] = {1.261484659e-01f,  -2.074210351e-01f, 2.156698591e-01f,  -2.389203398e-01f, 2.879183245e-01f,
                                  -3.607048281e-01f, 4.809106099e-01f,  -7.213473334e-01f, 1.442695004e+00f};
    for (int k = 0; k < (int)(sizeof terms / sizeof *terms); k++) p = p * f + all(terms[k]);
    return __builtin_convertvector(whole, vf) + p * f;
}

/* sigma(z) and sigma ln sigma for any z, an exponent of two, where a score exceeds `cut`; the others stay as they are. */
static __attribute__((noinline)) void steep(vf x, vf z, float cut, vf *s, vf *entropy) {
    vi some = x > all(cut);
    vf one = all(1) + power(all(0) - smaller(z, all(-LOW))), own = all(1) / one;
    *s = pick(some, own, *s);
    *entropy = pick(some, own * log2_of(one) * all(-LN2), *entropy);
}

/* Count the scores of a vector above the threshold; float64 decides about those between `low` and `high`. */
static __attribute__((noinline)) void exceeded(const logistic *of, const view *v, const tile *t, int i, int j, vf x, vf s,
                                               int two, vf *number, vf *mass, beneath *under, float *below) {
    vi sure = x > all(of->high);
    unsigned open = over(x, all(of->low)) & ~bits(sure);
    vf one = (vf)((vi)all(1) & sure), part = (vf)((vi)s & sure);
    for (; open; open &= open - 1) {
        const int lane = __builtin_ctz(open);
        const int64_t row = t->row + i, column = t->column + j + lane;
        double excess = exact(v, row, column) - of->level;
        one[lane] = excess > 0, part[lane] = excess > 0 ? s[lane] : 0;
        if (fabs(excess) > of->width) continue;
        const asker *rows = of->sums.asking, *columns = rows + 1;
        rows->total[OPEN * rows->step + row] += 1;
        if (two) columns->total[OPEN * columns->step + column] += 1;
    }
    *number += one, *mass += part;
    if (!two) return;
    store(under->number + j, load(under->number + j) + one), store(below + j, load(below + j) + part);
}

/* Sums of `count` rows from `i`, and of the columns. */
INLINE void some_sigmoids(const logistic *of, const view *v, const tile *t, int i, int count, int moments, int two,
                          float *row_top, beneath *under, float *below) {
    const asker *rows = of->sums.asking;
    const vf scale = all(of->sums.scale), shift = all(of->shift), cut = all(of->cut), none = all(0);
    exceeding high;
    sums row[8], column = {none, none, none, none, none};
    for (int r = 0; r < count; r++) row[r] = (sums){none, none, none, none, all(-INFINITY)};
    for (int r = 0; r < count; r++) high.number[r] = high.mass[r] = none;
    for (int j = 0; j < t->n; j += WIDE) {
        if (two) {
            column = (sums){load(under->first + j), none, none, none, load(under->top + j)};
            if (moments) column.second = load(under->second + j), column.third = load(under->third + j);
        }
        UNROLL(8)
        for (int r = 0; r < count; r++) {
            vf x = load(t->score + (int64_t)(i + r) * WIDTH + j), z = larger(x * scale + shift, all(LOW));
            vf e = power(z), s = e - e * e * (all(1) - e);
            vf entropy = s * (z * all(LN2) - e * (all(1) - e * all(0.5f)));
            if (over(x, cut)) {
                vf own = s, its = entropy; /* copies, so that the sums stay in registers */
                steep(x, z, of->cut, &own, &its);
                s = own, entropy = its;
                if (over(x, all(of->low)))
                    exceeded(of, v, t, i + r, j, x, s, two, high.number + r, high.mass + r, under, below);
            }
            vf least = larger(s, all(0x1p-62f)); /* its square is not denormal */
            row[r].top = larger(x, row[r].top), row[r].first += s;
            if (moments) row[r].second += entropy, row[r].third += least * least;
            if (!two) continue;
            column.top = larger(x, column.top), column.first += s;
            if (moments) column.second += entropy, column.third += least * least;
        }
        if (!two) continue;
        store(under->first + j, column.first), store(under->top + j, column.top);
        if (moments) store(under->second + j, column.second), store(under->third + j, column.third);
    }
    for (int r = 0; r < count; r++) {
        double *to = rows->total + t->row + i + r;
        to[0] += total(row[r].first);
        if (moments) to[rows->step] += total(row[r].second), to[2 * rows->step] += total(row[r].third);
        to[ABOVE * rows->step] += total(high.number[r]), to[MASS * rows->step] += total(high.mass[r]);
        row_top[i + r] = largest(row[r].top);
    }
}

/* Sums of all rows and columns of a tile. */
INLINE void tile_sigmoids(const logistic *of, const view *v, const tile *t, int moments, int two, float *row_top,
                          beneath *under) {
    const asker *columns = of->sums.asking + 1;
    const int together = moments ? 4 : 8; /* rows per load of the columns: as many as fit in registers */
    float below[WIDTH];
    for (int j = 0; two && j < t->n; j++) under->top[j] = -INFINITY;
    for (int from = 0; from < t->m; from += CHUNK) {
        int to = from + CHUNK < t->m ? from + CHUNK : t->m, i = from;
        if (two) memset(under, 0, offsetof(beneath, top)), memset(below, 0, sizeof below);
        for (; i + together <= to; i += together) some_sigmoids(of, v, t, i, together, moments, two, row_top, under, below);
        for (; i < to; i++) some_sigmoids(of, v, t, i, 1, moments, two, row_top, under, below);
        double *total = two ? columns->total + t->column : 0;
        const int64_t step = columns->step;
        for (int j = 0; two && j < t->there; j++)
            total[j] += under->first[j], total[ABOVE * step + j] += under->number[j], total[MASS * step + j] += below[j];
        for (int j = 0; two && moments && j < t->there; j++)
            total[step + j] += under->second[j], total[2 * step + j] += under->third[j];
    }
}

static void logistic_see(void *arguments, const view *v, const tile *t) {
    logistic *of = arguments;
    float row_top[STRIP];
    beneath under;
    switch ((of->sums.moments ? 2 : 0) + (of->sums.sides > 1)) {
    case 0: tile_sigmoids(of, v, t, 0, 0, row_top, &under); break;
    case 1: tile_sigmoids(of, v, t, 0, 1, row_top, &under); break;
    case 2: tile_sigmoids(of, v, t, 1, 0, row_top, &under); break;
    case 3: tile_sigmoids(of, v, t, 1, 1, row_top, &under); break;
    }
    limited(&of->sums, t, row_top, &under);
}

static void logistic_end(void *arguments, const view *v, const area *here) {
    logistic *of = arguments;
    logsumexp_end(&of->sums, v, here);
}

PRIMITIVE(logistic, NULL, logistic_see, logistic_end)
