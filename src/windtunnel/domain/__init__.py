"""Pure nouns and rules: no files, no clock, no processes, no printing."""
