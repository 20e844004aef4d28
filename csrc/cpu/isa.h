// Which instruction sets this machine runs: CPUID and the operating system (XCR0) both asked.
#pragma once

namespace wsfast {

enum class Isa : int { kBaseline = 0, kAvx2 = 1, kAvx512 = 2 };

Isa detect_isa();
const char* isa_name(Isa isa);

}  // namespace wsfast
