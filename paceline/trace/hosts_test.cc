#include "paceline/trace/hosts.h"

#include <gtest/gtest.h>

#include "paceline/base/error.h"

namespace paceline::trace {
namespace {

using Strings = std::vector<std::string>;

TEST(NodeLists, ExpandAsSlurmWritesThem) {
  // Examples of scontrol(1), "show hostnames".
  EXPECT_EQ(expand_node_list("lx[15-18,32]", "x"), (Strings{"lx15", "lx16", "lx17", "lx18", "lx32"}));
  EXPECT_EQ(expand_node_list("node[08-11]", "x"), (Strings{"node08", "node09", "node10", "node11"}));
  EXPECT_EQ(expand_node_list("a,b[1-2]-ib,c", "x"), (Strings{"a", "b1-ib", "b2-ib", "c"}));
  EXPECT_EQ(expand_node_list("rack[0-1]n[1-2]", "x"), (Strings{"rack0n1", "rack0n2", "rack1n1", "rack1n2"}));
  for (const char* list : {"node[1-", "node]1", "node[a-b]", "node[5-2]", "node[0-99999999999]"}) {
    EXPECT_THROW(expand_node_list(list, "x"), Error) << list;
  }
}

TEST(Hosts, OfRanksFromEveryFormOfList) {
  const Strings expected{"a", "a", "b", "b"};
  EXPECT_EQ(hosts_of_ranks("0 a\n1 a\n2 b\n3 b\n", 4, "x"), expected);
  EXPECT_EQ(hosts_of_ranks("a slots=2\nb slots=2 max_slots=4\n", 4, "x"), expected);
  EXPECT_EQ(hosts_of_ranks("a:2\nb:2", 4, "x"), expected);
  EXPECT_EQ(hosts_of_ranks("# two hosts\na\nb # the slow one\n", 4, "x"), expected);
  EXPECT_EQ(hosts_of_ranks("n[1-2]", 4, "x"), (Strings{"n1", "n1", "n2", "n2"}));
  EXPECT_EQ(hosts_of_ranks("2 b\n", 4, "x"), (Strings{"", "", "b", ""}));
}

TEST(Hosts, ThatDoNotFitAreRefusedWithTheirLine) {
  EXPECT_THROW(hosts_of_ranks("", 4, "x"), Error);
  EXPECT_THROW(hosts_of_ranks("a\nb\nc\n", 4, "x"), Error);
  try {
    hosts_of_ranks("a slots=2\nb slots=many\n", 4, "hosts.txt");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("hosts.txt:2"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace paceline::trace
