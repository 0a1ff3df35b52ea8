"""From models and images to rows: `evaluate`, summaries of rows, and the benchmark runner."""
