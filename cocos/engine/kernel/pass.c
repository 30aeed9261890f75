/* Visit a part of the score matrix tile by tile: pack, multiply, mask, and show to all primitives. */
#include "kernel.h"

typedef struct {
    int64_t size;
    const view *view;
    area part;                     /* in a stack: whole batches, from `block` to below `last` */
    const float *left, *right;     /* a side that is packed already, for a single batch; or NULL */
    float *strip, *packed, *score; /* scratch: (STRIP, factors), (chunk, factors) and (STRIP, WIDTH) */
    const life *const *life;       /* functions of each primitive */
    void *const *of;               /* arguments of each primitive */
    int64_t number, chunk;         /* number of primitives; columns packed at once, whole panels */
    int64_t block, last;           /* current batch, and one past the last */
    int64_t begin;                 /* first column of the next chunk, relative to the batch */
    int64_t patience;              /* maximum number of strips per call */
} pass;

/* Finish a tile: take roots for distances (rounding may leave a negated square above 0), and set non-negatives and the
   padding to -infinity. */
static void finished(const view *v, const tile *t) {
    const side *rows = v->sides;
    for (int i = 0; i < t->m; i++) {
        float *score = t->score + (int64_t)i * WIDTH;
        int64_t low = rows->first[t->row + i] - t->column, high = rows->last[t->row + i] - t->column;
        for (int k = 0; v->metric == ROOT && k < t->n; k++) score[k] = -sqrtf(score[k] < 0 ? -score[k] : 0);
        for (int64_t k = low < 0 ? 0 : low; k < high && k < t->there; k++) score[k] = -INFINITY;
        for (int k = t->there; k < t->n; k++) score[k] = -INFINITY;
    }
}

/* Visit one strip of the chunk, tile by tile. */
static void across(const pass *p, const area *chunk, int64_t from, const float *right) {
    const view *v = p->view;
    const int64_t size = depth(v), row = chunk->row + from, rows = chunk->rows - from < STRIP ? chunk->rows - from : STRIP;
    const float *left = p->left ? p->left + row * size : p->strip;
    if (!p->left) pack(v, 0, row, rows, p->strip);
    for (int64_t j = 0; j < chunk->columns; j += WIDTH) {
        int there = (int)(chunk->columns - j < WIDTH ? chunk->columns - j : WIDTH);
        tile t = {p->score, row, chunk->column + j, (int32_t)rows, (there + PAD - 1) / PAD * PAD, there};
        multiply(left, right + j * size, t.m, there, size, t.score);
        finished(v, &t);
        for (int64_t k = 0; k < p->number; k++) p->life[k]->see(p->of[k], v, &t);
    }
}

/* Visit all strips of a chunk of columns. */
static void down(const pass *p, const area *chunk) {
    const view *v = p->view;
    if (!p->right) pack(v, 1, chunk->column, chunk->columns, p->packed);
    for (int64_t k = 0; k < p->number; k++)
        if (p->life[k]->open) p->life[k]->open(p->of[k], v, chunk);
    for (int64_t i = 0; i < chunk->rows; i += STRIP)
        across(p, chunk, i, p->right ? p->right + chunk->column * depth(v) : p->packed);
    for (int64_t k = 0; k < p->number; k++)
        if (p->life[k]->close) p->life[k]->close(p->of[k], v, chunk);
}

/* The part, or the current batch of a stack. */
static area next_of(const pass *p) {
    if (p->view->blocks == 1) return p->part;
    const int64_t *rows = p->view->sides[0].block + p->block, *columns = p->view->sides[1].block + p->block;
    return (area){rows[0], rows[1] - rows[0], columns[0], columns[1] - columns[0]};
}

/* Visit a part, or continue where the last call stopped, so that Python regains control: returns 0 once all has been
   visited, else 1. */
int64_t cocos_pass(pass *p) {
    int64_t left = 0;
    for (int64_t strips = 0; p->block < p->last; p->block++, p->begin = 0) {
        area chunk = next_of(p);
        const int64_t column = chunk.column, columns = chunk.columns;
        for (; p->begin < columns; p->begin += p->chunk) {
            if ((left = strips >= p->patience)) break;
            chunk.column = column + p->begin;
            chunk.columns = columns - p->begin < p->chunk ? columns - p->begin : p->chunk;
            down(p, &chunk);
            strips += (chunk.rows + STRIP - 1) / STRIP;
        }
        if (left) break;
    }
    return left;
}

/* Pack places of a side before the pass. */
void cocos_pack(const view *v, int64_t which, int64_t from, int64_t number, float *to) {
    pack(v, (int)which, from, number, to);
}

EXPORT(view)
EXPORT(pass)
