#include "runtime/adapter_cache/tensor_source.h"

#include <gtest/gtest.h>

#include "engine/adapter_packer.h"
#include "engine/adapter_values.h"
#include "kernels/tensor.h"

namespace chorus {
namespace {

using executor::DataType;
using executor::LoraConfig;
using executor::Shape;
using executor::Tensor;

// Two rows of 12 values.
struct Tensors {
  std::vector<float> values = std::vector<float>(24, 0.5f);
  std::vector<int32_t> keys = {1, 0, 2, 0, 2, 0, 2, 0};
  DataType type = DataType::kFP32;
  Shape shape = {2, 12};
  Shape keys_shape = {2, 4};

  std::shared_ptr<const AdapterSource> source() {
    return tensorSource(
        LoraConfig(5, Tensor::of(type, values.data(), shape), Tensor::of(DataType::kINT32, keys.data(), keys_shape)),
        packedRowBytes(weightPacker("cpu"), DType::kBFloat16, 1));
  }
};

TEST(TensorSource, ATaskIdAloneBringsNone) { EXPECT_EQ(tensorSource(LoraConfig(5), {}), nullptr); }

TEST(TensorSource, ContentIsTheTensorsValuesTypesAndShapes) {
  const std::string same = Tensors().source()->content_hash;
  EXPECT_EQ(Tensors().source()->content_hash, same);
  Tensors other;
  other.values.back() = 0.25f;
  EXPECT_NE(other.source()->content_hash, same) << "a value";
  other = {};
  other.keys[5] = 1;
  EXPECT_NE(other.source()->content_hash, same) << "a key";
  other = {};
  other.type = DataType::kINT32;
  EXPECT_NE(other.source()->content_hash, same) << "the same bytes of another type";
  other = {};
  other.shape = {1, 2, 12};
  EXPECT_NE(other.source()->content_hash, same) << "the same bytes in another shape";
  other = {};
  other.keys_shape = {1, 2, 4};
  EXPECT_NE(other.source()->content_hash, same) << "keys in another shape";
}

TEST(TensorSource, TensorsThatARequestLooksAtAreCopied) {
  Tensors tensors;
  const auto source = tensors.source();
  tensors.values[0] = 9;
  tensors.keys[0] = 9;
  EXPECT_EQ(*static_cast<const float*>(source->weights->getData()), 0.5f);
  EXPECT_EQ(*static_cast<const int32_t*>(source->config->getData()), 1);
}

// The sizes of a source are at least those of the packed adapter, for one row of any shape, padded or not.
TEST(TensorSource, SizesAreAtLeastWhatIsPacked) {
  const WeightPacker& packer = weightPacker("cpu");
  for (const WeightFormat& format : {WeightFormat(DType::kBFloat16), WeightFormat(DType::kFloat32), int8LoraFormat()}) {
    for (const int64_t rank : {1, 2, 15, 16, 17, 64}) {
      for (const int64_t in : {1, 7, 64, 200}) {
        for (const int64_t out : {1, 9, 65, 1000}) {
          for (const int32_t dora : {0, 1}) {
            for (const int64_t padding : {0, 5}) {
              const int64_t width = rank * (in + out) + dora * out + padding;
              const int32_t keys[] = {1, 0, static_cast<int32_t>(rank), dora};
              const auto source = tensorSource(LoraConfig(1, Tensor::cpu(DataType::kFP32, {1, width}),
                                                          Tensor::copyOf(DataType::kINT32, keys, {1, 4})),
                                               packedRowBytes(packer, format, 1));
              const int64_t packed = packedPiece(packer.bytes(format, rank, in)) +
                                     packedPiece(packer.bytes(format, out, rank)) + dora * packedPiece(out * 4);
              EXPECT_GE(source->bytes, packed)
                  << rank << " " << in << " " << out << " " << dora << " " << dtypeName(format.dtype);
              EXPECT_GE(source->elements, rank * (in + out));
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace chorus
