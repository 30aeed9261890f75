/* Memory that is freed stays with the process up to 64 MB, for the next tensors: the C library gives back what lies at the end
   of its heap from 128 KB on, and takes each page anew when it is written to, a tenth of the time of a count of small batches. It
   comes to these limits by itself once a block of 32 MB has been freed. */
#include <stdlib.h>
#ifdef __GLIBC__
#include <malloc.h>

__attribute__((constructor)) static void kept_memory(void) {
    if (getenv("MALLOC_TRIM_THRESHOLD_") || getenv("MALLOC_MMAP_THRESHOLD_") || getenv("GLIBC_TUNABLES")) return;
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
}
#endif
