#include "paceline/trace/understand/comm_events.h"

#include <algorithm>
#include <charconv>
#include <map>

namespace paceline::trace {
std::int64_t elements_in(std::string_view shapes) {
  std::int64_t sum = 0, product = 1;
  bool any = false;
  for (std::size_t at = 0; at < shapes.size();) {
    const char c = shapes[at];
    if (c >= '0' && c <= '9') {
      std::int64_t dimension = 0;
      const auto [end, code] = std::from_chars(shapes.data() + at, shapes.data() + shapes.size(), dimension);
      if (code != std::errc{} || __builtin_mul_overflow(product, dimension, &product)) return -1;
      any = true;
      at = static_cast<std::size_t>(end - shapes.data());
      continue;
    }
    if (c == ']') {
      if (any) sum += product;
      product = 1;
      any = false;
    }
    ++at;
  }
  return sum > 0 ? sum : -1;
}

namespace {

class Describer {
 public:
  Describer(const LinkedRows& rows, KeptNames& names) : rows_(rows), names_(names) {}

  CommEvent describe(Row row) {
    const Slices& slices = rows_.trace.slices;
    CommEvent event;
    event.begin = slices.start[row];
    event.end = slices.end(row);
    event.name = names_.keep(slices.name[row]);
    event.on_device = rows_.has_device;
    event.kind = event.on_device ? kind_of_kernel(rows_.trace.name(row)) : kind_of_span(rows_.trace.name(row));
    const Row launch = event.on_device ? rows_.launcher[row] : row;
    if (const CollectiveArgs* args = args_of(row)) describe_by_args(*args, event);
    if (event.on_device) describe_by_launch(launch, event);
    if (event.elements < 0 && slices.shapes[row] != base::kNone<NameId>) {
      event.elements = elements_in(rows_.trace.names.text(slices.shapes[row]));
    }
    event.issued = launch == kNoRow ? event.begin : slices.start[launch];
    event.layer = names_.keep(rows_.span_around(launch));
    return event;
  }

 private:
  const CollectiveArgs* args_of(Row row) const {
    const auto& all = rows_.trace.collective_args;
    const auto at = std::lower_bound(all.begin(), all.end(), row,
                                     [](const CollectiveArgs& args, Row wanted) { return args.row < wanted; });
    return at != all.end() && at->row == row ? &*at : nullptr;
  }

  /// The span that stands for the collective on the host: arguments of record_param_comms, or an "nccl:..." annotation.
  void describe_by_launch(Row launch, CommEvent& event) {
    constexpr int kHighest = 12;  // levels of nesting to look through
    Row row = launch;
    for (int level = 0; row != kNoRow && level < kHighest; ++level, row = rows_.parent[row]) {
      if (const CollectiveArgs* args = args_of(row)) describe_by_args(*args, event);
      const std::string_view name = rows_.trace.name(row);
      const bool tells = is_communication_span(name);
      if (tells && (event.kind == CollectiveKind::kSendRecv || event.kind == CollectiveKind::kUnknown)) {
        const CollectiveKind kind = kind_of_span(name);
        if (kind != CollectiveKind::kNone && kind != CollectiveKind::kUnknown) event.kind = kind;
      }
      if (tells && event.elements < 0 && rows_.trace.slices.shapes[row] != base::kNone<NameId>) {
        event.elements = elements_in(rows_.trace.names.text(rows_.trace.slices.shapes[row]));
      }
    }
  }

  /// "[0, 1] as 5": rank lists tell groups of one name apart, names tell groups of the same ranks apart (a job may have
  /// several, each with its own order). Kineto cuts long lists, then the name has to do.
  NameId group_of(const CollectiveArgs& args) {
    const bool whole = args.group_ranks != base::kNone<NameId> && !rows_.trace.names.text(args.group_ranks).empty() &&
                       rows_.trace.names.text(args.group_ranks).find("...") == std::string_view::npos;
    if (!whole) return names_.keep(args.group);
    if (args.group == base::kNone<NameId>) return names_.keep(args.group_ranks);
    const auto [known, added] = groups_.try_emplace({args.group_ranks, args.group});
    if (added) {
      std::string text(rows_.trace.names.text(args.group_ranks));
      known->second = names_.add(text.append(kGroupAs).append(rows_.trace.names.text(args.group)));
    }
    return known->second;
  }

  void describe_by_args(const CollectiveArgs& args, CommEvent& event) {
    if (event.group == base::kNone<NameId>) {
      event.group = group_of(args);
    }
    if (event.sequence < 0) event.sequence = args.sequence;
    if (event.elements < 0) event.elements = std::max(args.in_elements, args.out_elements);
    if (event.dtype == base::kNone<NameId>) event.dtype = names_.keep(args.dtype);
    if (args.collective != base::kNone<NameId> &&
        (event.kind == CollectiveKind::kSendRecv || event.kind == CollectiveKind::kUnknown)) {
      const CollectiveKind kind = kind_of_span(rows_.trace.names.text(args.collective));
      if (kind != CollectiveKind::kNone && kind != CollectiveKind::kUnknown) event.kind = kind;
    }
  }

  const LinkedRows& rows_;
  KeptNames& names_;
  std::map<std::pair<NameId, NameId>, NameId> groups_;
};

}  // namespace

std::vector<CommEvent> communication_events(const LinkedRows& rows, KeptNames& names) {
  Describer describer(rows, names);
  std::vector<CommEvent> events;
  for (const Row row : rows.used) {
    if (rows.use[row] == Use::kCommunication) events.push_back(describer.describe(row));
  }
  return events;
}

}  // namespace paceline::trace
