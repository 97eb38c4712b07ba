#include "paceline/report/speedscope.h"

#include <algorithm>
#include <limits>

#include "paceline/report/json_file.h"

namespace paceline::report {
namespace {

using trace::Row;

class Writer {
 public:
  Writer(std::span<const trace::RankTrace> ranks, std::span<const trace::Clock> clocks, const std::string& path)
      : ranks_(ranks), clocks_(clocks), out_(path) {}

  void run() {
    collect_frames();
    fmt::format_to(out_.to(),
                   "{{\"$schema\": \"https://www.speedscope.app/file-format-schema.json\",\n\"exporter\": "
                   "\"paceline\", \"shared\": {{\"frames\": [");
    for (std::uint32_t id = 0; id < frames_.size(); ++id) {
      fmt::format_to(out_.to(), "{}\n{{\"name\": \"", id == 0 ? "" : ",");
      append_escaped(out_.to(), frames_.text(base::NameId{id}));
      fmt::format_to(out_.to(), "\"}}");
      out_.flush_if_full();
    }
    fmt::format_to(out_.to(), "\n]}},\n\"profiles\": [");
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      for (const trace::Lane& lane : ranks_[i].lanes) write_lane(i, lane);
    }
    fmt::format_to(out_.to(), "\n]}}\n");
    out_.finish();
  }

 private:
  void collect_frames() {
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      std::vector<std::uint32_t>& frames = frame_of_.emplace_back(ranks_[i].names.size());
      for (const base::NameId name : ranks_[i].slices.name) {
        frames[base::index(name)] = base::index(frames_.intern(ranks_[i].names.text(name)));
      }
      const trace::Slices& slices = ranks_[i].slices;
      for (Row row = 0; row < slices.size(); ++row) base_ = std::min(base_, aligned(i, slices.start[row]));
    }
  }

  std::int64_t aligned(std::size_t rank, std::int64_t time) const {
    return clocks_.empty() ? time : clocks_[rank].align(time);
  }

  void write_lane(std::size_t index, const trace::Lane& lane) {
    const trace::Slices& slices = ranks_[index].slices;
    std::vector<std::vector<std::int64_t>> ends;
    std::vector<std::vector<Row>> tracks;
    for (Row row = lane.begin; row < lane.end; ++row) {
      const std::size_t track = track_for(ends, slices.start[row], slices.end(row));
      if (track == tracks.size()) tracks.emplace_back();
      tracks[track].push_back(row);
    }
    const std::string name = lane.name.empty() ? (lane.device ? "stream " : "thread ") + lane.thread : lane.name;
    for (std::size_t track = 0; track < tracks.size(); ++track) {
      write_profile(index,
                    fmt::format("rank {}, {}{}", *ranks_[index].rank, name,
                                track == 0 ? std::string() : fmt::format(" ({})", track + 1)),
                    tracks[track]);
    }
  }

  void write_profile(std::size_t index, const std::string& name, const std::vector<Row>& rows) {
    const trace::Slices& slices = ranks_[index].slices;
    std::int64_t last = std::numeric_limits<std::int64_t>::min();
    for (const Row row : rows) last = std::max(last, slices.end(row));
    fmt::format_to(out_.to(), "{}\n{{\"type\": \"evented\", \"unit\": \"nanoseconds\", \"name\": \"",
                   first_profile_ ? "" : ",");
    first_profile_ = false;
    append_escaped(out_.to(), name);
    fmt::format_to(out_.to(), "\", \"startValue\": {}, \"endValue\": {}, \"events\": [",
                   aligned(index, slices.start[rows.front()]) - base_, aligned(index, last) - base_);
    std::vector<Row> open;
    bool first = true;
    const auto event = [&](char type, Row row, std::int64_t time) {
      fmt::format_to(out_.to(), "{}\n{{\"type\": \"{}\", \"frame\": {}, \"at\": {}}}", first ? "" : ",", type,
                     frame_of_[index][base::index(slices.name[row])], aligned(index, time) - base_);
      first = false;
      out_.flush_if_full();
    };
    const auto close_until = [&](std::int64_t time) {
      while (!open.empty() && slices.end(open.back()) <= time) {
        event('C', open.back(), slices.end(open.back()));
        open.pop_back();
      }
    };
    for (const Row row : rows) {
      close_until(slices.start[row]);
      event('O', row, slices.start[row]);
      open.push_back(row);
    }
    close_until(std::numeric_limits<std::int64_t>::max());
    fmt::format_to(out_.to(), "\n]}}");
  }

  const std::span<const trace::RankTrace> ranks_;
  const std::span<const trace::Clock> clocks_;
  JsonFile out_;
  base::InternTable frames_;
  std::vector<std::vector<std::uint32_t>> frame_of_;  // of each rank, by its names
  std::int64_t base_ = std::numeric_limits<std::int64_t>::max();
  bool first_profile_ = true;
};

}  // namespace

void write_speedscope(std::span<const trace::RankTrace> ranks, std::span<const trace::Clock> clocks,
                      const std::string& path) {
  Writer(ranks, clocks, path).run();
}

}  // namespace paceline::report
