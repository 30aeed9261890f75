/* The kernel as one translation unit, see kernel.h. */
#include "simd.h"
#include "kernel.h"
#include "exact.c"
#include "product.c"
#include "threshold.c"
#include "logsumexp.c"
#include "shares.c"
#include "pass.c"
