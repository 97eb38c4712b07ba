// Work of a fixed size: 400 million dependent integer steps over a table that stays in the first-level cache. Its time
// tells two machines, or two hours of one machine, apart.
#include <array>
#include <cstdint>
#include <cstdio>

int main() {
  constexpr std::uint64_t kSteps = 400'000'000;
  std::array<std::uint64_t, 1024> table{};
  for (std::uint64_t i = 0; i < table.size(); ++i) table[i] = i * 0x9E3779B97F4A7C15u;
  std::uint64_t state = 1;
  for (std::uint64_t i = 0; i < kSteps; ++i) state = (state << 7 | state >> 57) ^ table[state % table.size()];
  std::printf("%016llx\n", static_cast<unsigned long long>(state));
}
