#include "threads.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

namespace wsfast {
namespace {

// Rows are taken in small parts, by whoever is free.  Torch's OpenMP threads spin on their cores
// for a while after each product, so a helper may come late or not at all: the caller then does the
// work alone, and waits for nobody.
struct Job {
  RowsBody body;
  const void* context;
  std::int64_t rows, part;
  std::atomic<std::int64_t> next{0}, done{0};

  void work() {
    for (;;) {
      const std::int64_t first = next.fetch_add(part);
      if (first >= rows) return;
      const std::int64_t last = std::min(rows, first + part);
      body(context, first, last);
      done.fetch_add(last - first, std::memory_order_release);
    }
  }
  bool finished() const { return done.load(std::memory_order_acquire) == rows; }
};

#if defined(__unix__) || defined(__APPLE__)
pid_t process() { return getpid(); }
#else
int process() { return 0; }
#endif

class Pool {
 public:
  const decltype(process()) owner = process();

  // False where another caller is using the pool.
  bool run(const std::shared_ptr<Job>& job, int helpers) {
    const std::unique_lock<std::mutex> busy(in_use_, std::try_to_lock);
    if (!busy) return false;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      grow(helpers);
      job_ = job;
      wanted_ = helpers;
    }
    for (int k = 0; k < helpers; ++k) wake_.notify_one();
    job->work();
    while (!job->finished()) std::this_thread::yield();  // a helper is at its last part
    const std::lock_guard<std::mutex> lock(mutex_);
    wanted_ = 0;
    job_.reset();
    return true;
  }

 private:
  void grow(int helpers) {
    for (; size_ < helpers; ++size_) {
      try {
        std::thread([this] { serve(); }).detach();
      } catch (const std::system_error&) {
        return;  // no thread to be had: fewer help
      }
    }
  }

  void serve() {
    for (;;) {
      std::shared_ptr<Job> job;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [this] { return wanted_ > 0; });
        --wanted_;
        job = job_;
      }
      job->work();
    }
  }

  std::mutex in_use_, mutex_;
  std::condition_variable wake_;
  std::shared_ptr<Job> job_;
  int wanted_ = 0, size_ = 0;
};

// Never destroyed: its threads sleep in it when the process ends.  A forked child has none of them,
// and its parent's locks may be held by threads that it does not have: it starts anew, by a way
// that takes no lock.
Pool& pool() {
  static std::atomic<Pool*> current{nullptr};
  Pool* found = current.load(std::memory_order_acquire);
  if (found != nullptr && found->owner == process()) return *found;
  auto* fresh = new Pool;
  if (current.compare_exchange_strong(found, fresh, std::memory_order_acq_rel)) return *fresh;
  delete fresh;  // another thread was first; this one has no threads yet
  return *found;
}

}  // namespace

void split_rows(std::int64_t rows, std::int64_t work, int threads, RowsBody body,
                const void* context) {
  constexpr std::int64_t kWorthAThread = 1 << 15, kPartsPerThread = 8;
  const std::int64_t useful = std::min<std::int64_t>({threads, rows, work / kWorthAThread});
  if (useful > 1) {
    const auto job = std::make_shared<Job>();
    job->body = body;
    job->context = context;
    job->rows = rows;
    job->part = std::max<std::int64_t>(1, rows / (useful * kPartsPerThread));
    if (pool().run(job, static_cast<int>(useful) - 1)) return;
  }
  body(context, 0, rows);
}

}  // namespace wsfast
