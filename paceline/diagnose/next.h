#pragma once
#include <string>

#include "paceline/diagnose/diagnosis.h"

namespace paceline::diagnose {

/// Gives each finding the command to type next. `job` is how the user named the job on the command line, quoted for a
/// shell, with the options that say how to read it.
void add_next_commands(Diagnosis& diagnosis, const std::string& job);

}  // namespace paceline::diagnose
