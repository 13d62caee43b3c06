"""Mixtures of experts for the oracles: experts as separate linears, as transformers 4 has them, and the margins of routing.
"""

import contextlib
import re

import torch
import transformers

import llama_goldens as llama

# Routing jumps where two experts' logits cross. A crossing must be as far away as a change of the best token: this many
# times the distance of the router logits counts as a margin of the logits.
GAP_WEIGHT = 12.0
# The change of logits by the rounding of keys and values, and of the inputs of products, as a part of the tests'
# tolerance for it (golden_tolerance.h).
MOST_CHANGE = 0.7
# Roundings of the inputs of products that are tried for each prompt. Which ones an engine meets depends on its order of
# sums, so random ones stand for them.
PERTURBATIONS = 12
# A prompt that withstands these may still jump in one of nine others. A variant with `steady` takes, of so many of the
# best prompts, the one that withstands most of many more roundings.
SHORTLIST = 16
MORE_PERTURBATIONS = 200
BITS = {"bfloat16": 8, "float16": 11}  # of the significand
ROUTER = re.compile(r"\.(mlp|block_sparse_moe)\.(gate|router|router\.layer)$")


class Expert(torch.nn.Module):
    """One expert. names: of the activated projection, the other one and the output projection."""

    def __init__(self, gate_up, down, names):
        super().__init__()
        activated, other = gate_up.chunk(2)
        for name, weight in zip(names, (activated, other, down)):
            linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
            linear.weight = torch.nn.Parameter(weight.clone())
            setattr(self, name, linear)
        self.names = names

    def forward(self, x):
        activated, other, down = (getattr(self, name) for name in self.names)
        return down(torch.nn.functional.silu(activated(x)) * other(x))


class SeparateExperts(torch.nn.Module):
    """The MLP of a layer with experts, with every linear a module that PEFT can adapt."""

    def __init__(self, fused, names):
        super().__init__()
        self.top_k = fused.gate.top_k
        self.normalised = getattr(fused.gate, "norm_topk_prob", True)
        self.gate = torch.nn.Linear(fused.gate.weight.shape[1], fused.gate.weight.shape[0], bias=False)
        self.gate.weight = torch.nn.Parameter(fused.gate.weight.detach().clone())
        experts = zip(fused.experts.gate_up_proj.detach(), fused.experts.down_proj.detach())
        self.experts = torch.nn.ModuleList(Expert(gate_up, down, names) for gate_up, down in experts)
        if hasattr(fused, "shared_expert"):
            self.shared_expert, self.shared_expert_gate = fused.shared_expert, fused.shared_expert_gate

    def forward(self, hidden_states):
        x = hidden_states.reshape(-1, hidden_states.shape[-1])
        weights, chosen = self.gate(x).float().softmax(-1).topk(self.top_k, dim=-1)
        if self.normalised:
            weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            row, place = torch.where(chosen == index)
            out.index_add_(0, row, expert(x[row]) * weights[row, place, None])
        if hasattr(self, "shared_expert"):
            out = out + torch.sigmoid(self.shared_expert_gate(x)) * self.shared_expert(x)
        return out.reshape(hidden_states.shape)


def hide_type(model):
    """PEFT would rewrite the configuration of an adapter for a known model with experts. Grouped products need sizes that
    are multiples of 16 bytes.
    """
    model.config.model_type = "llama"
    model.config._experts_implementation = "eager"


def separate(model, names, block="mlp"):
    """Replaces the experts of a model by SeparateExperts, which is the layer's module `block`."""
    hide_type(model)
    for layer in model.model.layers:
        if not hasattr(layer.mlp, "experts"):
            continue
        mlp = SeparateExperts(layer.mlp, names)
        del layer.mlp
        setattr(layer, block, mlp)
        if block != "mlp":
            own = type(layer)
            layer.__class__ = type(own.__name__, (own,), {"mlp": property(lambda self: getattr(self, block))})


def round_weights(model, dtype):
    """Rounds all weights but the routers', which stay float32 in a checkpoint."""
    for name, parameter in model.named_parameters():
        if not ROUTER.search(name.rpartition(".")[0]):
            parameter.copy_(parameter.to(dtype))


def rounded_by(prepare):
    """A function for load_oracle that rounds a model's weights, and then prepares the model for adapters."""

    def change(model, dtype):
        round_weights(model, dtype)
        prepare(model)

    return change


class Routing:
    """Finds prompts whose routing small errors do not change. models: dtype -> oracle."""

    def __init__(self, models, top_k, layers):
        self.logits, self.top_k, self.layers = [], top_k, layers
        self.routers = set()  # addresses of their weights
        for model in models.values():
            routers = [module for name, module in model.named_modules() if ROUTER.search(name)]
            assert routers
            for router in routers:
                router.register_forward_hook(self.record)
                self.routers.update(parameter.data_ptr() for parameter in router.parameters())

    def record(self, module, inputs, output):
        self.logits.append(output[0] if isinstance(output, tuple) else output)

    def forget(self):
        self.logits = []

    def margins(self, models, adapter, prompts, tokens):
        """The least margin of each prompt's routing since forget(); negative for a prompt whose logits change too much
        when values are rounded as 16-bit engines round them: keys and values, and with some instruction sets the inputs
        of bfloat16 products.
        """
        batch = len(prompts)
        least = torch.full((batch,), float("inf"))
        for logits in self.logits:
            ordered = logits.detach().sort(-1, descending=True).values.reshape(batch, -1, logits.shape[-1])
            gaps = ordered[..., self.top_k - 1] - ordered[..., self.top_k]
            least = torch.minimum(least, GAP_WEIGHT * gaps.amin(1))
        for name, bits in BITS.items():
            seeds = range(PERTURBATIONS if name == "bfloat16" else 0)
            least[self.changes(models[name], name, bits, adapter, prompts, tokens, seeds) > 0] = -1
        self.forget()
        return least

    def steadiest(self, models, adapter, prompts, tokens, order):
        """Of the first SHORTLIST prompts in `order`, the index of the one whose logits the fewest of MORE_PERTURBATIONS
        roundings change too much; the first of several.
        """
        order = order[:SHORTLIST]
        assert len(order) > 0, "no candidate is varied, shows its adapter and withstands the first roundings"
        seeds = range(PERTURBATIONS, PERTURBATIONS + MORE_PERTURBATIONS)
        changes = self.changes(models["bfloat16"], "bfloat16", BITS["bfloat16"], adapter, prompts[order], tokens[order], seeds)
        self.forget()
        print(f"{prompts.shape[1]} tokens, {adapter}: of {MORE_PERTURBATIONS} roundings, {int(changes.min())} change the prompt "
              f"that is taken too much, {int(changes.max())} the worst of {len(order)}", flush=True)
        return int(order[changes.argmin()])

    def changes(self, model, name, bits, adapter, prompts, tokens, seeds):
        """How many roundings change each prompt's logits too much: that of the cache alone, and that of the inputs of
        products for each of the seeds."""
        length = prompts.shape[1]
        fed = torch.cat([prompts, tokens[:, :-1]], 1)
        first = 0 if length <= 5 else length - 1
        exact = llama.forward(model, adapter, input_ids=fed, use_cache=False).logits[:, first:]

        def changed(roundings):
            rounded = llama.forward(model, adapter, input_ids=fed, use_cache=True).logits[:, first:]
            change = (rounded - exact).abs().amax((1, 2)) / exact.abs().amax((1, 2))
            return (change > MOST_CHANGE * 2 * roundings**0.5 * 2.0**-bits).int()

        with rounded_cache(llama.DTYPES[name]):
            count = changed(2 * self.layers)
            for seed in seeds:
                with perturbed_inputs(2.0**-bits, seed, self.routers):
                    count += changed(12 * self.layers + 1)
                self.forget()
        return count


@contextlib.contextmanager
def rounded_cache(dtype):
    """Keys and values are rounded when they enter the cache."""
    update = transformers.cache_utils.Cache.update

    def rounded(self, keys, values, *args, **kwargs):
        return update(self, keys.to(dtype).to(keys.dtype), values.to(dtype).to(values.dtype), *args, **kwargs)

    transformers.cache_utils.Cache.update = rounded
    try:
        yield
    finally:
        transformers.cache_utils.Cache.update = update


@contextlib.contextmanager
def perturbed_inputs(size, seed, exact):
    """The inputs of linears change by up to `size` of their value, except for weights at the addresses in `exact`."""
    linear = torch.nn.functional.linear
    generator = torch.Generator().manual_seed(seed)

    def perturbed(x, weight, bias=None):
        if weight.data_ptr() not in exact:
            x = x * (1 + size * (2 * torch.rand(x.shape, generator=generator) - 1))
        return linear(x, weight, bias)

    torch.nn.functional.linear = perturbed
    try:
        yield
    finally:
        torch.nn.functional.linear = linear
