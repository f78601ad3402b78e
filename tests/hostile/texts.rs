//! Rows 1, 2 and 3: texts that multiply when they are rewritten, and commands that grow when they are expanded.
