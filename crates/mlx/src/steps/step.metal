// Takes the matrices of all heads of a layer through the rows of a sequence: the body of a kernel, whose
// frame MLX makes. What it computes is said in `mod.rs`, whose plan is its slow twin; nothing here knows
// which model a layer is of. Compiled as C++ by `tools/mlx/step.cpp`, which is how it is tested where
// there is no Metal.
//
// A group of threads has WIDTH columns of a head's matrix, and PARTS threads share a column, each with
// OWN neighbouring rows of it, which it keeps at hand from the first row of the sequence to the last.
// Sums over a column are put together part by part, in order.
//
// Numbers in the template: K, V (rows and columns of a matrix), HEADS, WIDTH, PARTS; DELTA (whether a
// column's news is what its matrix does not know yet), CHANNELS (whether every row of a matrix has a decay
// of its own). `counts` is how many rows there are, and after how many a matrix is kept.

constexpr int OWN = (K + PARTS - 1) / PARTS;
threadgroup float sums[PARTS][WIDTH];

const int column = int(thread_position_in_grid.x);
const int head = int(thread_position_in_grid.z);
const int lane = int(thread_position_in_threadgroup.x);
const int part = int(thread_position_in_threadgroup.y);
const bool inside = column < V;

float own[OWN];
for (int i = 0; i < OWN; i++) {
    const int k = part * OWN + i;
    own[i] = inside && k < K ? before[(head * K + k) * V + column] : 0.0f;
}

for (int row = 0; row < counts[0]; row++) {
    const int at = row * HEADS + head;
    float known = 0.0f;
    for (int i = 0; i < OWN; i++) {
        const int k = part * OWN + i;
        if (k < K) {
            own[i] *= decays[CHANNELS ? at * K + k : at];
            known += own[i] * keys[at * K + k];
        }
    }
    float news = inside ? values[at * V + column] : 0.0f;
    if (DELTA) {
        sums[part][lane] = known;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        float whole = 0.0f;
        for (int p = 0; p < PARTS; p++) {
            whole += sums[p][lane];
        }
        news = (news - whole) * strengths[at];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    float found = 0.0f;
    for (int i = 0; i < OWN; i++) {
        const int k = part * OWN + i;
        if (k < K) {
            own[i] += keys[at * K + k] * news;
            found += own[i] * queries[at * K + k];
        }
    }
    sums[part][lane] = found;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (part == 0 && inside) {
        float whole = 0.0f;
        for (int p = 0; p < PARTS; p++) {
            whole += sums[p][lane];
        }
        said[at * V + column] = whole;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int j = 0; j < counts[1]; j++) {
        if (stops[j] != row || !inside) {
            continue;
        }
        for (int i = 0; i < OWN; i++) {
            const int k = part * OWN + i;
            if (k < K) {
                kept[((j * HEADS + head) * K + k) * V + column] = own[i];
            }
        }
    }
}
