#include "paceline/trace/memory/memory.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "paceline/base/error.h"
#include "paceline/base/file.h"
#include "paceline/base/test_files.h"
#include "paceline/trace/reader.h"

namespace paceline::trace {
namespace {

constexpr int kMain = 1, kAutograd = 2;

/// Two steps of forward, backward and optimizer, 100 us each part, with the allocations that a test adds.
class Recording {
 public:
  Recording() {
    for (int step = 0; step < 2; ++step) {
      const int at = step * 400;
      slice("user_annotation", fmt::format("ProfilerStep#{}", step), kMain, at, 390);
      slice("cpu_op", "aten::linear", kMain, at + 10, 80);
      slice("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", kAutograd, at + 110, 80);
      slice("cpu_op", "aten::mm", kAutograd, at + 120, 50);
      slice("user_annotation", "Optimizer.step#SGD.step", kMain, at + 210, 80);
    }
  }

  void slice(std::string_view category, std::string_view name, int thread, int start, int duration) {
    add(fmt::format(R"({{"ph":"X","cat":"{}","name":"{}","pid":1,"tid":{},"ts":{},"dur":{},"args":{{}}}})", category,
                    name, thread, start, duration));
  }
  void memory(int thread, int time, std::int64_t address, std::int64_t bytes, std::int64_t total, int device = 0) {
    add(fmt::format(R"({{"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":1,"tid":{},"ts":{},"args":)"
                    R"({{"Device Type":{},"Device Id":{},"Addr":{},"Bytes":{},"Total Allocated":{},)"
                    R"("Total Reserved":4096}}}})",
                    thread, time, device < 0 ? 0 : 1, device, address, bytes, total));
  }
  void block(std::int64_t address, std::int64_t bytes, int thread, int from, int to) {
    memory(thread, from, address, bytes, -1);
    if (to >= 0) memory(thread, to, address, -bytes, -1);
  }

  std::string text() const { return "{\"traceEvents\":[" + events_ + "]}"; }
  RankTrace read(bool allocator = true) const {
    const std::string document = text();
    const auto source = base::memory_source(document);
    return read_document("memory", *source, {.allocator = allocator});
  }

 private:
  void add(const std::string& event) { events_ += (events_.empty() ? "" : ",") + event; }
  std::string events_;
};

const MemoryOwner* owner(const std::vector<MemoryOwner>& owners, MemoryClass kind) {
  const auto found =
      std::find_if(owners.begin(), owners.end(), [&](const MemoryOwner& one) { return one.kind == kind; });
  return found == owners.end() ? nullptr : &*found;
}

std::int64_t sum(const std::vector<MemoryOwner>& owners) {
  std::int64_t bytes = 0;
  for (const MemoryOwner& one : owners) bytes += one.bytes;
  return bytes;
}

TEST(Memory, IsReadOnlyWhenAskedFor) {
  Recording recording;
  recording.memory(kMain, 20, 1, 100, 1100);
  EXPECT_TRUE(recording.read(false).allocator.empty());
  const RankTrace trace = recording.read();
  ASSERT_EQ(trace.allocator.size(), 1u);
  const AllocatorEvent& event = trace.allocator[0];
  EXPECT_EQ(event.time, 20'000);
  EXPECT_EQ(event.bytes, 100);
  EXPECT_EQ(event.allocated, 1100);
  EXPECT_EQ(event.reserved, 4096);
  EXPECT_EQ(event.address, 1u);
  EXPECT_EQ(event.device, 0);
  EXPECT_EQ(trace.lanes[base::index(event.lane)].thread, "1");
}

TEST(Memory, RunsFromTheFirstTotalByBytesAloneAndCountsWhereTheRecordDisagrees) {
  Recording recording;
  recording.memory(kMain, 50, 2, -30, 1120);  // not in the order of time
  recording.memory(kMain, 20, 1, 100, 1100);
  recording.memory(kMain, 30, 2, 50, 1150);
  recording.memory(kMain, 60, 3, 10, 9999);
  const auto devices = memory_of(recording.read());
  ASSERT_EQ(devices.size(), 1u);
  std::vector<std::int64_t> totals;
  for (const MemoryPoint& point : devices[0].timeline) totals.push_back(point.allocated);
  EXPECT_EQ(totals, (std::vector<std::int64_t>{1100, 1150, 1120, 1130}));
  EXPECT_EQ(devices[0].peak, 1u);
  EXPECT_EQ(devices[0].disagreements, 1);
  EXPECT_EQ(devices[0].peak_step, "ProfilerStep#0");
  EXPECT_EQ(devices[0].peak_part, "forward");
  ASSERT_NE(owner(devices[0].classes, MemoryClass::kBefore), nullptr);
  EXPECT_EQ(owner(devices[0].classes, MemoryClass::kBefore)->bytes, 1000);
}

TEST(Memory, TellsWhatABlockIsForByWhenItIsAllocatedAndFreed) {
  const std::vector<std::pair<std::int64_t, MemoryClass>> rules{
      {1, MemoryClass::kParameters},      {2, MemoryClass::kActivation},         {4, MemoryClass::kTemporary},
      {8, MemoryClass::kStepTensor},      {16, MemoryClass::kBackwardTemporary}, {32, MemoryClass::kGradient},
      {64, MemoryClass::kOptimizerState}, {128, MemoryClass::kTemporary},        {256, MemoryClass::kUntold}};
  // Each block in turn is made the peak by its size: what it is called must not depend on what else is alive.
  for (const auto& [bytes, kind] : rules) {
    Recording alone;
    const std::int64_t size = bytes << 32;
    const auto scaled = [&](std::int64_t address, std::int64_t own, int thread, int from, int to) {
      alone.block(address, own == bytes ? size : own, thread, from, to);
    };
    scaled(1, 1, kMain, 20, -1);         // forward, alive through step 1
    scaled(2, 2, kMain, 30, 130);        // forward to backward
    scaled(3, 4, kMain, 40, 50);         // within forward
    scaled(4, 8, kMain, 45, 250);        // forward to behind backward
    scaled(5, 16, kAutograd, 125, 150);  // within backward
    scaled(6, 32, kAutograd, 130, 405);  // backward to the next step
    scaled(7, 64, kMain, 220, -1);       // optimizer, alive through step 1
    scaled(8, 128, kMain, 225, 230);     // within the optimizer
    scaled(9, 256, kMain, 420, -1);      // forward of the last step
    const auto devices = memory_of(alone.read());
    ASSERT_EQ(devices.size(), 1u);
    const MemoryOwner* largest = &devices[0].classes.front();
    EXPECT_EQ(largest->kind, kind) << "block of " << bytes << ": " << memory_class_name(largest->kind);
    EXPECT_GE(largest->bytes, size);
    EXPECT_EQ(sum(devices[0].owners), devices[0].timeline[devices[0].peak].allocated);
    EXPECT_EQ(sum(devices[0].classes), devices[0].timeline[devices[0].peak].allocated);
  }
}

TEST(Memory, NamesTheModuleOrElseTheOperatorAroundAnAllocation) {
  Recording recording;
  recording.slice("python_function", "nn.Module: Linear_3", kMain, 5, 90);
  recording.block(1, 100, kMain, 20, -1);
  recording.block(2, 50, kAutograd, 130, -1);
  recording.block(3, 25, kMain, 395, -1);
  const auto devices = memory_of(recording.read());
  ASSERT_EQ(devices.size(), 1u);
  std::vector<std::string> names;
  for (const MemoryOwner& one : devices[0].owners) names.push_back(one.name);
  EXPECT_EQ(names, (std::vector<std::string>{"nn.Module: Linear_3 / aten::linear", "AddmmBackward0 > aten::mm",
                                             "outside any operator"}));
}

TEST(Memory, KeepsHostAndDevicesApart) {
  Recording recording;
  recording.memory(kMain, 20, 1, 100, 1100, 3);
  recording.memory(kMain, 21, 1, 7, -1, -1);
  const auto devices = memory_of(recording.read());
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0].device, AllocatorEvent::kHostMemory);
  EXPECT_EQ(devices[0].timeline[0].allocated, 7);
  EXPECT_EQ(devices[1].device, 3);
  EXPECT_EQ(devices[1].timeline[0].allocated, 1100);
}

TEST(Memory, SaysHowToRecordWhatIsMissing) {
  base::test::TempFolder folder;
  const auto file = folder.write("rank-0.json", Recording().text());
  try {
    load_memory({file.string()});
    FAIL() << "a trace without allocator events was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    EXPECT_NE(std::string(error.what()).find("profile_memory=True"), std::string::npos) << error.what();
  }
}

// Known values: the largest "Total Allocated" and "Total Reserved" of device 1 and the number of its events, counted by
// a script over the file's JSON.
TEST(Memory, OfARecordedJobEqualsTheAllocatorsOwnTotals) {
  const char* data = std::getenv("PACELINE_DATA");
  if (data == nullptr) GTEST_SKIP() << "SKIPPED: no data";
  const auto ranks = load_memory({std::string(data) + "/dpro/hta/df_index_resolver/df_index_resolver.json.gz"});
  ASSERT_EQ(ranks.size(), 1u);
  EXPECT_EQ(ranks[0].header.rank, 1u);
  ASSERT_EQ(ranks[0].devices.size(), 2u);
  const DeviceMemory& gpu = ranks[0].devices[1];
  EXPECT_EQ(gpu.device, 1);
  EXPECT_EQ(gpu.timeline.size(), 26'770u);
  EXPECT_EQ(gpu.disagreements, 0);
  EXPECT_EQ(gpu.timeline[gpu.peak].allocated, 6'629'508'096);
  EXPECT_EQ(gpu.reserved_peak, 12'782'141'440);
  EXPECT_EQ(sum(gpu.owners), 6'629'508'096);
  EXPECT_EQ(sum(gpu.classes), 6'629'508'096);
}

}  // namespace
}  // namespace paceline::trace
