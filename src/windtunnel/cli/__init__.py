"""Arguments in, text out, exit codes."""
