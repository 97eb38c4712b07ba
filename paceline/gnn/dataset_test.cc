#include "paceline/gnn/dataset.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "paceline/base/error.h"
#include "paceline/gnn/graph_file.h"
#include "paceline/gnn/npy.h"

namespace paceline::gnn {
namespace {
namespace fs = std::filesystem;

EdgeList parse(std::string_view text, Defects& defects, const TextOptions& options = {}) {
  const auto bytes = base::memory_source(text);
  return read_edge_text(*bytes, "e.csv", options, defects);
}

TEST(EdgeText, UnderstandsSeparatorsHeadersAndComments) {
  for (const char* text :
       {"src,dst\n0,1\n2,3\n", "0 1\n2 3", "# c\n0\t1\r\n2\t3\r\n", "% c\n0;1\n2;3\n", "0   1\n2 \t3\n"}) {
    Defects defects;
    const EdgeList edges = parse(text, defects);
    EXPECT_EQ(edges.source, (std::vector<std::uint64_t>{0, 2})) << text;
    EXPECT_EQ(edges.target, (std::vector<std::uint64_t>{1, 3})) << text;
    EXPECT_TRUE(defects.rows().empty()) << defects.to_string();
  }
}

TEST(EdgeText, TakesColumnsByName) {
  Defects defects;
  const EdgeList edges = parse("time,dst,note,src,weight\n1289241941.53378,4,x,5,-2.5\n", defects);
  EXPECT_EQ(edges.source[0], 5u);
  EXPECT_EQ(edges.target[0], 4u);
  EXPECT_EQ(edges.weight[0], -2.5f);
  EXPECT_EQ(edges.time[0], 1289241941533780000);
}

TEST(EdgeText, NamesEveryDefectWithItsFirstLine) {
  const struct {
    const char* line;
    const char* kind;
  } cases[] = {{"a,1,1,1", "node id not a number"},
               {"-3,1,1,1", "negative node id"},
               {"1.5,1,1,1", "node id with decimals"},
               {",1,1,1", "node id missing"},
               {"99999999999999999999,1,1,1", "node id too large for 64 bits"},
               {"1,2,nan,1", "weight not finite"},
               {"1,2,inf,1", "weight not finite"},
               {"1,2,x,1", "weight not a number"},
               {"1,2,,1", "weight missing"},
               {"1,2,1e99,1", "weight out of range"},
               {"1,2,1,x", "time not a decimal number"},
               {"1,2,1,", "time missing"},
               {"1,2,1,99999999999999", "time too large for nanoseconds; is its unit right?"},
               {"1,2,1", "too few columns"},
               {"1x,2,1,1", "node id not a number"}};
  for (const auto& [line, kind] : cases) {
    Defects defects;
    const EdgeList edges = parse(std::string("src,dst,weight,time\n0,1,1,1\n") + line + "\n2,3,1,1\n", defects);
    EXPECT_EQ(edges.size(), 2u) << line;
    ASSERT_NE(defects.find(kind), nullptr) << line << ": " << defects.to_string();
    EXPECT_EQ(defects.find(kind)->first, "e.csv:3");
    EXPECT_TRUE(defects.damaged());
  }
  Defects defects;
  parse(std::string("0,1\n") +
            std::string("2,\0"
                        "3\n",
                        5) +
            "4,5,6\n",
        defects);
  EXPECT_NE(defects.find("zero byte in a text line"), nullptr) << defects.to_string();
  EXPECT_NE(defects.find("more columns than the first line, ignored"), nullptr) << defects.to_string();
  Defects one_based;
  parse("1 2\n0 3\n", one_based, {.one_based = true});
  EXPECT_NE(one_based.find("node id 0 in a 1-based file"), nullptr);
  Defects unreadable;
  EXPECT_THROW(parse("src,dst\nx,y\n", unreadable), Error);
  Defects overlong;
  EXPECT_EQ(parse("0,1\n" + std::string(3 << 20, '7') + "\n2,3\n", overlong).size(), 2u);
  EXPECT_NE(overlong.find("line longer than 1 MiB"), nullptr);
}

TEST(EdgeText, NeverFailsOnRandomBytes) {
  std::srand(1);
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (int j = 0; j < 60; ++j) text += "0123456789,,,  \t\n\n-.eE\"#%nai;\r"[std::rand() % 31];
    Defects defects;
    try {
      const EdgeList edges = parse(text, defects);
      EXPECT_TRUE(edges.weight.empty() || edges.weight.size() == edges.size()) << text;
      EXPECT_TRUE(edges.time.empty() || edges.time.size() == edges.size());
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    }
  }
}

class Formats : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("paceline_gnn_formats_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path write(const std::string& name, std::string_view text) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  fs::path write_gz(const std::string& name, std::string_view text) {
    fs::create_directories((folder_ / name).parent_path());
    gzFile file = gzopen((folder_ / name).c_str(), "wb");
    gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
    gzclose(file);
    return folder_ / name;
  }
  std::string error_of(const fs::path& path) {
    try {
      Defects defects;
      import_dataset(path, {}, defects);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
      return error.what();
    }
    return "none";
  }
  void expect_error(const fs::path& path, std::string_view part) {
    EXPECT_NE(error_of(path).find(part), std::string::npos) << error_of(path);
  }
  fs::path folder_;
};

std::vector<std::uint32_t> row(const Graph& graph, std::uint64_t v) {
  const auto found = graph.narrow_rows().row(v);
  return {found.begin(), found.end()};
}

TEST_F(Formats, MetisIsReadAndEveryFaultNamed) {
  Defects defects;
  // The example of the METIS 5.1 manual, figure 2(a): 7 nodes, 11 edges.
  const char* manual = "% comment\n7 11\n5 3 2\n1 3 4\n5 4 2 1\n2 3 6 7\n1 3 6\n5 4 7\n6 4\n";
  const Graph graph = read_metis(write("a.graph", manual), defects);
  EXPECT_EQ(graph.edges(), 22u);
  EXPECT_EQ(row(graph, 0), (std::vector<std::uint32_t>{1, 2, 4}));
  const Graph weighted = read_metis(write("w.graph", "2 1 001\n2 7\n1 7\n"), defects);
  EXPECT_EQ(weighted.narrow_rows().weights[0], 7.0f);
  const Graph constrained = read_metis(write("c.graph", "2 1 010 2\n4 5 2\n6 7 1\n"), defects);
  EXPECT_EQ(constrained.edges(), 2u);
  expect_error(write("b.graph", ""), "empty");
  expect_error(write("b.graph", "x 1\n"), "number of nodes is 'x'");
  expect_error(write("b.graph", "2\n"), "header needs 2 to 4 numbers");
  expect_error(write("b.graph", "2 1 7\n2\n1\n"), "format '7'");
  expect_error(write("b.graph", "2 1\n2\n"), "ends after 1 rows");
  expect_error(write("b.graph", "2 1\n2\n1\n1\n"), "more rows");
  expect_error(write("b.graph", "2 1\n3\n1\n"), "neighbour 3 is outside of 1..2");
  expect_error(write("b.graph", "2 1\n0\n1\n"), "neighbour 0 is outside");
  expect_error(write("b.graph", "2 2\n2\n1\n"), "the header's 2 edges need 4");
  expect_error(write("b.graph", "3 1\n2\n\n1\n"), "node 1 lists 2, but 2 does not list 1");
  expect_error(write("b.graph", "2 1 001\n2\n1 7\n"), "has no weight");
  expect_error(write("b.graph", "999999999 1\n2\n1\n"), "do not fit a file");
}

std::string npy(const char* type, const char* shape, std::string_view data, bool fortran = false) {
  std::string header = std::string("{'descr': '") + type + "', 'fortran_order': " + (fortran ? "True" : "False") +
                       ", 'shape': " + shape + ", }\n";
  std::string text("\x93NUMPY\x01\x00", 8);
  text += static_cast<char>(header.size());
  text += '\0';
  return text + header + std::string(data);
}

template <class T>
std::string raw(std::initializer_list<T> values) {
  std::string text(values.size() * sizeof(T), '\0');
  std::memcpy(text.data(), std::data(values), text.size());
  return text;
}

TEST_F(Formats, NpyIsReadAndEveryFaultNamed) {
  const std::string four = raw<std::int32_t>({0, 1, 2, 3});
  EXPECT_EQ(read_npy_edges(write("a.npy", npy("<i4", "(2, 2)", four))).source, (std::vector<std::uint64_t>{0, 1}));
  EXPECT_EQ(read_npy_edges(write("a.npy", npy("<i4", "(2, 2)", four, true))).source,
            (std::vector<std::uint64_t>{0, 2}));
  EXPECT_EQ(read_npy_edges(write("a.npy", npy("<i4", "(1, 2)", raw<std::int32_t>({7, 8})))).target,
            (std::vector<std::uint64_t>{8}));
  expect_error(write("b.npy", "hello world, no array"), "not a numpy array");
  expect_error(write("b.npy", npy("<i4", "(2, 3)", four)), "cut short: 16 bytes of data, the shape needs 24");
  expect_error(write("b.npy", npy(">i4", "(2, 2)", four)), "big-endian");
  expect_error(write("b.npy", npy("|O", "(2, 2)", four)), "holds");
  expect_error(write("b.npy", npy("<i4", "(4,)", four)), "expected an array of shape");
  expect_error(write("b.npy", npy("<i4", "(2, 2)", raw<std::int32_t>({0, 1, -1, 3}))), "element 2 is -1");
  expect_error(write("b.npy", npy("<f8", "(1, 2)", raw<double>({0.5, 1}))), "element 0 is 0.5");
  expect_error(write("b.npy", npy("<i4", "(9999999999, 9999999999)", four)), "too large");
  expect_error(write("b.npy", npy("<i4", "(2, 2)", four).substr(0, 20)), "cut short inside its header");
}

TEST(Half, RoundTripsEveryValue) {
  for (std::uint32_t h = 0; h < 65536; ++h) {
    const float value = half_to_float(static_cast<std::uint16_t>(h));
    if (value != value) continue;
    EXPECT_EQ(float_to_half(value), h) << h;
  }
  EXPECT_EQ(float_to_half(65520.0f), 0x7C00);
  EXPECT_EQ(float_to_half(2049.0f), float_to_half(2048.0f));  // ties to even
}

// A zip of one stored member, written by hand (APPNOTE.TXT 4.3).
std::string zip(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string body;
  std::string directory;
  const auto put = [](std::string& to, auto value) { to.append(reinterpret_cast<const char*>(&value), sizeof(value)); };
  for (const auto& [name, content] : members) {
    const auto crc = static_cast<std::uint32_t>(
        crc32(0, reinterpret_cast<const Bytef*>(content.data()), static_cast<uInt>(content.size())));
    const auto size = static_cast<std::uint32_t>(content.size());
    const auto start = static_cast<std::uint32_t>(body.size());
    const auto common = [&](std::string& to) {
      put(to, std::uint16_t{20}), put(to, std::uint16_t{0}), put(to, std::uint16_t{0}), put(to, std::uint32_t{0});
      put(to, crc), put(to, size), put(to, size), put(to, static_cast<std::uint16_t>(name.size())),
          put(to, std::uint16_t{0});
    };
    body += std::string("PK\x03\x04", 4);
    common(body);
    body += name + content;
    directory += std::string("PK\x01\x02\x14\x00", 6);
    common(directory);
    put(directory, std::uint16_t{0}), put(directory, std::uint16_t{0}), put(directory, std::uint16_t{0}),
        put(directory, std::uint32_t{0}), put(directory, start);
    directory += name;
  }
  const auto place = static_cast<std::uint32_t>(body.size());
  body += directory + std::string("PK\x05\x06\x00\x00\x00\x00", 8);
  const auto count = static_cast<std::uint16_t>(members.size());
  put(body, count), put(body, count), put(body, static_cast<std::uint32_t>(directory.size())), put(body, place),
      put(body, std::uint16_t{0});
  return body;
}

TEST_F(Formats, NpzIsReadAndEveryFaultNamed) {
  const std::string offsets = npy("<i4", "(3,)", raw<std::int32_t>({0, 1, 2}));
  const std::string indices = npy("<i8", "(2,)", raw<std::int64_t>({1, 0}));
  const std::string good = zip({{"adj_indptr.npy", offsets},
                                {"adj_indices.npy", indices},
                                {"labels.npy", npy("<i8", "(2,)", raw<std::int64_t>({4, 5}))}});
  Defects defects;
  const Dataset dataset = read_npz(write("a.npz", good), defects);
  EXPECT_EQ(row(dataset.graph(), 0), (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(dataset.labels, (std::vector<std::int64_t>{4, 5}));
  std::string damaged = good;
  damaged[50 + offsets.size() - 8] ^= 1;
  expect_error(write("b.npz", damaged), "CRC differs");
  expect_error(write("b.npz", good.substr(0, good.size() - 30)), "not a zip archive");
  expect_error(write("b.npz", zip({{"x.npy", offsets}})), "has no CSR");
  expect_error(
      write("b.npz", zip({{"indptr.npy", npy("<i4", "(3,)", raw<std::int32_t>({0, 3, 2}))}, {"indices.npy", indices}})),
      "do not ascend");
  expect_error(write("b.npz", zip({{"indptr.npy", offsets},
                                   {"indices.npy", indices},
                                   {"shape.npy", npy("<i8", "(2,)", raw<std::int64_t>({9, 9}))}})),
               "says 9 rows");
}

TEST_F(Formats, GapGraphs) {
  const std::string undirected = std::string(1, '\0') + raw<std::int64_t>({1, 2, 0, 1, 2}) + raw<std::int32_t>({1, 0});
  EXPECT_EQ(row(read_gap(write("a.sg", undirected), false), 0), (std::vector<std::uint32_t>{1}));
  const std::string directed = std::string(1, '\1') + raw<std::int64_t>({1, 2, 0, 1, 1}) + raw<std::int32_t>({1}) +
                               raw<std::int64_t>({0, 0, 1}) + raw<std::int32_t>({0});
  EXPECT_EQ(row(read_gap(write("a.sg", directed), false), 1), (std::vector<std::uint32_t>{0}));
  for (std::size_t length = 0; length < undirected.size(); ++length)
    EXPECT_NE(error_of(write("b.sg", undirected.substr(0, length))), "none") << length;
}

TEST_F(Formats, MatrixMarket) {
  Defects defects;
  const Graph graph = read_matrix_market(
      write("a.mtx", "%%MatrixMarket matrix coordinate pattern symmetric\n% c\n3 3 2\n2 1\n3 2\n"), {}, defects);
  EXPECT_EQ(graph.edges(), 4u);
  expect_error(write("b.mtx", "%%MatrixMarket matrix array real general\n"),
               "expected `%%MatrixMarket matrix coordinate");
  expect_error(write("b.mtx", "%%MatrixMarket matrix coordinate complex general\n"), "complex");
  expect_error(write("b.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 1\n3 1 1\n"),
               "not below the declared number");
}

TEST_F(Formats, OgbRawFolder) {
  write_gz("ogb/raw/edge.csv.gz", "0,1\n1,2\n");
  write_gz("ogb/raw/num-node-list.csv.gz", "4\n");
  write_gz("ogb/raw/node-label.csv.gz", "3\n1\n0\n2\n");
  write_gz("ogb/split/time/train.csv.gz", "0\n2\n");
  Defects defects;
  const Dataset dataset = import_dataset(folder_ / "ogb", {}, defects);
  EXPECT_EQ(dataset.graph().rows(), 4u);
  EXPECT_EQ(dataset.labels, (std::vector<std::int64_t>{3, 1, 0, 2}));
  EXPECT_EQ(dataset.train, (std::vector<std::uint64_t>{0, 2}));
  write_gz("ogb/raw/num-edge-list.csv.gz", "3\n");
  expect_error(folder_ / "ogb", "says 3 edges");
  write_gz("ogb/raw/num-edge-list.csv.gz", "2\n");
  write_gz("ogb/raw/num-node-list.csv.gz", "2\n");
  expect_error(folder_ / "ogb", "target 2 is not below the declared number of nodes 2");
}

TEST_F(Formats, GraphBoltFolder) {
  const std::string yaml =
      "dataset_name: shop\ngraph:\n  nodes:\n    - {type: user, num: 3}\n    - {type: item, num: 2}\n  edges:\n"
      "    - {type: 'item:bought_by:user', format: csv, path: e.csv}\n    - {type: 'user:knows:user', format: numpy, "
      "path: k.npy}\n"
      "tasks:\n  - train_set:\n      - data:\n          - {name: seeds, format: numpy, path: t.npy}\n";
  write("gb/metadata.yaml", yaml);
  write("gb/e.csv", "0,0\n1,2\n");
  write("gb/k.npy", npy("<i8", "(2, 1)", raw<std::int64_t>({0, 1})));
  write("gb/t.npy", npy("<i8", "(2,)", raw<std::int64_t>({2, 0})));
  Defects defects;
  const Dataset dataset = import_dataset(folder_ / "gb", {}, defects);
  ASSERT_EQ(dataset.relations.size(), 2u);
  EXPECT_EQ(dataset.relations[0].name, "bought_by");
  EXPECT_EQ(dataset.relations[0].graph.rows(), 3u);
  EXPECT_EQ(dataset.relations[0].graph.columns(), 2u);
  EXPECT_EQ(dataset.train, (std::vector<std::uint64_t>{2, 0}));
  write("gb/metadata.yaml", "graph: [1, 2\n");
  expect_error(folder_ / "gb", "line ");
  write("gb/metadata.yaml", "a: 1\n");
  expect_error(folder_ / "gb", "'graph' with 'nodes' and 'edges' is missing");
  write("gb/metadata.yaml",
        "graph:\n  nodes:\n    - {type: user, num: 3}\n  edges:\n    - {type: 'item:b:user', format: csv, path: "
        "e.csv}\n");
  expect_error(folder_ / "gb", "node type 'item', which is not declared");
  write("gb/metadata.yaml",
        "graph:\n  nodes:\n    - {type: user, num: 1}\n  edges:\n    - {type: 'user:b:user', format: csv, path: "
        "e.csv}\n");
  expect_error(folder_ / "gb", "not below the declared number of nodes 1");
}

TEST(RealGraphs, HaveTheCountsOfTheirSource) {
  const char* data = std::getenv("PACELINE_DATA");
  if (data == nullptr) GTEST_SKIP() << "SKIPPED: no data";
  const struct {
    const char* name;
    std::uint64_t nodes, undirected;
  } graphs[] = {{"cora", 2708, 5278},
                {"citeseer", 3327, 4552},
                {"pubmed", 19717, 44324},
                {"facebook_pages", 22470, 170823},
                {"mesh_4elt", 15606, 45878}};
  for (const auto& [name, nodes, undirected] : graphs) {
    Defects defects;
    const Dataset dataset = import_dataset(
        fs::path(data) / "bgl" / name,
        {.build = {.symmetric = true, .drop_self_loops = true, .merge_duplicates = true}, .text = {}}, defects);
    EXPECT_EQ(dataset.graph().rows(), nodes) << name;
    EXPECT_EQ(dataset.graph().edges(), 2 * undirected) << name;
    EXPECT_TRUE(defects.rows().empty()) << name << defects.to_string();
  }
  Defects defects;
  const Dataset temporal = import_dataset(fs::path(data) / "bgl" / "bitcoin_otc_temporal", {}, defects);
  EXPECT_EQ(temporal.graph().edges(), 35591u);
  validate(temporal.graph(), "bitcoin_otc");
}

}  // namespace
}  // namespace paceline::gnn
