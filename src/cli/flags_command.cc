#include "cli/flags_command.h"

#include <memory>

#include "cli/flags_page.h"
#include "cli/man_page.h"
#include "cli/print_text.h"

namespace chorus {

void addFlagsCommand(CLI::App& app) {
  auto man = std::make_shared<bool>(false);
  CLI::App* flags = app.add_subcommand("flags", "Write docs/flags.md to standard output")->group("");
  flags->add_flag("--man", *man, "Write docs/chorus.1 instead");
  flags->callback([&app, man] {
    const FlagReference reference = flagReferenceOf(app);
    printText(*man ? manPage(reference) : flagsPage(reference));
  });
}

}  // namespace chorus
