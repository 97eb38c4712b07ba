#include "paceline/base/error.h"

namespace paceline::base {

void check_failed(const char* condition, const char* file, int line) {
  throw Error(ErrorKind::kBug, std::string(file) + ":" + std::to_string(line),
              std::string("internal check failed: ") + condition + "; this is a bug in Paceline, please report it");
}

}  // namespace paceline::base
