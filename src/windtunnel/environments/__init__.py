"""Where a subject works: docker, local, plain behind one port."""
