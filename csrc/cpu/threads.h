// A plain split of rows over std::thread: no second OpenMP runtime beside torch's.
#pragma once

#include <cstdint>

namespace wsfast {

// Calls body(context, first, last) over [0, rows), on at most `threads` threads; `work` is the number of elements in
// all, below which a new thread costs more than it saves.  Which thread takes a row never changes its result.
void split_rows(std::int64_t rows, std::int64_t work, int threads, void (*body)(const void*, std::int64_t, std::int64_t),
                const void* context);

}  // namespace wsfast
