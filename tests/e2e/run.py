#!/usr/bin/env python3
"""Tests the server over HTTP with the demo model and the real clients of OpenAI and Anthropic.

    run.py --chorus build/release/bin/chorus --demo examples/demo [--only TEXT]
"""

import argparse
import sys
import unittest
from pathlib import Path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chorus", required=True, type=Path, help="the program")
    parser.add_argument("--demo", required=True, type=Path, help="examples/demo: base/, adapters/, prompts/")
    parser.add_argument("--only", help="only tests whose name holds this text")
    arguments = parser.parse_args()
    try:
        import anthropic  # noqa: F401
        import jsonschema  # noqa: F401
        import openai  # noqa: F401
        import openapi_spec_validator  # noqa: F401
    except ImportError as missing:
        sys.exit(f"{missing}: pip install -r tests/e2e/requirements.txt")
    sys.path.insert(0, str(Path(__file__).parent))
    import setting
    setting.chorus = str(arguments.chorus.resolve())
    setting.demo = arguments.demo.resolve()

    import test_access
    import test_adapter_routes
    import test_admin_routes
    import test_answers
    import test_bench
    import test_composition
    import test_configuration
    import test_conformance
    import test_fields
    import test_lifecycle
    import test_limits
    import test_messages
    import test_one_key
    import test_metrics
    import test_nemo
    import test_nim
    import test_openapi
    import test_proxy
    import test_queue
    import test_refusals
    import test_responses
    import test_sampling
    import test_soak
    import test_starting
    import test_streams
    import test_templates
    import test_tls
    import test_tokens
    suite = unittest.TestSuite()
    loader = unittest.TestLoader()
    for module in (test_access, test_limits, test_queue, test_tls, test_answers, test_sampling, test_streams,
                   test_templates, test_fields, test_composition, test_refusals, test_tokens, test_responses,
                   test_messages, test_openapi, test_lifecycle, test_nim, test_starting, test_configuration, test_proxy,
                   test_one_key, test_conformance, test_adapter_routes, test_admin_routes, test_metrics, test_bench,
                   test_soak, test_nemo):
        suite.addTests(loader.loadTestsFromModule(module))
    if arguments.only:
        chosen = [test for case in suite for test in case if arguments.only in test.id()]
        suite = unittest.TestSuite(chosen)
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    sys.exit(0 if result.wasSuccessful() else 1)


if __name__ == "__main__":
    main()
