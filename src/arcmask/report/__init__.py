"""Pages and tables that people read. Knows run folders and traces, never a model."""
