// Arrays of JAX checkpoints and how they become tensors with Hugging Face's names and shapes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/source_tensor.h"
#include "formats/tensor_file.h"

namespace chorus {

struct JaxArray {
  std::string name;  // the path in the tree of parameters, joined by '/'
  std::vector<int64_t> shape;
  bool fortran_order = false;  // the first index varies fastest
  // The array's elements, in consecutive parts of shape [elements]. Only arrays in row-major order have several.
  std::vector<TensorView> parts;
  std::string file;  // for errors
};

// The distances between elements along each dimension, in elements.
std::vector<int64_t> stridesOf(const JaxArray& array);

// The array as a tensor of the same shape, or of the transposed shape for a matrix.
SourceTensor tensorOf(const JaxArray& array, bool transposed);

// Makes the names paths in the tree of parameters. A checkpoint of a training also has the optimizer's state beside
// "params"; only the parameters are kept. They may be inside several levels of "params".
void keepParameters(std::vector<JaxArray>& arrays);

// add(name, tensor, file) is called for each tensor of the model.
using AddJaxTensor = std::function<void(std::string name, SourceTensor tensor, const std::string& file)>;

// Names of transformers' Flax classes: those of the PyTorch classes, except that the weight of a linear is "kernel" and
// transposed, that of a layer norm "scale" and that of an embedding "embedding".
void addFlaxArrays(const std::vector<JaxArray>& arrays, const AddJaxTensor& add);

// Whether the names are those of DeepMind's Gemma: transformer/layer_0/attn/q_einsum/w and the like.
bool areGemmaArrays(const std::vector<JaxArray>& arrays);
// Adds the tensors of Hugging Face's Gemma, Gemma 2 or Gemma 3. Arrays of the vision tower are left out. Throws
// Error(kCorrupt) that names an array whose shape no such model has, kUnsupported for one of an unknown name.
void addGemmaArrays(const std::vector<JaxArray>& arrays, const AddJaxTensor& add);

}  // namespace chorus
