// A small pool of std::thread: no second OpenMP runtime beside torch's.
#pragma once

#include <cstdint>

namespace wsfast {

using RowsBody = void (*)(const void* context, std::int64_t first, std::int64_t last);

// Calls body(context, first, last) over parts of [0, rows), on at most `threads` threads; `work` is
// the number of elements in all, below which a second thread costs more than it saves.  Which
// thread takes a row never changes its result.
void split_rows(std::int64_t rows, std::int64_t work, int threads, RowsBody body,
                const void* context);

}  // namespace wsfast
