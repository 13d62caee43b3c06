// The configuration of the AMX tile registers of a thread while it runs one task of an op.
#pragma once

namespace chorus {

// The configuration is a state of the processor that belongs to the thread: LDTILECFG sets it and takes some hundred
// cycles. So the task of an op makes one TileConfiguration and passes it to all kernels that it calls, which configure
// the registers only when they need another palette. The registers are released when the task ends. An object must stay
// on its thread, and a thread may have only one at a time. Kernels without tile registers ignore it.
class TileConfiguration {
 public:
  TileConfiguration() = default;
  ~TileConfiguration() {
    if (palette_ != nullptr) release();
  }
  TileConfiguration(const TileConfiguration&) = delete;
  TileConfiguration& operator=(const TileConfiguration&) = delete;

  // Configures the registers with `palette` (64 bytes in the format of LDTILECFG) and sets them to zero. Does nothing
  // if they already have this palette; palettes are compared by address. Only for processors with AMX.
  void use(const void* palette) {
    if (palette != palette_) load(palette);
  }

 private:
  void load(const void* palette);
  void release();

  const void* palette_ = nullptr;  // null: the registers are not configured
};

}  // namespace chorus
