#!/usr/bin/env python3
"""One peer of bench/compare.py, loaded once: reads a JSON request a line and answers with a JSON line.

    peer_worker.py --peer hf|vllm|openvino --model DIR [--adapters DIR --mixed N --rank R] --threads T --batch LARGEST
    peer_worker.py --peer llama --model GGUF --program llama-batched-bench --threads T --batch LARGEST
    peer_worker.py --peer onednn --threads T

Answers first {"ready": true, "versions": {...}} or {"absent": why}. A request {"batch", "prompt", "new", "adapters"} is
answered by {"first_s": time until every sequence has its first token, "rest_s": time of the `new` tokens after it} or, with
"compare": true, by {"equal": how many sequences have the tokens that they have alone}. onednn answers {} by {"flops":
operations per second of a bfloat16 product of 1024 x 4096 x 4096}. Prompts are random tokens, decoding is greedy and
ignores end tokens.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import time


class Absent(Exception):
    pass


def adapter_path(args, index):
    return sorted(entry.path for entry in os.scandir(args.adapters) if entry.is_dir())[index]


class HuggingFace:
    """transformers, with PEFT for passes with adapters, in which each row names its adapter."""

    def __init__(self, args):
        import torch
        import transformers
        self.torch = torch
        torch.set_num_threads(args.threads)
        self.base = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16).eval()
        self.versions = {"torch": torch.__version__, "transformers": transformers.__version__}
        self.vocabulary = self.base.config.vocab_size
        self.mixed = None
        if args.mixed:
            import peft
            self.versions["peft"] = peft.__version__
            self.mixed = peft.PeftModel.from_pretrained(self.base, adapter_path(args, 0), adapter_name="a0")
            for i in range(1, args.mixed):
                self.mixed.load_adapter(adapter_path(args, i), adapter_name=f"a{i}")

        class Clock(transformers.StoppingCriteria):
            """Records the time of every token."""

            def __init__(self):
                self.times = []

            def __call__(self, ids, scores, **kwargs):
                self.times.append(time.perf_counter())
                return torch.zeros(ids.shape[0], dtype=torch.bool)
        self.clock = Clock
        self.criteria = transformers.StoppingCriteriaList

    def generate(self, prompts, adapters, count, clock):
        """[[token]] of `count` tokens for each prompt. adapters: the number of each prompt's adapter, or None."""
        ids = self.torch.tensor(prompts)
        options = {"adapter_names": [f"a{number}" for number in adapters]} if adapters else {}
        model = self.mixed if adapters else self.base
        with self.torch.no_grad():
            made = model.generate(input_ids=ids, attention_mask=self.torch.ones_like(ids), max_new_tokens=count,
                                  min_new_tokens=count, do_sample=False, stopping_criteria=self.criteria([clock]), **options)
        return made[:, ids.shape[1]:].tolist()

    def run(self, prompts, new, adapters):
        clock, begin = self.clock(), time.perf_counter()
        self.generate(prompts, adapters, new + 1, clock)
        if len(clock.times) != new + 1:
            raise RuntimeError(f"{len(clock.times)} tokens came instead of {new + 1}")
        return {"first_s": clock.times[0] - begin, "rest_s": clock.times[-1] - clock.times[0]}

    def answers(self, prompts, new, adapters):
        return self.generate(prompts, adapters, new, self.clock())


class Vllm:
    """vLLM's engine in this process. It is stepped here, so that first tokens can be timed separately."""

    def __init__(self, args):
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", f"0-{args.threads - 1}")
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        import vllm
        from vllm.lora.request import LoRARequest
        self.args, self.vllm, self.lora_request, self.requests = args, vllm, LoRARequest, 0
        options = {}
        if args.mixed:
            options = {"enable_lora": True, "max_loras": args.mixed, "max_cpu_loras": args.mixed,
                       "max_lora_rank": args.rank}
        self.engine = vllm.LLM(args.model, dtype="bfloat16", max_model_len=2048, max_num_seqs=args.batch,
                               enable_prefix_caching=False, **options).llm_engine
        self.vocabulary = self.engine.model_config.get_vocab_size()
        import torch
        self.versions = {"vllm": vllm.__version__, "torch": torch.__version__}

    def add(self, prompts, count, adapters):
        """The names of new requests for `count` tokens each."""
        sampling = self.vllm.SamplingParams(temperature=0, max_tokens=count, ignore_eos=True, detokenize=False)
        names = []
        for i, ids in enumerate(prompts):
            lora = None
            if adapters:
                lora = self.lora_request(f"a{adapters[i]}", 1 + adapters[i], adapter_path(self.args, adapters[i]))
            names.append(str(self.requests))
            self.requests += 1
            self.engine.add_request(names[-1], {"prompt_token_ids": ids}, sampling, lora_request=lora)
        return names

    def run(self, prompts, new, adapters):
        batch, begin = len(prompts), time.perf_counter()
        made = dict.fromkeys(self.add(prompts, new + 1, adapters), 0)
        first = early = None
        while self.engine.has_unfinished_requests():
            for output in self.engine.step():
                made[output.request_id] = len(output.outputs[0].token_ids)
            if first is None and all(made.values()):
                # Some sequences may already be beyond their first token.
                first, early = time.perf_counter(), sum(made.values()) - batch
        end = time.perf_counter()
        if sum(made.values()) != batch * (new + 1):
            raise RuntimeError(f"{sum(made.values())} tokens came instead of {batch * (new + 1)}")
        return {"first_s": first - begin, "rest_s": (end - first) * batch * new / max(1, batch * new - early)}

    def answers(self, prompts, new, adapters):
        names, tokens = self.add(prompts, new, adapters), {}
        while self.engine.has_unfinished_requests():
            for output in self.engine.step():
                tokens[output.request_id] = list(output.outputs[0].token_ids)
        return [tokens[name] for name in names]


class OpenVino:
    """OpenVINO GenAI with a model that optimum-cli exported; it reports the time of the first token itself."""

    def __init__(self, args):
        import openvino
        import openvino_genai
        if args.mixed:
            raise Absent("requests of one batch cannot name different adapters")
        self.genai = openvino_genai
        self.pipeline = openvino_genai.LLMPipeline(args.model, "CPU", INFERENCE_NUM_THREADS=args.threads)
        self.tensor = openvino.Tensor
        with open(os.path.join(args.model, "config.json")) as file:
            self.vocabulary = json.load(file)["vocab_size"]
        self.versions = {"openvino": openvino_genai.get_version()}

    def run(self, prompts, new, adapters):
        import numpy
        ids = numpy.array(prompts, dtype=numpy.int64)
        inputs = self.genai.TokenizedInputs(self.tensor(ids), self.tensor(numpy.ones_like(ids)))
        result = self.pipeline.generate(inputs, max_new_tokens=new + 1, ignore_eos=True, do_sample=False)
        metrics = result.perf_metrics
        if metrics.get_num_generated_tokens() != len(prompts) * (new + 1):
            raise RuntimeError(f"{metrics.get_num_generated_tokens()} tokens came instead of {len(prompts) * (new + 1)}")
        first = metrics.get_ttft().mean / 1000
        return {"first_s": first, "rest_s": metrics.get_generate_duration().mean / 1000 - first}


class Llama:
    """llama.cpp's batched benchmark, a new process for each pass. It warms up and times both phases itself."""

    def __init__(self, args):
        if args.mixed:
            raise Absent("llama-batched-bench applies the same adapters to all sequences")
        self.args = args
        try:
            done = subprocess.run([args.program, "--version"], capture_output=True, text=True)
        except OSError as error:
            raise Absent(str(error)) from error
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("version:")]
        self.vocabulary = 1
        self.versions = {"llama.cpp": lines[0].removeprefix("version:").strip() if lines else "unknown"}

    def run(self, prompts, new, adapters):
        # The program makes its own prompts.
        threads, batch, prompt = str(self.args.threads), len(prompts), len(prompts[0])
        done = subprocess.run([self.args.program, "-m", self.args.model, "-npp", str(prompt), "-ntg", str(new), "-npl",
                               str(batch), "-c", str(batch * (prompt + new) + 256), "-t", threads, "-tb", threads,
                               "--output-format", "jsonl"], capture_output=True, text=True)
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if len(rows) != 1:
            ended = f"ended by signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}, no result"
            raise RuntimeError((done.stderr.strip().splitlines() or [ended])[-1])
        return {"first_s": rows[0]["t_pp"], "rest_s": rows[0]["t_tg"]}


class OneDnn:
    """The product roof: the speed of bfloat16 matrix products in torch, which uses oneDNN."""

    def __init__(self, args):
        import torch
        if not torch.backends.mkldnn.is_available():
            raise Absent("torch was built without oneDNN")
        torch.set_num_threads(args.threads)
        self.torch, self.versions = torch, {"torch": torch.__version__}
        self.a = torch.randn(1024, 4096).to(torch.bfloat16)
        self.b = torch.randn(4096, 4096).to(torch.bfloat16)

    def product(self):
        times = []
        with self.torch.no_grad():
            for _ in range(7):
                begin = time.perf_counter()
                self.torch.nn.functional.linear(self.a, self.b)
                times.append(time.perf_counter() - begin)
        return {"flops": 2 * 1024 * 4096 * 4096 / min(times[2:])}


KINDS = {"hf": HuggingFace, "vllm": Vllm, "openvino": OpenVino, "llama": Llama, "onednn": OneDnn}


def answer_to(peer, request):
    if not request:
        return peer.product()
    batch, new = request["batch"], request["new"]
    prompts = [[random.randrange(peer.vocabulary) for _ in range(request["prompt"])] for _ in range(batch)]
    adapters = [i % request["adapters"] for i in range(batch)] if request["adapters"] else None
    if not request.get("compare"):
        return peer.run(prompts, new, adapters)
    if not hasattr(peer, "answers"):
        return {"equal": None}
    together = peer.answers(prompts, new, adapters)
    alone = [peer.answers([ids], new, adapters and adapters[i:i + 1])[0] for i, ids in enumerate(prompts)]
    return {"equal": sum(map(list.__eq__, together, alone))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", choices=KINDS, required=True)
    parser.add_argument("--model")
    parser.add_argument("--program", default="llama-batched-bench")
    parser.add_argument("--adapters")
    parser.add_argument("--mixed", type=int, default=0)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--batch", type=int, default=1)
    args = parser.parse_args()
    # Libraries may print to stdout, so it is redirected to stderr, and only answers go to the original stdout.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(value):
        print(json.dumps(value), file=answers, flush=True)

    try:
        random.seed(0)
        peer = KINDS[args.peer](args)
    except (ImportError, Absent) as error:
        answer({"absent": str(error)})
        return
    answer({"ready": True, "versions": peer.versions})
    for line in sys.stdin:
        answer(answer_to(peer, json.loads(line)))


if __name__ == "__main__":
    main()
