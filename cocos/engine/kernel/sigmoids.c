/* Not written yet. */
#include "kernel.h"
