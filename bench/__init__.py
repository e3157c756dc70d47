"""Speed, never a verdict: `make bench` prints ratios against a baseline of the same run
(docs/benchmarks.md)."""
