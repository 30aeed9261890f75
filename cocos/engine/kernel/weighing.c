/* Read the scores and weights of a loss row by row: whether the weights are those of a softmax, and sums over queries. */
#include "kernel.h"

typedef struct { /* one direction of a batch */
    int64_t size;
    const float *score, *weight;       /* (queries, candidates) */
    const int8_t *positive, *negative; /* likewise, 0 or 1 */
    int64_t queries, candidates;
    float *scratch;      /* (candidates + PAD,) */
    float *part;         /* (candidates + PAD,) added to: parts of each query's push */
    double *found;       /* results, added to; the largest missing pull is a maximum */
    double factor, unit; /* of a score in a softmax; size of one weight */
    double eps;          /* smallest share that contributes */
} weighing;

typedef int8_t vb __attribute__((vector_size(WIDE), aligned(1)));

typedef struct { /* a vector of pairs, 0 beyond the end of a row */
    vf score, weight, positive, negative;
} couples;

INLINE couples taken(const weighing *w, int64_t at, int64_t number) {
    couples found = {all(0), all(0), all(0), all(0)};
    vb positive = {0}, negative = {0};
    const size_t some = (size_t)(number < WIDE ? number : WIDE);
    if (number >= WIDE) {
        found.score = load(w->score + at), found.weight = load(w->weight + at);
        positive = *(const vb *)(w->positive + at), negative = *(const vb *)(w->negative + at);
    } else {
        memcpy(&found.score, w->score + at, sizeof(float) * some), memcpy(&found.weight, w->weight + at, sizeof(float) * some);
        memcpy(&positive, w->positive + at, some), memcpy(&negative, w->negative + at, some);
    }
    found.positive = __builtin_convertvector(positive, vf), found.negative = __builtin_convertvector(negative, vf);
    return found;
}

INLINE vf size_of(vf x) { return (vf)((vi)x & 0x7fffffff); }
INLINE vf one_where(vi mask) { return -__builtin_convertvector(mask, vf); }

/* Natural logarithm of positive normal numbers; relative error below 1e-6. */
INLINE vf logarithm(vf x) {
    vi whole = ((vi)x - 0x3f3504f3) >> 23; /* so that the rest is between the roots of 1/2 and 2 */
    vf rest = (vf)((vi)x - (whole << 23)), t = (rest - 1) / (rest + 1), u = t * t;
    vf series = all(1 / 9.0f) * u + all(1 / 7.0f);
    series = (series * u + all(1 / 5.0f)) * u + all(1 / 3.0f);
    return __builtin_convertvector(whole, vf) * all(0.69314718f) + 2 * t * (series * u + 1);
}

/* Compare weights with a softmax of one positive each, in units: results are the sums of |form|, of |weights| and of their
   difference, the largest sum of a row of the form, and the number of pairs in neither mask. */
void cocos_form(const weighing *w) {
    const vf factor = all((float)w->factor), unit = all((float)w->unit);
    for (int64_t i = 0; i < w->queries; i++) {
        const int64_t row = i * w->candidates;
        vf top = all(-INFINITY), sum = all(0), form_size = all(0), size = all(0), error = all(0), balance = all(0), out = all(0);
        for (int64_t j = 0; j < w->candidates; j += WIDE) {
            const couples c = taken(w, row + j, w->candidates - j);
            vi in = c.positive + c.negative > 0;
            store(w->scratch + j, pick(in, c.score * factor, all(-INFINITY)));
            top = larger(load(w->scratch + j), top);
            out += 1 - one_where(in);
        }
        const float highest = largest(top);
        if (!(highest > -INFINITY)) w->found[3] = INFINITY;
        for (int64_t j = 0; j < w->candidates; j += WIDE) {
            vf z = load(w->scratch + j), e = power(larger((z - highest) * all(1.44269504f), all(-126)));
            e = pick(z > -INFINITY, e, all(0));
            store(w->scratch + j, e), sum += e;
        }
        const vf scale = all((float)(1 / total(sum)));
        for (int64_t j = 0; j < w->candidates; j += WIDE) {
            const couples c = taken(w, row + j, w->candidates - j);
            vf form = load(w->scratch + j) * scale - c.positive;
            balance += form, form_size += size_of(form), size += size_of(c.weight);
            error += size_of(c.weight / unit - form);
        }
        const double missing = fabs(total(balance));
        w->found[0] += total(form_size), w->found[1] += total(size), w->found[2] += total(error);
        w->found[3] = missing > w->found[3] ? missing : w->found[3];
        w->found[4] += total(out) - (w->candidates + WIDE - 1) / WIDE * WIDE + w->candidates;
    }
}

/* Sums over the queries, in the order of `RESULTS` in weighing.py. */
void cocos_weighing(const weighing *w) {
    const vf none = all(0), unit = all((float)w->unit), eps = all((float)w->eps);
    for (int64_t i = 0; i < w->queries; i++) {
        const int64_t row = i * w->candidates;
        vf top = none, of_unit = none, sum = none, surprise = none, heavy = none;
        vf pulled = none, pushed = none, positives = none, negatives = none, nonzero = none, above = none, near_size = none,
           away_size = none, scores = none, weights = none;
        for (int64_t j = 0; j < w->candidates; j += WIDE) {
            const couples c = taken(w, row + j, w->candidates - j);
            vf away = c.weight * c.negative, near = c.weight * c.positive, push = larger(away, none), size = size_of(away);
            vf share = size / unit;
            store(w->scratch + j, push);
            top = larger(push, top), of_unit = larger(share, of_unit);
            pulled += one_where(away < 0), pushed += one_where(near > 0), nonzero += one_where(size > 0);
            positives += c.positive, negatives += c.negative, above += one_where(share > eps);
            near_size += size_of(near), away_size += size, scores += c.score, weights += c.weight;
        }
        const float largest_push = largest(top), most = largest_push > 0 ? largest_push : 1;
        for (int64_t j = 0; j < w->candidates; j += WIDE) {
            vf scaled = load(w->scratch + j) / all(most);
            store(w->scratch + j, scaled);
            sum += scaled, surprise += logarithm(larger(scaled, all(0x1p-126f))) * scaled;
        }
        const double whole = total(sum), least = whole > 1 ? whole : 1, part = 1 / least;
        const vf limit = all((float)(w->eps * least)), times = all((float)part);
        for (int64_t j = 0; j < w->candidates; j += WIDE) {
            vf scaled = load(w->scratch + j);
            heavy += one_where(scaled > limit);
            store(w->part + j, load(w->part + j) + scaled * times);
        }
        const double unknown = 0 * total(weights); /* NaN where a weight is not finite; the comparisons above drop it */
        const double entropy = log(least) - total(surprise) * part;
        const double results[] = {
            total(heavy), whole > 0, (whole > 0) * part + unknown, (whole > 0) * exp(entropy) + unknown,
            total(pulled), total(pushed), total(positives), total(negatives), total(nonzero),
            total(scores) + total(weights), !(largest(of_unit) > (float)w->eps), total(near_size), total(away_size), total(above),
        };
        for (size_t k = 0; k < sizeof results / sizeof *results; k++) w->found[k] += results[k];
    }
}

EXPORT(weighing)
