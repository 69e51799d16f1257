"""The agent products under test behind one port, and the driver that runs them."""
