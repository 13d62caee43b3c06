#include "cli/exit_code.h"

#include <gtest/gtest.h>

#include <CLI/Error.hpp>
#include <new>
#include <stdexcept>

namespace chorus {
namespace {

TEST(ExitCodeTest, WrongUseOrAWrongFileIsStatus2) {
  for (const ErrorCode code :
       {ErrorCode::kInvalidArgument, ErrorCode::kNotFound, ErrorCode::kUnsupported, ErrorCode::kCorrupt}) {
    EXPECT_EQ(exitCodeOf(Error(code, "no")), ExitCode::kRefused);
  }
  EXPECT_EQ(exitCodeOf(std::invalid_argument("no")), ExitCode::kRefused);
  EXPECT_EQ(exitCodeOf(CLI::ValidationError("--port", "no")), ExitCode::kRefused);
  EXPECT_EQ(static_cast<int>(ExitCode::kRefused), 2);
}

TEST(ExitCodeTest, AFailureIsStatus1) {
  for (const ErrorCode code : {ErrorCode::kExhausted, ErrorCode::kConflict, ErrorCode::kInternal}) {
    EXPECT_EQ(exitCodeOf(Error(code, "no")), ExitCode::kFailed);
  }
  EXPECT_EQ(exitCodeOf(std::bad_alloc()), ExitCode::kFailed);
  EXPECT_EQ(exitCodeOf(std::runtime_error("no")), ExitCode::kFailed);
  EXPECT_EQ(static_cast<int>(ExitCode::kFailed), 1);
}

}  // namespace
}  // namespace chorus
