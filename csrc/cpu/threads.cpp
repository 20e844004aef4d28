#include "threads.h"

#include <algorithm>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace wsfast {

void split_rows(std::int64_t rows, std::int64_t work, int threads, void (*body)(const void*, std::int64_t, std::int64_t),
                const void* context) {
  constexpr std::int64_t kWorkPerThread = 1 << 16;
  const std::int64_t wanted = std::min<std::int64_t>({threads, rows, work / kWorkPerThread});
  const std::int64_t parts = std::max<std::int64_t>(1, wanted);
  std::vector<std::thread> others;
  others.reserve(static_cast<std::size_t>(parts - 1));
  std::int64_t first = 0;
  for (std::int64_t part = 0; part + 1 < parts; ++part) {
    const std::int64_t last = rows * (part + 1) / parts;
    try {
      others.emplace_back(body, context, first, last);
    } catch (const std::system_error&) {
      break;  // no thread to be had: the caller's own does the rest
    }
    first = last;
  }
  body(context, first, rows);
  for (std::thread& other : others) other.join();
}

}  // namespace wsfast
