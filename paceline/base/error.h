#pragma once
#include <stdexcept>
#include <string>

namespace paceline {

/// What kind of failure ends a request; the value is the exit code of the command line.
enum class ErrorKind {
  kBoundBroken = 1,   // ran, but a bound the user set with --fail-on is broken
  kUsage = 2,         // wrong arguments
  kBadInput = 3,      // a file or a value that cannot be used
  kInfeasible = 4,    // no feasible answer exists
  kSystem = 5,        // a peer or the operating system failed
  kDamagedInput = 6,  // the input is damaged; the result is from what was readable
  kBug = 70,          // a bug in Paceline
  kInterrupted = 130  // Ctrl-C; partial results are kept
};

/// Thrown at the boundary where a fault is understood. `where` names file, line or byte, rank or field; `what` says
/// what was read, what was expected and what to do.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string where, const std::string& what)
      : std::runtime_error(where.empty() ? what : where + ": " + what), kind_(kind), where_(std::move(where)) {}

  ErrorKind kind() const { return kind_; }
  const std::string& where() const { return where_; }
  int exit_code() const { return static_cast<int>(kind_); }

 private:
  ErrorKind kind_;
  std::string where_;
};

namespace base {
[[noreturn]] void check_failed(const char* condition, const char* file, int line);
}  // namespace base
}  // namespace paceline

/// States what only a bug in Paceline can break.
#define PL_CHECK(condition) \
  (static_cast<bool>(condition) ? void(0) : ::paceline::base::check_failed(#condition, __FILE__, __LINE__))
