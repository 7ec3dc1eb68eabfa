// Writes the logits of llama.cpp after every token of a sequence, f32, row after row.
//
//   llama_logits MODEL.gguf IDS.txt OUT.f32 THREADS
//
// IDS.txt holds token ids separated by white space. Link against libllama of the version that
// docs/exactness.md names.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "llama.h"

int main(int argc, char ** argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: llama_logits MODEL.gguf IDS.txt OUT.f32 THREADS\n");
        return 2;
    }
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    llama_backend_init();
    llama_model * model = llama_model_load_from_file(argv[1], llama_model_default_params());
    if (!model) return 1;

    std::vector<llama_token> ids;
    std::ifstream in(argv[2]);
    for (int id; in >> id;) ids.push_back(id);

    llama_context_params params = llama_context_default_params();
    params.n_ctx = ids.size() + 8;
    params.n_batch = params.n_ubatch = 64;
    params.n_threads = params.n_threads_batch = atoi(argv[4]);
    llama_context * context = llama_init_from_model(model, params);
    if (!context) return 1;

    const int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    FILE * out = fopen(argv[3], "wb");
    llama_batch batch = llama_batch_init(64, 0, 1);
    for (size_t start = 0; start < ids.size(); start += 64) {
        const int n = (int) std::min<size_t>(64, ids.size() - start);
        batch.n_tokens = n;
        for (int i = 0; i < n; i++) {
            batch.token[i] = ids[start + i];
            batch.pos[i] = (llama_pos) (start + i);
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = 0;
            batch.logits[i] = 1;
        }
        if (llama_decode(context, batch) != 0) return 1;
        for (int i = 0; i < n; i++) {
            fwrite(llama_get_logits_ith(context, i), sizeof(float), n_vocab, out);
        }
    }
    return fclose(out) == 0 ? 0 : 1;
}
