/* Streaming read bandwidth: `membw THREADS` prints the best of several passes, in GB/s.
   Every thread adds up its own share of 1 GiB; the loop is plain so that the compiler vectorises it. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { PASSES = 7, MAX_THREADS = 64, LANES = 32 };
static const size_t SIZE = (size_t)1 << 30;
static pthread_barrier_t barrier;
static volatile uint64_t sink;

struct share {
    const uint64_t *from;
    size_t words;
    double start[PASSES], end[PASSES];
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void *run(void *argument) {
    struct share *share = argument;
    for (int pass = 0; pass < PASSES; pass++) {
        uint64_t lanes[LANES] = {0}, sum = 0;
        pthread_barrier_wait(&barrier);
        share->start[pass] = now();
        for (size_t i = 0; i + LANES <= share->words; i += LANES)
            for (int j = 0; j < LANES; j++) lanes[j] += share->from[i + j];
        for (int j = 0; j < LANES; j++) sum += lanes[j];
        sink = sum;
        share->end[pass] = now();
    }
    return NULL;
}

int main(int argc, char **argv) {
    static struct share shares[MAX_THREADS];
    pthread_t ids[MAX_THREADS];
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    if (threads < 1 || threads > MAX_THREADS) return 2;
    uint64_t *data = aligned_alloc((size_t)1 << 21, SIZE);
    if (!data) return 1;
    madvise(data, SIZE, MADV_HUGEPAGE);
    memset(data, 1, SIZE);
    pthread_barrier_init(&barrier, NULL, threads);
    size_t words = SIZE / sizeof *data / threads;
    for (int t = 0; t < threads; t++) {
        shares[t].from = data + t * words;
        shares[t].words = words;
        if (pthread_create(&ids[t], NULL, run, &shares[t])) return 1;
    }
    for (int t = 0; t < threads; t++) pthread_join(ids[t], NULL);
    double best = 0;
    for (int pass = 0; pass < PASSES; pass++) {
        double start = shares[0].start[pass], end = shares[0].end[pass];
        for (int t = 1; t < threads; t++) {
            if (shares[t].start[pass] < start) start = shares[t].start[pass];
            if (shares[t].end[pass] > end) end = shares[t].end[pass];
        }
        double rate = (double)SIZE / (end - start) / 1e9;
        if (rate > best) best = rate;
    }
    printf("%.3f\n", best);
    return 0;
}
