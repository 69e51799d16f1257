"""The verbs: one public function for each step of the lifecycle."""
