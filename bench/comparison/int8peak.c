/* The most int8 multiply-adds: `int8peak THREADS` prints the best of several passes, in GMAC/s.
   Registers only: the widest instructions this is compiled for, in chains that do not wait for each other.
   A dot product of packed weights cannot be faster, whatever it does besides. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#endif

#if defined(__AVX512VNNI__)
typedef __m512i vec;
#define SPLAT(x) _mm512_set1_epi8(x)
#define STEP(sum, a, b) _mm512_dpbusd_epi32(sum, a, b)
#elif defined(__AVXVNNI__)
typedef __m256i vec;
#define SPLAT(x) _mm256_set1_epi8(x)
#define STEP(sum, a, b) _mm256_dpbusd_avx_epi32(sum, a, b)
#elif defined(__AVX2__)
typedef __m256i vec;
#define SPLAT(x) _mm256_set1_epi8(x)
#define STEP(sum, a, b) \
    _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1)))
#elif defined(__ARM_FEATURE_DOTPROD)
typedef int8x16_t vec;
#define SPLAT(x) vdupq_n_s8(x)
#define STEP(sum, a, b) vreinterpretq_s8_s32(vdotq_s32(vreinterpretq_s32_s8(sum), a, b))
#else
#error "no int8 multiply-add of this instruction set is known here"
#endif

enum { PASSES = 5, ROUNDS = 1 << 22, CHAINS = 12, MAX_THREADS = 64 };
static pthread_barrier_t barrier;

struct times { double start[PASSES], end[PASSES]; };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void *run(void *argument) {
    struct times *times = argument;
    for (int pass = 0; pass < PASSES; pass++) {
        vec chains[CHAINS];
        for (int c = 0; c < CHAINS; c++) chains[c] = SPLAT(0);
        pthread_barrier_wait(&barrier);
        times->start[pass] = now();
        for (int i = 0; i < ROUNDS; i++) {
            vec a = SPLAT(3), b = SPLAT(5);
            /* Nothing is known about them, so nothing is computed ahead. */
#if defined(__x86_64__)
            __asm__("" : "+v"(a), "+v"(b));
#else
            __asm__("" : "+w"(a), "+w"(b));
#endif
            for (int c = 0; c < CHAINS; c++) chains[c] = STEP(chains[c], a, b);
        }
        times->end[pass] = now();
        for (int c = 0; c < CHAINS; c++) __asm__ volatile("" : : "m"(chains[c]));
    }
    return NULL;
}

int main(int argc, char **argv) {
    static struct times times[MAX_THREADS];
    pthread_t ids[MAX_THREADS];
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    if (threads < 1 || threads > MAX_THREADS) return 2;
    pthread_barrier_init(&barrier, NULL, threads);
    for (int t = 0; t < threads; t++)
        if (pthread_create(&ids[t], NULL, run, &times[t])) return 1;
    for (int t = 0; t < threads; t++) pthread_join(ids[t], NULL);
    double best = 0;
    for (int pass = 0; pass < PASSES; pass++) {
        double start = times[0].start[pass], end = times[0].end[pass];
        for (int t = 1; t < threads; t++) {
            if (times[t].start[pass] < start) start = times[t].start[pass];
            if (times[t].end[pass] > end) end = times[t].end[pass];
        }
        double rate = (double)ROUNDS * CHAINS * sizeof(vec) * threads / (end - start) / 1e9;
        if (rate > best) best = rate;
    }
    printf("%.3f\n", best);
    return 0;
}
