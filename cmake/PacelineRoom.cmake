# Compile options shared by every target of the project.
add_library(paceline_options INTERFACE)
target_include_directories(paceline_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(paceline_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # False alarms on std::string in optimized code: gcc.gnu.org/bugzilla/show_bug.cgi?id=105651.
  target_compile_options(paceline_options INTERFACE -Wno-restrict)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # std::stable_sort of libstdc++ 12 uses what it calls deprecated.
  target_compile_options(paceline_options INTERFACE -Wno-deprecated-declarations)
endif()
if(PACELINE_WERROR)
  target_compile_options(paceline_options INTERFACE -Werror)
endif()
if(PACELINE_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC's manual: sanitizers bring false alarms of this kind; here in std::regex.
  target_compile_options(paceline_options INTERFACE -Wno-maybe-uninitialized)
endif()
if(PACELINE_SANITIZE)
  target_compile_options(paceline_options INTERFACE -fsanitize=${PACELINE_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_link_options(paceline_options INTERFACE -fsanitize=${PACELINE_SANITIZE})
endif()

find_program(PACELINE_CCACHE ccache)
if(PACELINE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # NOHASHDIR and BASEDIR let a fresh clone in another folder hit the same cache.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} ${PACELINE_CCACHE})
endif()
find_program(PACELINE_MOLD mold)
if(PACELINE_MOLD AND NOT PACELINE_SANITIZE)
  target_link_options(paceline_options INTERFACE -fuse-ld=mold)
endif()

# paceline_room(NAME trace DEPENDS base taskgraph LIBRARIES simdjson::simdjson)
# declares the library paceline::<room> from paceline/<room>/**.cc, and from the files beside them the test program
# <room>_test (*_test.cc) and the benchmark <room>_bench (*_bench.cc). What only these need goes to TEST_DEPENDS.
function(paceline_room)
  cmake_parse_arguments(ROOM "" "NAME" "DEPENDS;LIBRARIES;TEST_DEPENDS" ${ARGN})
  set(folder ${CMAKE_SOURCE_DIR}/paceline/${ROOM_NAME})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${folder}/*.cc)
  set(tests ${sources})
  set(benches ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER benches INCLUDE REGEX "_bench\\.cc$")
  list(FILTER sources EXCLUDE REGEX "(_test|_bench)\\.cc$")

  set(target paceline_${ROOM_NAME})
  add_library(${target} STATIC ${sources})
  add_library(paceline::${ROOM_NAME} ALIAS ${target})
  list(TRANSFORM ROOM_DEPENDS PREPEND paceline::)
  list(TRANSFORM ROOM_TEST_DEPENDS PREPEND paceline::)
  target_link_libraries(${target} PUBLIC paceline_options ${ROOM_DEPENDS} ${ROOM_LIBRARIES})

  if(PACELINE_TESTS AND tests)
    add_executable(${ROOM_NAME}_test ${tests})
    target_link_libraries(${ROOM_NAME}_test PRIVATE ${target} ${ROOM_TEST_DEPENDS} GTest::gtest GTest::gtest_main
                          ZLIB::ZLIB)
    target_compile_definitions(${ROOM_NAME}_test PRIVATE PACELINE_SOURCE="${CMAKE_SOURCE_DIR}")
    paceline_add_test(${ROOM_NAME}_test)
  endif()
  if(PACELINE_BENCHMARKS AND benches)
    add_executable(${ROOM_NAME}_bench ${benches})
    target_link_libraries(${ROOM_NAME}_bench PRIVATE ${target} ${ROOM_TEST_DEPENDS} benchmark::benchmark
                          benchmark::benchmark_main ZLIB::ZLIB)
  endif()
endfunction()

# Every gtest case is one ctest case, so that a failure is named by what it states.
function(paceline_add_test target)
  include(GoogleTest)
  gtest_discover_tests(${target} TEST_PREFIX "${target}." DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT 300 SKIP_REGULAR_EXPRESSION "SKIPPED: no data")
endfunction()

# Compiles a page of web/, with the styles and scripts that it includes, into a room as a std::string_view named `symbol`
# in the room's namespace.
function(paceline_embed_page room symbol page)
  get_filename_component(folder ${page} DIRECTORY)
  file(GLOB parts CONFIGURE_DEPENDS ${folder}/*.css ${folder}/*.js)
  set(generated ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.cc)
  add_custom_command(
    OUTPUT ${generated}
    COMMAND ${CMAKE_COMMAND} -DPAGE=${page} -DOUTPUT=${generated} -DSYMBOL=${symbol} -DROOM=${room}
            -P ${CMAKE_SOURCE_DIR}/cmake/EmbedPage.cmake
    DEPENDS ${page} ${parts} ${CMAKE_SOURCE_DIR}/cmake/EmbedPage.cmake)
  target_sources(paceline_${room} PRIVATE ${generated})
endfunction()
