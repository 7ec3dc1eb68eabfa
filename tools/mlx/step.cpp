// Runs the body of the kernel that takes states through rows (crates/mlx/src/steps/step.metal) on the
// processor, with as many threads as a group has on a GPU. Reads numbers from the standard input and writes
// what the kernel gives to the standard output; the test in `mod.rs` beside the kernel compiles it, and says
// in which order. To have missing barriers found:
//
//   c++ -std=c++20 -g -fsanitize=thread -DOF_HEADS=3 -DOF_K=20 -DOF_V=37 -DOF_WIDTH=32 -DOF_PARTS=8 ...

#include <barrier>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

namespace {

// What Metal gives a kernel. Groups run one after the other, so what a group shares is static.
struct uint3 {
    unsigned x, y, z;
};
thread_local uint3 thread_position_in_grid, thread_position_in_threadgroup;
std::unique_ptr<std::barrier<>> group;

enum class mem_flags { mem_threadgroup };
void threadgroup_barrier(mem_flags) {
    group->arrive_and_wait();
}

struct Arrays {
    std::vector<float> keys, queries, values, decays, strengths, before, said, kept;
    std::vector<int32_t> counts, stops;
};

template <int K, int V, int HEADS, int WIDTH, int PARTS, bool DELTA, bool CHANNELS>
void kernel(Arrays& arrays) {
    const float* keys = arrays.keys.data();
    const float* queries = arrays.queries.data();
    const float* values = arrays.values.data();
    const float* decays = arrays.decays.data();
    [[maybe_unused]] const float* strengths = arrays.strengths.data();
    const float* before = arrays.before.data();
    const int32_t* counts = arrays.counts.data();
    const int32_t* stops = arrays.stops.data();
    float* said = arrays.said.data();
    float* kept = arrays.kept.data();
#define threadgroup static
    {
#include "../../crates/mlx/src/steps/step.metal"
    }
#undef threadgroup
}

void run(Arrays& arrays, void (*kernel)(Arrays&)) {
    for (unsigned head = 0; head < OF_HEADS; head++) {
        for (unsigned first = 0; first < OF_V; first += OF_WIDTH) {
            group = std::make_unique<std::barrier<>>(OF_WIDTH * OF_PARTS);
            std::vector<std::thread> threads;
            for (unsigned i = 0; i < OF_WIDTH * OF_PARTS; i++) {
                threads.emplace_back([&arrays, kernel, head, first, i] {
                    const unsigned x = i % OF_WIDTH, y = i / OF_WIDTH;
                    thread_position_in_threadgroup = {x, y, 0};
                    thread_position_in_grid = {first + x, y, head};
                    kernel(arrays);
                });
            }
            for (std::thread& thread : threads) {
                thread.join();
            }
        }
    }
}

template <typename T>
std::vector<T> read(size_t n) {
    std::vector<T> numbers(n);
    if (std::fread(numbers.data(), sizeof(T), n, stdin) != n) {
        std::exit(1);
    }
    return numbers;
}

void write(const std::vector<float>& numbers) {
    if (std::fwrite(numbers.data(), sizeof(float), numbers.size(), stdout) != numbers.size()) {
        std::exit(1);
    }
}

} // namespace

int main() {
    const std::vector<int32_t> rules = read<int32_t>(2);
    Arrays arrays;
    arrays.counts = read<int32_t>(2);
    const size_t rows = arrays.counts[0], n_kept = arrays.counts[1];
    const size_t heads = rows * OF_HEADS, matrices = OF_HEADS * OF_K * OF_V;
    arrays.stops = read<int32_t>(n_kept);
    arrays.keys = read<float>(heads * OF_K);
    arrays.queries = read<float>(heads * OF_K);
    arrays.values = read<float>(heads * OF_V);
    arrays.decays = read<float>(rules[1] ? heads * OF_K : heads);
    arrays.strengths = read<float>(rules[0] || !rules[1] ? heads : heads * OF_K);
    arrays.before = read<float>(matrices);
    arrays.said.resize(heads * OF_V);
    arrays.kept.resize(n_kept * matrices);
    constexpr int K = OF_K, V = OF_V, HEADS = OF_HEADS, WIDTH = OF_WIDTH, PARTS = OF_PARTS;
    if (rules[0]) {
        run(arrays, rules[1] ? kernel<K, V, HEADS, WIDTH, PARTS, true, true>
                             : kernel<K, V, HEADS, WIDTH, PARTS, true, false>);
    } else {
        run(arrays, rules[1] ? kernel<K, V, HEADS, WIDTH, PARTS, false, true>
                             : kernel<K, V, HEADS, WIDTH, PARTS, false, false>);
    }
    write(arrays.said);
    write(arrays.kept);
}
