#include "paceline/gnn/hetero_sampler.h"

#include <fmt/core.h>

#include <variant>

#include "paceline/base/error.h"
#include "paceline/gnn/local_ids.h"
#include "paceline/gnn/random.h"
#include "paceline/gnn/row_picker.h"

namespace paceline::gnn {

struct TypedSampler::Impl {
  struct Step {
    std::size_t source;
    std::size_t target;
    SampleOptions options;  // with the relation's own fanout; the picker refers to it
    std::variant<RowPicker<std::uint32_t>, RowPicker<std::uint64_t>> picker;
  };

  Impl(const Dataset& dataset, const SampleOptions& options, const std::vector<std::vector<int>>& fanout)
      : dataset_(dataset), options_(options), ids_(dataset.node_types.size()) {
    if (options.method == Method::kLayer)
      throw Error(ErrorKind::kUsage, "sampling", "layer-wise sampling of typed graphs is not supported");
    if (fanout.size() > dataset.relations.size())
      throw Error(ErrorKind::kUsage, "sampling",
                  fmt::format("fanouts for {} relations, the graph has {}", fanout.size(), dataset.relations.size()));
    for (std::size_t r = 0; r < dataset.relations.size(); ++r) {
      const Relation& relation = dataset.relations[r];
      options_.fanout = r < fanout.size() ? fanout[r] : options.fanout;
      hops_ = std::max(hops_, options_.fanout.size());
      try {
        relation.graph.visit([&](const auto& rows) { check_options(rows, options_); });
      } catch (const Error& error) {
        throw Error(error.kind(), fmt::format("relation {}:{}:{}", relation.source, relation.name, relation.target),
                    error.what());
      }
      steps_.push_back(std::make_unique<Step>(Step{type_of(relation.source), type_of(relation.target), options_,
                                                   RowPicker<std::uint32_t>(relation.graph.narrow_rows(), options_)}));
      // The picker keeps a reference to the options of its own step.
      Step& step = *steps_.back();
      if (relation.graph.wide())
        step.picker.emplace<RowPicker<std::uint64_t>>(relation.graph.wide_rows(), step.options);
      else
        step.picker.emplace<RowPicker<std::uint32_t>>(relation.graph.narrow_rows(), step.options);
    }
    disjoint_ = options.disjoint || options.when != When::kAny;
  }

  std::size_t type_of(const std::string& name) const {
    for (std::size_t t = 0; t < dataset_.node_types.size(); ++t)
      if (dataset_.node_types[t].name == name) return t;
    throw Error(ErrorKind::kBadInput, "relation", fmt::format("names node type '{}', which the dataset has not", name));
  }

  void sample(std::size_t seed_type, std::span<const std::uint64_t> seeds, BatchKey key, TypedSample& out,
              std::span<const std::int64_t> times) {
    if (seed_type >= ids_.size())
      throw Error(ErrorKind::kUsage, "sampling", fmt::format("seed type {}, the graph has {}", seed_type, ids_.size()));
    if (options_.when != When::kAny && times.size() != seeds.size())
      throw Error(ErrorKind::kUsage, "sampling",
                  fmt::format("{} seeds, but {} seed times", seeds.size(), times.size()));
    out.types.assign(ids_.size(), {});
    out.relations.assign(steps_.size(), {});
    for (HashIds& ids : ids_) ids.start();
    for (std::size_t i = 0; i < seeds.size(); ++i) {
      if (seeds[i] >= dataset_.node_types[seed_type].count)
        throw Error(ErrorKind::kUsage, fmt::format("seed {}", i),
                    fmt::format("is node {}, type {} has {}", seeds[i], dataset_.node_types[seed_type].name,
                                dataset_.node_types[seed_type].count));
      number(out, seed_type, seeds[i], static_cast<std::uint32_t>(disjoint_ ? i : 0));
    }
    const std::uint64_t batch_key = key_of(key_of(key_of(mix(options_.seed + 1), key.epoch), key.batch), 0);
    std::vector<std::size_t> begin(ids_.size(), 0);
    std::vector<std::size_t> end(ids_.size(), 0);
    for (std::size_t t = 0; t < ids_.size(); ++t) out.types[t].per_hop.push_back(out.types[t].nodes.size());
    for (std::size_t hop = 0; hop < hops_; ++hop) {
      for (std::size_t t = 0; t < ids_.size(); ++t) end[t] = out.types[t].nodes.size();
      for (std::size_t r = 0; r < steps_.size(); ++r)
        expand(r, hop, batch_key, begin[steps_[r]->target], end[steps_[r]->target], out, times);
      for (std::size_t t = 0; t < ids_.size(); ++t) out.types[t].per_hop.push_back(out.types[t].nodes.size() - end[t]);
      begin = end;
    }
  }

 private:
  std::uint32_t number(TypedSample& out, std::size_t type, std::uint64_t node, std::uint32_t tree) {
    TypedSample::Nodes& list = out.types[type];
    const auto next = static_cast<std::uint32_t>(list.nodes.size());
    const std::uint32_t id = ids_[type].find_or_add(node, tree, next);
    if (id == next) {
      list.nodes.push_back(node);
      if (disjoint_) list.tree.push_back(tree);
    }
    return id;
  }

  void expand(std::size_t r, std::size_t hop, std::uint64_t batch_key, std::size_t begin, std::size_t end,
              TypedSample& out, std::span<const std::int64_t> times) {
    Step& step = *steps_[r];
    TypedSample::Edges& edges = out.relations[r];
    const std::size_t before = edges.source.size();
    const int fanout = hop < step.options.fanout.size() ? step.options.fanout[hop] : 0;
    // LABOR shares one number per node over all relations and rows of a hop; other methods draw per relation.
    const bool labor = step.options.method == Method::kLabor;
    const std::uint64_t hop_key = key_of(batch_key, labor && step.options.labor_shares_hops ? 0 : hop);
    const std::uint64_t key = labor ? hop_key : key_of(hop_key, r);
    dataset_.relations[r].graph.visit([&](const auto& rows) {
      using Node = std::remove_cvref_t<decltype(rows.neighbours[0])>;
      auto& picker = std::get<RowPicker<Node>>(step.picker);
      for (std::size_t i = begin; i < end && fanout != 0; ++i) {
        const std::uint32_t tree = disjoint_ ? out.types[step.target].tree[i] : 0;
        positions_.clear();
        weights_.clear();
        picker.pick(out.types[step.target].nodes[i], key, tree, times.empty() ? 0 : times[tree], fanout, positions_,
                    weights_);
        for (const std::uint64_t position : positions_) {
          edges.source.push_back(number(out, step.source, rows.neighbours[position], tree));
          edges.target.push_back(static_cast<std::uint32_t>(i));
          edges.edge_ids.push_back(rows.edge_id(position));
        }
      }
    });
    edges.per_hop.push_back(edges.source.size() - before);
  }

  const Dataset& dataset_;
  SampleOptions options_;
  std::size_t hops_ = 0;
  bool disjoint_ = false;
  std::vector<HashIds> ids_;
  std::vector<std::unique_ptr<Step>> steps_;
  std::vector<std::uint64_t> positions_;
  std::vector<float> weights_;
};

TypedSampler::TypedSampler(const Dataset& dataset, SampleOptions options, std::vector<std::vector<int>> fanout)
    : impl_(std::make_unique<Impl>(dataset, options, fanout)) {}
TypedSampler::~TypedSampler() = default;

void TypedSampler::sample(std::size_t seed_type, std::span<const std::uint64_t> seeds, BatchKey key, TypedSample& out,
                          std::span<const std::int64_t> seed_times) {
  impl_->sample(seed_type, seeds, key, out, seed_times);
}

}  // namespace paceline::gnn
