/* Count the listed negatives whose share exceeds eps. */
#include "kernel.h"

typedef struct { /* a list of negatives, and the question which of their shares exceed eps */
    int64_t size;
    const int32_t *row, *column;
    const float *score;
    int64_t number, queries;     /* number of entries; of queries */
    const double *base, *known;  /* (queries,) log2 of share / eps at a score of 0; error of that */
    float *low, *high;           /* (queries + PAD,) scores up to low do not count, scores above high do; computed if `fresh` */
    int64_t *above, *uncertain;  /* (queries,), added to: shares above eps; shares too near to eps for float64 */
    double *mass;                /* (queries,), added to: total share of those above; or NULL */
    double eps, scale, off, square, root; /* error of a score: off, and square / |score| but at most root */
    int32_t side, fresh;         /* 0: rows are the queries, 1: columns are */
} shares;

#define BATCH 1024 /* entries classified before the undecided ones are recomputed */

/* The next float32 number up or down; infinity stays. */
INLINE float stepped(float x, int up) {
    int32_t place;
    if (x == 0) return up ? 0x1p-149f : -0x1p-149f;
    if (isinf(x)) return x;
    memcpy(&place, &x, 4);
    place += (x > 0) == up ? 1 : -1;
    memcpy(&x, &place, 4);
    return x;
}

static void shares_open(const shares *s) {
    for (int64_t k = 0; k < s->queries; k++) {
        double level = -s->base[k] / s->scale, off = s->square > 0 ? fmin(s->root, s->square / fmax(fabs(level), 1e-30)) : 0;
        double width = s->known[k] / s->scale + s->off + off;
        s->low[k] = isfinite(level) ? stepped((float)(level - width), 0) : (float)level;
        s->high[k] = isfinite(level) ? stepped((float)(level + width), 1) : (float)level;
    }
}

/* Add the shares of the entries certainly above eps, each with a relative error of 3e-7. */
static void shares_mass(const shares *s, const int32_t *query, const int32_t *above, int number) {
    float rest[BATCH];
    int64_t whole[BATCH];
    for (int k = 0; k < number; k++) {
        double z = s->base[query[above[k]]] + s->scale * s->score[above[k]], near = (z + 0x1.8p52) - 0x1.8p52;
        rest[k] = (float)(z - near), whole[k] = ((int64_t)near + 1023) << 52;
    }
    for (int k = number; k % WIDE; k++) rest[k] = 0;
    for (int k = 0; k < number; k += WIDE) store(rest + k, risen(all(0), load(rest + k)));
    for (int k = 0; k < number; k++) {
        double power;
        memcpy(&power, whole + k, 8);
        s->mass[query[above[k]]] += s->eps * power * rest[k];
    }
}

static void shares_decide(const view *v, const shares *s, int64_t row, int64_t column) {
    int64_t who = s->side ? column : row;
    double excess = s->base[who] + s->scale * exact(v, row, column);
    s->uncertain[who] += fabs(excess) <= s->known[who];
    s->above[who] += excess > 0;
    if (s->mass) s->mass[who] += excess > 0 ? s->eps * exp2(excess) : 0;
}

/* Classify entries: those certainly above eps, and those undecided; `found` receives both counts. */
static void shares_sort(const shares *s, const int32_t *query, int number, int32_t *above, int32_t *open, int *found) {
    const float *score = s->score, *low = s->low, *high = s->high;
    int count = 0, doubts = 0, of_last = 0; /* entries of one row are consecutive */
    int32_t last = query[0];
    for (int k = 0; k < number; k++) {
        int32_t who = query[k];
        int over = score[k] > high[who], near = !over & (score[k] > low[who]);
        if (who != last) s->above[last] += of_last, of_last = 0, last = who;
        above[count] = k, open[doubts] = k;
        count += over, of_last += over, doubts += near;
    }
    s->above[last] += of_last;
    found[0] = count, found[1] = doubts;
}

/* Answer the question for a list; float64 decides where float32 cannot. */
void cocos_shares(const view *v, const shares *asked) {
    shares of = *asked, *s = &of;
    if (s->fresh) shares_open(s);
    for (; s->number > 0; s->number -= BATCH, s->row += BATCH, s->column += BATCH, s->score += BATCH) {
        const int32_t *query = s->side ? s->column : s->row;
        int32_t above[BATCH], open[BATCH];
        int found[2];
        shares_sort(s, query, s->number < BATCH ? (int)s->number : BATCH, above, open, found);
        for (int k = 0; k < found[1]; k++) shares_decide(v, s, s->row[open[k]], s->column[open[k]]);
        if (s->mass) shares_mass(s, query, above, found[0]);
    }
}

EXPORT(shares)
